"""One collective under ASTRA-sim's rules, event by event.

Chunks go through the queue of every dimension they use, first come first served, `active_chunks` of them at a time.
Where all NPUs do the same at the same time one of them is simulated (`folded`): what it sends stands for what its peers
send to it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence

from meshcast.base import InfeasibleError, UnsupportedError
from meshcast.hardware import AstraNetwork
from meshcast.network.astra.config import AstraBackend, AstraSystem
from meshcast.network.astra.events import Action, EventQueue
from meshcast.network.astra.exchange import PacketExchange
from meshcast.network.astra.phases import AstraPhase
from meshcast.network.astra.tree import Tree
from meshcast.network.astra.wires import PlacedWires, Wires, wires_of

Chunks = Sequence[tuple[AstraPhase, ...]]


def foldable(network: AstraNetwork, chunks: Chunks, backend: AstraBackend) -> bool:
    """Whether one NPU can stand for all.

    Rotations leave rings and direct exchanges as they are, on all shapes; flipping a bit of every number leaves
    halving-doubling as it is, and a switch or a full mesh. A ring of links with queues is not the same after it. In a
    tree NPUs do different things.
    """
    patterns = {phase.implementation.pattern for phases in chunks for phase in phases}
    if "doubleBinaryTree" in patterns:
        return False
    return backend == "Unaware" or "halvingDoubling" not in patterns or network.dimensions[0].shape != "Ring"


def simulate(
    network: AstraNetwork, system: AstraSystem, chunks: Chunks, backend: AstraBackend, *, folded: bool,
    places: Sequence[int] | None = None,
) -> int:  # fmt: skip
    """Nanoseconds until the last NPU is done; `places` are those that take part, where they are not all.

    Raises:
        UnsupportedError: The congestion-aware backend is asked for more than one dimension.
        InfeasibleError: The collective never ends.
    """
    events = EventQueue()
    wires = wires_of(network, events, backend, folded=folded)
    if places is not None:
        wires = PlacedWires(wires, places)
    members = network.npus if places is None else len(places)
    office = _PostOffice(events, wires, folded=folded)
    npus = [_Npu(number, events, office, system, chunks) for number in range(1 if folded else members)]
    for npu in npus:
        npu.begin()
    events.run()
    if unfinished := [npu.id for npu in npus if npu.finished_at is None]:
        # Seen in ASTRA-sim too: where trees let NPUs run ahead of one another, two NPUs can take up different chunks first.
        raise InfeasibleError(
            f"{len(unfinished)} of {len(npus)} NPUs, {unfinished[0]} first, wait for messages that nobody sends: their queues "
            "hold different chunks, and ASTRA-sim does not end either",
            fix="use one chunk (preferred-dataset-splits 1), or no tree before the last dimension",
        )
    return max(npu.finished_at or 0 for npu in npus)


Address = tuple[int, int, int, int, int]


class _PostOffice:
    """Brings together messages and those who wait for them, in order."""

    __slots__ = ("_arrived", "_events", "_folded", "_waiting", "_wires")

    def __init__(self, events: EventQueue, wires: Wires, *, folded: bool) -> None:
        self._events, self._wires, self._folded = events, wires, folded
        self._arrived: dict[Address, int] = {}
        self._waiting: dict[Address, deque[Action]] = {}

    def _address(self, tag: int, label: int, source: int, destination: int, size: int) -> Address:
        return (tag, label, 0, 0, size) if self._folded else (tag, label, source, destination, size)

    def send(self, tag: int, label: int, source: int, destination: int, size: int) -> None:
        address = self._address(tag, label, source, destination, size)
        self._wires.carry(source, destination, size, lambda: self._deliver(address))

    def receive(self, tag: int, label: int, source: int, destination: int, size: int, arrived: Action) -> None:
        address = self._address(tag, label, source, destination, size)
        if self._arrived.get(address, 0):
            self._arrived[address] -= 1
            self._events.at(self._events.now, arrived)
        else:
            self._waiting.setdefault(address, deque()).append(arrived)

    def _deliver(self, address: Address) -> None:
        waiting = self._waiting.get(address)
        if waiting:
            waiting.popleft()()
        else:
            self._arrived[address] = self._arrived.get(address, 0) + 1


class _Chunk:
    """A chunk on its way through the phases."""

    __slots__ = ("phase", "tag", "to_go")

    def __init__(self, tag: int, phases: tuple[AstraPhase, ...]) -> None:
        self.tag = tag
        self.to_go = deque(phases)
        self.phase: AstraPhase | None = None


class _Npu:
    """The system layer of one NPU: queues of chunks, one for each dimension, and the way to the network."""

    __slots__ = (
        "_chunks", "_events", "_left", "_office", "_pending", "_queues", "_running", "_system", "finished_at", "id",
    )  # fmt: skip

    def __init__(
        self, number: int, events: EventQueue, office: _PostOffice, system: AstraSystem, chunks: Chunks
    ) -> None:
        self.id = number
        self.finished_at: int | None = None
        self._events, self._office, self._system = events, office, system
        self._chunks = [_Chunk(tag, phases) for tag, phases in enumerate(chunks)]
        self._left = len(self._chunks)
        self._pending: dict[int, list[Action]] = {}
        dimensions = {phase.dimension for phases in chunks for phase in phases}
        self._queues: dict[int, list[_Chunk]] = {dimension: [] for dimension in dimensions}
        self._running = dict.fromkeys(dimensions, 0)

    def begin(self) -> None:
        for chunk in self._chunks:
            self._proceed(chunk)

    def _proceed(self, chunk: _Chunk) -> None:
        """Ends a chunk's phase and queues it for the next."""
        before = chunk.phase
        if before is not None:
            self._queues[before.dimension].remove(chunk)
        chunk.phase = chunk.to_go.popleft() if chunk.to_go else None
        if chunk.phase is None:
            self._left -= 1
            if self._left == 0:
                self.finished_at = self._events.now
        else:
            self._queues[chunk.phase.dimension].append(chunk)
        if before is not None:
            self._running[before.dimension] -= 1
            self._admit(before.dimension)
        if chunk.phase is not None:
            self._admit(chunk.phase.dimension)

    def _admit(self, dimension: int) -> None:
        """Starts the chunks that there is room for."""
        queue = self._queues[dimension]
        while self._running[dimension] < min(len(queue), self._system.active_chunks):
            chunk = queue[self._running[dimension]]
            self._running[dimension] += 1
            if chunk.phase is None:
                raise ValueError("a chunk without a phase waits in a queue")
            pattern = Tree if chunk.phase.implementation.pattern == "doubleBinaryTree" else PacketExchange
            pattern(chunk.phase, self, chunk.tag, functools.partial(self._proceed, chunk)).start()

    # What a phase asks of its NPU. An NPU's own actions of one time run together, where the first of them was made.

    def _after(self, delay: int, action: Action) -> None:
        time = self._events.now + delay
        pending = self._pending.get(time)
        if pending is None:
            self._pending[time] = [action]
            self._events.at(time, self._run_pending)
        else:
            pending.append(action)

    def _run_pending(self) -> None:
        now = self._events.now
        for action in self._pending[now]:  # grows while it runs
            action()
        del self._pending[now]

    def endpoint(self, action: Action) -> None:
        self._after(self._system.endpoint_delay_ns, action)

    def reduction(self, size: int, action: Action) -> None:
        bandwidth = self._system.local_memory_bandwidth
        if not bandwidth:
            raise UnsupportedError("a reduction needs local-mem-bw", where="system", fix="give local-mem-bw in GB/s")
        self._after(3 * int(size / (bandwidth * 1e9) * 1e9), action)

    def send(self, tag: int, label: int, destination: int, size: int) -> None:
        self._office.send(tag, label, self.id, destination, size)

    def receive(self, tag: int, label: int, source: int, size: int, arrived: Action) -> None:
        self._office.receive(tag, label, source, self.id, size, arrived)
