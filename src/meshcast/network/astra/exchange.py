"""The state that one NPU is in during a phase of ASTRA-sim: ring, direct or halving-doubling.

A phase is a number of messages to be sent. A new packet waits for the endpoint delay; every message that comes in makes
the next packet, which waits for the endpoint delay and, where it was reduced, for three passes over local memory,

    3 * floor(B / local memory bandwidth) ns.

Then the next message goes out, or the phase ends when all are sent and the last packets are back. Packets come in rounds:
the first ones of a round are new data and never reduced, the others are those received; rounds of an all-reduce are
by turns reduced and only passed on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from meshcast.network.astra.events import Action
from meshcast.network.astra.phases import AstraPhase


class Ports(Protocol):
    """The functions of its NPU that a phase of a collective calls."""

    @property
    def id(self) -> int:
        """The number of the NPU."""
        ...

    def endpoint(self, action: Action) -> None:
        """Runs `action` after the endpoint delay."""
        ...

    def reduction(self, size: int, action: Action) -> None:
        """Runs `action` after the reduction of so many bytes."""
        ...

    def send(self, tag: int, label: int, destination: int, size: int) -> None:
        """Sends a message."""
        ...

    def receive(self, tag: int, label: int, source: int, size: int, arrived: Action) -> None:
        """Runs `arrived` once the message of this source is there."""
        ...


@dataclass(frozen=True, slots=True)
class Packet:
    """A message to come: how far it goes, and its bytes."""

    label: int
    size: int


class PacketExchange:
    """Ring, direct and halving-doubling: packets that make room for one another."""

    __slots__ = (
        "_at_once", "_done", "_doubling", "_label", "_packets", "_phase", "_ports", "_reducing", "_returned",
        "_seen", "_size", "_tag", "_to_send", "_together", "_turn",
    )  # fmt: skip

    def __init__(self, phase: AstraPhase, ports: Ports, tag: int, done: Callable[[], None]) -> None:
        npus, kind, pattern = phase.npus, phase.kind, phase.implementation.pattern
        self._phase, self._ports, self._tag, self._done = phase, ports, tag, done
        self._packets: deque[Packet] = deque()
        self._returned = 0  # packets that are through with the endpoint and not sent on yet
        self._seen = 0  # messages received
        self._reducing = False
        self._turn = (0, 0)  # packets of this round to come: fresh ones, returned ones
        self._at_once, self._together = 1, npus - 1
        self._size = phase.size if kind == "all_gather" else phase.size // npus
        self._label = 1
        if pattern == "ring":
            self._to_send = npus * (npus - 1) // 2 if kind == "all_to_all" else npus - 1
        elif pattern == "direct":
            self._at_once = self._together = min(phase.implementation.window or npus - 1, npus - 1)
            self._to_send = npus - 1
        else:
            self._to_send = npus.bit_length() - 1
            self._together = self._to_send - 1
            self._label = npus // 2 if kind == "all_gather" else 1
            self._size = phase.size if kind == "all_gather" else phase.size // 2
        self._doubling = kind == "all_gather"  # whether halving-doubling doubles
        if kind == "all_reduce":
            self._to_send *= 2

    def start(self) -> None:
        """Makes the first packets."""
        for _ in range(self._at_once):
            self._insert()

    def _insert(self) -> None:
        first, then = self._turn
        if first == 0 and then == 0:
            first, then = self._at_once, self._together
            self._reducing = not self._reducing
        size = self._size
        self._packets.append(Packet(self._label, size))
        self._advance()
        if first > 0:
            self._turn = (first - 1, then)
            self._ports.endpoint(self._back)
            return
        self._turn = (first, then - 1)
        kind = self._phase.kind
        if kind == "reduce_scatter" or (kind == "all_reduce" and self._reducing):
            self._ports.endpoint(lambda: self._ports.reduction(size, self._back))
        else:
            self._ports.endpoint(self._back)

    def _advance(self) -> None:
        """Chooses the next packet's way and size."""
        pattern, npus = self._phase.implementation.pattern, self._phase.npus
        if pattern == "direct":
            self._label = self._label % (npus - 1) + 1
        elif pattern == "halvingDoubling":
            if not self._doubling:
                self._label, self._size = self._label * 2, self._size // 2
                self._doubling = self._label == npus and self._phase.kind == "all_reduce"
                if not self._doubling:
                    return
            self._label, self._size = self._label // 2, self._size * 2

    def _back(self) -> None:
        """A packet is through with the endpoint."""
        self._returned += 1
        half = self._phase.npus - 1
        if (
            self._phase.kind == "all_reduce"
            and self._phase.implementation.pattern == "direct"
            and self._to_send <= half
        ):
            # The second half of a direct all-reduce waits for all of the first.
            if self._seen < half:
                return
            for _ in range(self._at_once):
                if not self._send():
                    break
        else:
            self._send()
        if self._to_send == 0 and self._returned == self._at_once:
            self._done()

    def _send(self) -> bool:
        if not self._packets or self._to_send == 0 or self._returned == 0:
            return False
        packet = self._packets.popleft()
        receiver, sender = self._peers(packet.label)
        self._ports.send(self._tag, packet.label, receiver, packet.size)
        self._ports.receive(self._tag, packet.label, sender, packet.size, self._received)
        self._to_send -= 1
        self._returned -= 1
        return True

    def _received(self) -> None:
        self._seen += 1
        self._insert()

    def _peers(self, label: int) -> tuple[int, int]:
        """The NPUs that a packet goes to and that its like comes from."""
        own, npus, stride = self._ports.id, self._phase.npus, self._phase.stride
        at = own // stride % npus
        if self._phase.implementation.pattern == "halvingDoubling":
            partner = own + ((at ^ label) - at) * stride
            return partner, partner
        return own + ((at + label) % npus - at) * stride, own + ((at - label) % npus - at) * stride
