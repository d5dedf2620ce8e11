"""A program on its hardware as slices: every kernel where the simulation put it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from meshcast.estimate import idle_watts
from meshcast.hardware import FROM_HOST, TO_HOST
from meshcast.jobs import Run, check_drawable
from meshcast.lower import Kernel
from meshcast.simulate import COMMUNICATION, COPY, Repeat, Span, Timeline, between_buffers, memory_by_kernel
from meshcast.traces.slices import (
    COMPUTE_TRACK,
    COPY_TRACK,
    LOOP_TRACK,
    Description,
    JobTimeline,
    Level,
    MovedBytes,
    RankTimeline,
    Slice,
    SliceFact,
)
from meshcast.workload import Collective

# Slices of all kinds of ranks, some 30 MB of Perfetto, up to which loops are unrolled unless told otherwise.
MOST_UNROLLED = 200_000
BETWEEN = "room between buffers"


@dataclass(slots=True, kw_only=True)
class Arrows:
    """Numbers for arrows between slices, each given out once in a file."""

    rank: int
    ranks: int
    given: int = 0

    def next(self) -> int:
        """A number that no other arrow has: even ones are those inside a rank."""
        self.given += 1
        return 2 * (self.given * self.ranks + self.rank)


@dataclass(slots=True, kw_only=True)
class ProgramSlices:
    """Slices of a program, wherever and however often it runs in a step."""

    run: Run
    unroll: bool
    _described: dict[int, Description] = field(default_factory=dict)  # by the identity of kernels: the run holds them
    _arrows: dict[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    _moved: dict[tuple[str, str, int], Description] = field(default_factory=dict)

    def slices(self, arrows: Arrows, start: float = 0.0) -> Iterator[Slice]:
        """All of them, for a step that starts then.

        What ends behind the step is the pause behind its last kernel, which nobody waits for.
        """
        timeline = self.run.device_timeline
        yield from self._block(timeline, start, start + timeline.duration, 1, 1.0, arrows)

    def count(self) -> int:
        """How many there are."""
        return self._count(self.run.timeline)

    def _count(self, timeline: Timeline) -> int:
        found = 0
        for span in timeline.spans:
            if isinstance(span, Repeat):
                copies = (span.fetched_bytes > 0) + (span.host_bytes > span.fetched_bytes)
                found += 1 + (1 + copies + self._count(span.body)) * (span.trips if self.unroll else 1)
            else:
                found += 1
        return found

    def _block(
        self, timeline: Timeline, start: float, last: float, turns: int, scale: float, arrows: Arrows
    ) -> Iterator[Slice]:
        """A block that starts at `start`, `scale` times as long as one turn of it."""
        makers = self._makers(timeline)
        leads: dict[int, tuple[int, ...]] = {}
        follows: dict[int, list[int]] = {}
        for consumer, producers in enumerate(makers):
            for producer in producers:
                number = arrows.next()
                leads[producer] = (*leads.get(producer, ()), number)
                follows.setdefault(consumer, []).append(number)
        for index, span in enumerate(timeline.spans):
            begin, end = (min(last, start + scale * moment) for moment in (span.start, span.end))
            if isinstance(span, Repeat):
                yield from self._loop(span, begin, min(last, end), turns, scale, arrows)
            elif end > begin or span.kernel.collective is not None:
                yield Slice(
                    what=self.described(span.kernel), track=_track(span), start=begin, end=end, turns=turns,
                    leads_to=leads.get(index, ()), follows=tuple(follows.get(index, ())),
                )  # fmt: skip

    def _loop(
        self, span: Repeat, begin: float, end: float, turns: int, scale: float, arrows: Arrows
    ) -> Iterator[Slice]:
        if not span.trips:
            return
        facts: dict[str, SliceFact] = {"turns": span.trips}
        if turns > 1:
            facts["of_turns_around"] = turns
        loop = Description(name=span.label, category="loop", facts=facts)
        yield Slice(what=loop, track=LOOP_TRACK, start=begin, end=end)
        if not self.unroll:
            yield from self._copies(span, begin, turns * span.trips, scale * span.trips)
            yield from self._block(span.body, begin, end, turns * span.trips, scale * span.trips, arrows)
            return
        each = scale * (span.end - span.start) / span.trips
        for turn in range(span.trips):
            first = begin + turn * each
            named = Description(name=f"{span.label} turn {turn + 1} of {span.trips}", category="loop")
            yield Slice(what=named, track=LOOP_TRACK, start=first, end=min(end, first + each))
            yield from self._copies(span, first, turns, scale)
            yield from self._block(span.body, first, end, turns, scale, arrows)

    def _copies(self, span: Repeat, begin: float, turns: int, scale: float) -> Iterator[Slice]:
        """What moves between the device and its host beside a turn that starts then, one direction after the other."""
        for kind, size in ((FROM_HOST, span.fetched_bytes), (TO_HOST, span.host_bytes - span.fetched_bytes)):
            if size:
                key = (span.label, kind, size)
                if key not in self._moved:
                    facts: dict[str, SliceFact] = {
                        "kind": kind,
                        "bytes": size,
                        "bound": "memory",
                        "origin": "analytical",
                    }
                    self._moved[key] = Description(name=f"{span.label} {kind}", category="copy", facts=facts)
                end = begin + scale * span.copying * size / span.host_bytes
                yield Slice(what=self._moved[key], track=COPY_TRACK, start=begin, end=end, turns=turns)
                begin = end

    def _makers(self, timeline: Timeline) -> tuple[tuple[int, ...], ...]:
        """For every span of a block the compute kernels in it that make what a collective sends; none for others."""
        key = id(timeline)
        if key not in self._arrows:
            writer: dict[int, int] = {}
            found: list[tuple[int, ...]] = []
            for index, span in enumerate(timeline.spans):
                if isinstance(span, Repeat):
                    found.append(())
                    continue
                sends = span.kernel.collective is not None
                found.append(tuple(sorted({writer[v] for v in span.kernel.reads if v in writer})) if sends else ())
                for value in span.kernel.writes:
                    if sends:
                        writer.pop(value, None)
                    else:
                        writer[value] = index
            self._arrows[key] = tuple(found)
        return self._arrows[key]

    def described(self, kernel: Kernel) -> Description:
        """The description of a kernel's slice."""
        if id(kernel) not in self._described:
            collective = kernel.collective
            self._described[id(kernel)] = (
                self._collective(kernel, collective) if collective is not None else self._kernel(kernel)
            )
        return self._described[id(kernel)]

    def _kernel(self, kernel: Kernel) -> Description:
        estimate = self.run.kernels[kernel]
        facts: dict[str, SliceFact] = {
            "kind": kernel.kind.value,
            "dtype": kernel.dtype,
            "flops": kernel.matrix_flops + kernel.vector_flops + kernel.transcendentals,
            "bytes": kernel.read_bytes + kernel.written_bytes,
            "bound": estimate.limited_by,
            "origin": estimate.origin.value,
            "estimator": estimate.estimator,
            "low_us": estimate.low * 1e6,
            "high_us": estimate.high * 1e6,
        }
        if estimate.energy:
            facts["joules"] = estimate.energy
        if kernel.location:
            facts["source"] = kernel.location
        if kernel.recomputed:
            facts["recomputed"] = "yes"
        copies = not kernel.flags.isdisjoint(("beside", "prefetch"))
        return Description(
            name=kernel.name, category="copy" if copies else "kernel", facts=facts, joules=estimate.energy
        )

    def _collective(self, kernel: Kernel, collective: Collective) -> Description:
        plan = self.run.collective(kernel)
        facts: dict[str, SliceFact] = {
            "kind": collective.kind, "dtype": kernel.dtype, "bytes": collective.payload_bytes, "over": str(collective.group),
            "group_size": collective.group.size, "algorithm": plan.algorithm, "level": plan.level,
            "origin": self.run.network_model.origin,
        }  # fmt: skip
        if plan.protocol:
            facts["protocol"] = plan.protocol
        if kernel.location:
            facts["source"] = kernel.location
        exchange = MovedBytes(
            kind=collective.kind, dtype=kernel.dtype, input_bytes=collective.input_bytes,
            output_bytes=collective.output_bytes, group=collective.group, devices=self.run.workload.devices,
        )  # fmt: skip
        return Description(
            name=kernel.name, category="collective", facts=facts, sent=plan.level_bytes, exchange=exchange
        )


def _track(span: Span) -> str:
    if span.stream == COMMUNICATION:
        return f"channel {span.channel}"
    return COPY_TRACK if span.stream == COPY else COMPUTE_TRACK


def taking_part(slices: Iterator[Slice], rank: int) -> Iterator[Slice]:
    """Slices of a rank: without the collectives that it is not in, or alone in."""
    known: dict[int, bool] = {}  # by the identity of what is exchanged
    for each in slices:
        exchange = each.what.exchange
        if exchange is not None and exchange.group is not None:
            if id(exchange) not in known:
                known[id(exchange)] = len(exchange.members(rank)) > 1
            if not known[id(exchange)]:
                continue
        yield each


def program_timeline(run: Run, unroll: bool | None) -> JobTimeline:
    """A step of a program whose ranks all run the same.

    Args:
        run: The program on its hardware.
        unroll: Whether every turn of a loop is drawn; None for as long as that are not too many.

    Raises:
        InfeasibleError: It does not fit into the devices' memory, so there is no step.
        UnsupportedError: Its devices are not all alike.
    """
    check_drawable(run)
    program = ProgramSlices(run=run, unroll=unroll is not False)
    if unroll is None and program.count() > MOST_UNROLLED:
        program = ProgramSlices(run=run, unroll=False)
    device = run.device
    kinds = tuple(
        RankTimeline(
            ranks=ranks, label="", idle_watts=idle_watts(device), most_watts=device.tdp_watts,
            slices=lambda rank: taking_part(program.slices(Arrows(rank=rank, ranks=run.devices)), rank),
            memory=lambda: memory_levels(run, program),
        )
        for ranks in _alike(run)
    )  # fmt: skip
    return JobTimeline(
        name=run.workload.name, ranks=run.devices, kinds=kinds, step_s=run.timeline.duration,
        facts=facts_of(run), slices=program.count() * len(kinds), folded=not program.unroll,
    )  # fmt: skip


def facts_of(run: Run) -> dict[str, SliceFact]:
    """What a timeline says about the prediction behind it."""
    return {
        "device": run.device.name, "fidelity": run.fidelity, "network": run.options.network.model,
        "lowering": run.lowered.lowering,
    }  # fmt: skip


def _alike(run: Run) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Ranks by which of the collectives they take part in."""
    everyone = np.arange(run.devices)
    groups = {k.collective.group for k, _ in run.executed if k.collective is not None}
    inside = []
    for group in groups:
        here = np.zeros(run.workload.devices, dtype=bool)
        for row in group.rows():
            here[row] = row.size > 1
        if not here.all():
            inside.append(here[everyone % run.workload.devices])
    if not inside:
        return [everyone]
    patterns, of_rank = np.unique(np.stack(inside), axis=1, return_inverse=True)
    found = [everyone[of_rank.reshape(-1) == number] for number in range(patterns.shape[1])]
    return sorted(found, key=lambda ranks: int(ranks[0]))


def memory_levels(run: Run, program: ProgramSlices) -> tuple[Level, ...]:
    """Bytes held over time: arguments by their role and outputs for the whole step, temporaries as kernels need them.

    Of a compiler's block what no buffer ever takes is held for the whole step.
    """
    memory = run.memory
    constant: dict[str, float] = dict(memory.by_role)
    rest = memory.arguments - sum(memory.by_role.values())
    constant["other arguments"] = rest
    constant["outputs"] = memory.outputs - memory.aliased
    constant[BETWEEN] = max(0, between_buffers(run.lowered, run.device))
    fixed = [
        Level(name=f"memory: {role.replace('_', ' ')}", unit="B", steps=((0.0, float(size)),))
        for role, size in constant.items()
        if size
    ]
    held = sum(constant.values())
    temporaries = _temporaries(run, program)
    total = tuple((moment, held + size) for moment, size in temporaries)
    return (
        Level(name="memory", unit="B", steps=total),
        *fixed,
        Level(name="memory: temporaries", unit="B", steps=temporaries),
    )


def _temporaries(run: Run, program: ProgramSlices) -> tuple[tuple[float, float], ...]:
    by_kernel = memory_by_kernel(run.lowered, run.device)
    kernels = {id(program.described(kernel)): by_kernel[id(kernel)] for kernel, _ in run.executed}
    found: list[tuple[float, float]] = []
    drawn = sorted(program.slices(Arrows(rank=0, ranks=1)), key=lambda each: each.start)
    for each in drawn:
        size = kernels.get(id(each.what))
        if size is None:
            continue
        if found and found[-1][0] == each.start:
            found[-1] = (each.start, max(found[-1][1], float(size)))
        elif not found or found[-1][1] != size:
            found.append((each.start, float(size)))
    return tuple(found)
