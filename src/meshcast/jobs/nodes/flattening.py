"""A program on its hardware as the body of a trace: kernels with their times, in the order and with the waits of the run.

Loops are unrolled, or kept compact: a turn stands for all of them, every node `trips` times as long and large. As a loop has
its device to itself and all its turns take the same, `trips * max(sums) = max(trips * sums)`: compact bodies last as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshcast.chakra import BEGINS, LEAST, UNTIL, Attribute
from meshcast.hardware import FROM_HOST, TO_HOST
from meshcast.jobs.nodes.job_groups import JobGroups
from meshcast.jobs.nodes.kernels_as_pieces import (
    NANOSECONDS,
    collective_pieces,
    host_copy,
    kernel_piece,
    touched,
    waiting,
)
from meshcast.jobs.nodes.pieces import Piece, RankBody, Waits
from meshcast.jobs.program.run import Run
from meshcast.lower import Kernel, LoopStep
from meshcast.simulate import COPY, BlockPlan, Placed, RankRun, stream_of

SHORTEST_WAIT = 1e-12  # seconds; below, times differ by rounding
HOST_MATTERS = (
    1 / 8
)  # of a program's time: no device of the catalogue is so much faster than another that less would be waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The details that a trace is asked to hold: turns of loops, names of memory.

    Attributes:
        unroll: Whether every turn of a loop has nodes of its own.
        memory: Whether nodes name what they read and write.
    """

    unroll: bool = False
    memory: bool = True


def program_body(
    run: Run, groups: JobGroups, detail: Detail, prefix: str = "v", names: Mapping[int, str] | None = None
) -> RankBody:
    """The nodes of one rank in a step of a program.

    Args:
        run: The program on its hardware.
        groups: The groups of the job that it is a part of.
        detail: What the trace should hold.
        prefix: The prefix of the names of values.
        names: The names of values that other programs know too.

    Raises:
        UnsupportedError: Traces have no such collective.
    """
    rank = run.simulator.with_times(run.kernels, run.network)
    flattened = _Flattened(run=run, rank=rank, groups=groups, detail=detail, prefix=prefix, names=dict(names or {}))
    leaves = flattened.block(run.simulator.plan, (), 1)
    host: dict[str, Attribute] = {}
    if run.host > HOST_MATTERS * run.timeline.duration:
        host = {LEAST: run.pauses * NANOSECONDS, UNTIL: run.host * NANOSECONDS}
    _without_gap(flattened.body, rank.length(run.simulator.plan).last)
    return _lasting(flattened.body, run.timeline.duration, leaves, host)


def _without_gap(body: RankBody, seconds: float) -> None:
    """Takes the gap behind the last kernel away, which nothing waits for: the device is done after so many seconds."""
    ends = body.ends()
    longer = max(ends, default=0.0) - seconds
    if longer > SHORTEST_WAIT:
        last = max(range(len(ends)), key=ends.__getitem__)
        piece = body.pieces[last]
        if piece.seconds > longer and piece.stream == 0:
            left = piece.seconds - longer
            said = {**piece.attributes, "duration_ns": left * NANOSECONDS}
            body.pieces[last] = replace(piece, seconds=left, attributes=said)


def _lasting(body: RankBody, seconds: float, leaves: Waits, host: Mapping[str, Attribute]) -> RankBody:
    """The body with its end where the step's is, by a wait for the host: for pauses before launches, and for its pace.

    What is said about the host stands on that wait, which is there for that alone if need be.
    """
    shorter = seconds - max(body.ends(), default=0.0)
    if shorter > SHORTEST_WAIT:
        body.add(waiting("waiting for the host", shorter, more=host), order=leaves)
    elif host:  # not here, but perhaps on another device
        body.add(waiting("waiting for the host", 0.0, more=host), order=leaves)
    if host:
        first = body.pieces[0]
        body.pieces[0] = replace(first, attributes={**first.attributes, BEGINS: True})
    return body


@dataclass(slots=True, kw_only=True)
class _Flattened:
    run: Run
    rank: RankRun
    groups: JobGroups
    detail: Detail
    prefix: str
    names: dict[int, str]  # of values that share the buffer of another
    body: RankBody = field(default_factory=RankBody)
    _placed: dict[int, Placed] = field(default_factory=dict)  # by the identity of a block: the plan holds them
    _pieces: dict[tuple[int, int, int, float], tuple[Piece, ...]] = field(default_factory=dict)
    _copies: dict[tuple[int, int, int, str], Piece] = field(default_factory=dict)

    def block(self, block: BlockPlan, entry: Waits, repeat: int) -> Waits:
        """Puts a block behind `entry`, which it waits for; the nodes with which it ends."""
        placed = self._placed.get(id(block))
        if placed is None:
            placed = self._placed[id(block)] = self.rank.placed(block)
        tails: list[Waits] = [entry] * (block.channels + 1)  # what the next step of a stream follows
        done: dict[int, Waits] = {}
        for index in placed.order:
            step = block.steps[index]
            needed = [node for before in (block.before[index] if block.before else ()) for node in done[before]]
            if not isinstance(step, Kernel):
                everything = _joined(tails)
                done[index] = self._inside(step, block, index, everything, repeat)
                tails = [done[index]] * len(tails)
                continue
            if stream_of(step) == COPY:  # takes what compute leaves of the memory; what is waited for is a wait below
                done[index] = _joined([tails[0], tuple(needed)])
                continue
            lane = block.lanes[index] if block.lanes else 0
            if block.copies and not lane:
                tails[0] = self._waited(block, placed, index, tails[0], needed, repeat)
            seconds = (placed.ends[index] - placed.starts[index]) * repeat
            follows = tails[lane]
            if not seconds and step.collective is None:
                done[index] = tails[lane] = _joined([follows, tuple(needed)])
                continue
            added = [self.body.add(piece, needed, follows) for piece in self._nodes(step, lane, seconds, repeat)]
            done[index] = tails[lane] = tuple(added) or _joined([follows, tuple(needed)])
        if block.copies:
            rest = placed.length.all - max(placed.ends[i] for i in placed.order if _is_compute(block, i))
            if rest > SHORTEST_WAIT:
                tails[0] = (self.body.add(waiting("waiting for copies", rest * repeat), order=_joined(tails)),)
        changed = [tail for tail in tails if tail is not entry]
        return _joined(changed or [entry])

    def _inside(self, step: object, block: BlockPlan, index: int, entry: Waits, repeat: int) -> Waits:
        """A loop's turns, or the longest of a branch's bodies."""
        bodies = block.bodies[index]
        if isinstance(step, LoopStep):  # what a loop carries keeps its buffer
            carried = [self._name(value) for value in step.reads]
            self.names |= dict(zip(step.body.inputs, carried, strict=False))
            self.names |= dict(zip(step.writes, carried, strict=False))
        if not isinstance(step, LoopStep):
            longest = max(bodies, key=lambda body: self.rank.length(body).all, default=None)
            return entry if longest is None else self.block(longest, entry, repeat)
        if not self.detail.unroll:
            return self._turn(step, bodies[0], entry, repeat * step.trips) if step.trips else entry
        for _ in range(step.trips):
            entry = self._turn(step, bodies[0], entry, repeat)
        return entry

    def _turn(self, loop: LoopStep, body: BlockPlan, entry: Waits, repeat: int) -> Waits:
        """A turn, over when its kernels and what moves to and from the host beside them are."""
        tails = [self.block(body, entry, repeat)]
        follows = entry
        for label, size in (
            (f"{loop.label} {FROM_HOST}", loop.fetched_bytes),
            (f"{loop.label} {TO_HOST}", loop.host_bytes - loop.fetched_bytes),
        ):
            if size:
                key = (id(loop), size, repeat, label)
                if key not in self._copies:
                    seconds = self.rank.copying(loop) * size / loop.host_bytes
                    self._copies[key] = host_copy(label, seconds * repeat, size, repeat)
                follows = (self.body.add(self._copies[key], order=follows),)
                tails.append(follows)
        return _joined(tails)

    def _waited(
        self, block: BlockPlan, placed: Placed, index: int, follows: Waits, needed: Sequence[int], repeat: int
    ) -> Waits:
        """What a compute step follows: a wait of its own, where it starts later than its stream and its data allow."""
        before = [b for b in block.before[index] if not _is_copy(block, b)]
        earlier = placed.order[: placed.order.index(index)]
        stream = [i for i in earlier if _is_compute(block, i)]
        free = max([placed.ends[i] for i in (*before, *stream)], default=0.0)
        late = placed.starts[index] - free
        if late <= SHORTEST_WAIT:
            return follows
        return (self.body.add(waiting("waiting for copies", late * repeat), needed, follows),)

    def _nodes(self, kernel: Kernel, lane: int, seconds: float, repeat: int) -> tuple[Piece, ...]:
        key = (id(kernel), lane, repeat, seconds)
        if key not in self._pieces:
            said = self._touched(kernel) if self.detail.memory else {}
            if kernel.collective is None:
                self._pieces[key] = (kernel_piece(kernel, seconds, repeat, said),)
            elif kernel.collective.group.size < 2:
                self._pieces[key] = ()
            else:
                self._pieces[key] = collective_pieces(
                    kernel.name, kernel.collective, self.run.workload.devices, seconds, lane, self.groups, said, repeat
                )
        return self._pieces[key]

    def _touched(self, kernel: Kernel) -> dict[str, Attribute]:
        for made, buffer in zip(kernel.writes, kernel.updates, strict=False):
            self.names[made] = self._name(buffer)  # written in place
        return touched(kernel, self.run.lowered.tensors, self._name)

    def _name(self, value: int) -> str:
        return self.names.get(value) or f"{self.prefix}{value}"


def _joined(tails: Sequence[Waits]) -> Waits:
    return tuple(sorted({node for tail in tails for node in tail}))


def _is_copy(block: BlockPlan, index: int) -> bool:
    step = block.steps[index]
    return isinstance(step, Kernel) and stream_of(step) == COPY


def _is_compute(block: BlockPlan, index: int) -> bool:
    return not block.lanes[index] and not _is_copy(block, index)
