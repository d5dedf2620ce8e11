"""Which values share a buffer, and how many bytes of buffers live at once.

A value's buffer lives from the step that writes it to the last that reads it. Values share one where XLA's buffer
assignment makes them:

- an in-place update and its target;
- a loop's initial value, the carried value inside, and the result. The initial value is copied first when it is still
  needed or is not ours to overwrite, as a donated argument is, and a value the loop only passes through is never copied;
- a carried value and the next iteration's, unless the old one is still read when the new one is written: then the new
  one has a buffer of its own until the iteration ends;
- a carried value's new state and what it is written over, where the old state was dead when that was written: else the state lies
  in the carried buffer, and what leads to it in another;
- an elementwise pass and an operand of the same size that dies there, if that is all its kernel returned: XLA:GPU looks
  for the operand's own instruction, which a library call's or a multi-output fusion's tuple hides (heap_simulator.cc). A
  result of the program has memory of its own, and what is put there first is asked for by where it was last seen, behind
  its tuple (LiveRangeInterferes of buffer_assignment.cc): there it does not matter who returned it. On TPUs there are no
  library calls, and every result of a pass may be written over an operand;
- a sort's results and its operands, one by one, but for CUB's, which has two arrays; a solver's first result and its first
  operand, as `output_operand_aliases` of its call says (hlo_dataflow_analysis.cc, CanShareOperandBufferWithUser).

An output that takes a donated argument's memory has to wait until nobody reads the argument any more: if it is written
before, it lives in a buffer of its own until the end, and is copied then. Buffers of loop bodies and branches live
within the step that runs them; of several branches one runs, so they take the same memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from meshcast.hardware import Device
from meshcast.lower import (
    BranchStep,
    CostKey,
    Kernel,
    KernelKind,
    LoopStep,
    Schedule,
    Step,
    sorted_by_radix,
    writes_over,
)
from meshcast.simulate.memory.scratch import kernel_needs, padded_operands, pads_operands
from meshcast.workload import DTYPE_BITS, SortGeometry, Tensor


class KernelNeeds(Protocol):
    """What a kernel needs on a device while it runs."""

    def __call__(self, kernel: Kernel, device: Device, *, tuned: bool) -> tuple[int, bool]:
        """Bytes besides operands and results, and whether it is a library's; where products were timed on the device or not."""


@dataclass(slots=True)
class LiveBuffer:
    """Bytes that are taken from moment `start` to moment `end`, both included."""

    size: int
    start: int
    end: int
    held: bool = False  # argument, output or carried value: somebody else accounts for it
    output: bool = False  # held as an output with memory of its own: that is free until `start`
    value: int | None = None  # that it was made for; None of what a kernel needs while it runs
    over: tuple[int, ...] = ()  # of an output: values that it may be written over at `start`
    before: int | None = None  # of a product's scratch: the result that an epilogue makes of it, element by element


def lifetimes(
    schedule: Schedule,
    tensors: Sequence[Tensor],
    aliases: Mapping[int, int],
    device: Device | None = None,
    *,
    tuned: bool = True,
    needs: KernelNeeds = kernel_needs,
) -> list[LiveBuffer]:
    """Every buffer of a program. Moments count steps, those of bodies included.

    Args:
        schedule: The program's steps in launch order.
        tensors: Types of all values.
        aliases: Output values to the donated arguments whose memory they take.
        device: Whose libraries' scratch is counted; without it, none is.
        tuned: Whether products were timed on the device, see `simulate.memory.scratch`.
        needs: What a kernel needs on the device.
    """
    return _Lifetimes(tensors, aliases, device, tuned=tuned, needs=needs).program(schedule)


def most_at_once(buffers: Sequence[LiveBuffer]) -> int:
    """Most bytes taken at any moment, by buffers that nobody else accounts for."""
    return max(live_bytes([b for b in buffers if not b.held])[1], default=0)


def live_bytes(buffers: Sequence[LiveBuffer]) -> tuple[list[int], list[int]]:
    """Moments at which the bytes taken change, and how many there are from then on."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.start] = changes.get(buffer.start, 0) + buffer.size
        changes[buffer.end + 1] = changes.get(buffer.end + 1, 0) - buffer.size
    order = sorted(changes)
    return order, list(itertools.accumulate(changes[moment] for moment in order))


def moments(schedule: Schedule) -> Iterator[tuple[int, Kernel]]:
    """Every kernel with the moment at which `lifetimes` has it run."""
    yield from _moments(schedule, 0)


def _moments(schedule: Schedule, now: int) -> Generator[tuple[int, Kernel], None, int]:
    """The kernels of a block that begins behind moment `now`; returns the moment at which it has ended."""
    for step in schedule.steps:
        now += 1
        if isinstance(step, LoopStep):
            now = yield from _moments(step.body, now)
        elif isinstance(step, BranchStep):
            entered, ends = now, [now]
            for body in step.bodies:
                ends.append((yield from _moments(body, entered)))
            now = max(ends)
        else:
            yield now, step
    return now + 1


class _Lifetimes:
    def __init__(
        self,
        tensors: Sequence[Tensor],
        aliases: Mapping[int, int],
        device: Device | None,
        *,
        tuned: bool,
        needs: KernelNeeds,
    ) -> None:
        self._tuned = tuned
        self._needs = needs
        self._tensors = tensors
        self._aliases = aliases
        self._donated = frozenset(aliases.values())
        self._device = device
        self._on_tpu = device is not None and device.kind == "tpu"
        self._single: set[int] = set()  # values that are all their kernel returns: others may be written over them
        self._scratches: dict[CostKey, tuple[int, bool]] = {}  # bytes of scratch, and whether it is a library's call
        self._now = 0
        self._buffers: list[LiveBuffer] = []

    def program(self, schedule: Schedule) -> list[LiveBuffer]:
        live = self._block(schedule, frozenset(schedule.inputs), dict.fromkeys(schedule.outputs))
        writers = {value: step for step in schedule.steps for value in step.writes}
        for value in set(schedule.outputs):
            if value not in live:
                continue  # a constant, in memory already
            output, writer = live[value], writers.get(value)
            if value not in self._aliases:
                output.output = output.held
                if isinstance(writer, Kernel) and writer.name != "copy" and not self._on_tpu:
                    output.over = tuple(v for v in writer.reads if writes_over(writer, v, value))
                continue
            argument = live[self._aliases[value]]
            while isinstance(writer, Kernel) and writer.updates:  # in place: who wrote the buffer first is what counts
                writer = writers.get(writer.updates[0])
            elementwise = isinstance(writer, Kernel) and writer.kind in (KernelKind.LOOP_FUSION, KernelKind.REDUCTION)
            free_from = argument.end if elementwise else argument.end + 1
            output.held = output is argument or value in schedule.inputs or output.start >= free_from
        return self._buffers

    def _block(
        self, schedule: Schedule, inputs: frozenset[int], outputs: Mapping[int, int | None]
    ) -> dict[int, LiveBuffer]:
        """The buffers of a block's values. `outputs` lie in others' memory: a loop's where the old state is, which is told."""
        last = last_reads(schedule)
        live: dict[int, LiveBuffer] = {value: LiveBuffer(0, self._now, self._now, held=True) for value in inputs}
        for index, step in enumerate(schedule.steps):
            self._now += 1
            entered = self._now
            if isinstance(step, LoopStep):
                self._block(step.body, frozenset(step.body.inputs), _written_in_place(step.body))
            elif isinstance(step, BranchStep):
                self._now = self._branches(step, entered)
            elif self._device is not None:
                self._scratch(step, self._device, schedule)
            now, reads = self._now, step.reads
            dying = {v for v in reads if last[v] == index and v in live}
            donors = self._donors(step, dying, live)
            for value in step.writes:
                buffer = donors.get(value)
                before = outputs.get(value)
                if buffer is not None and before is not None and not buffer.held:
                    carried = live[before]
                    if before in reads or carried.end >= buffer.start:
                        buffer = None  # that lies elsewhere, as the old value was still needed when it was written
                if buffer is None:
                    buffer = LiveBuffer(self._tensors[value].bytes, entered, now, value=value)
                    self._buffers.append(buffer)
                if value in outputs:
                    buffer.held = True
                live[value] = buffer
            for value in reads:
                if value in live:
                    live[value].end = now
        self._now += 1
        for value in schedule.outputs:
            if value in live:
                live[value].end = self._now
        return live

    def _branches(self, step: BranchStep, entered: int) -> int:
        """The moment at which the longest branch ends. One of them runs: the buffers of the largest are counted."""
        others, ends, largest = self._buffers, [entered], 0
        kept: list[LiveBuffer] = []
        for body in step.bodies:
            self._now, self._buffers = entered, []
            self._block(body, frozenset(), dict.fromkeys(body.outputs))
            ends.append(self._now)
            if (size := most_at_once(self._buffers)) > largest:
                kept, largest = self._buffers, size
        others.extend(kept)
        self._buffers = others
        return max(ends)

    def _scratch(self, kernel: Kernel, device: Device, schedule: Schedule) -> None:
        """What a kernel needs while it runs; and whether its result can be written over later."""
        known = self._scratches.get(kernel.cost_key)
        if known is None:
            known = self._scratches[kernel.cost_key] = self._needs(kernel, device, tuned=self._tuned)
        size, library = known
        if size and pads_operands(kernel, device, tuned=self._tuned):
            size -= self._written_padded(kernel, schedule)
        if size:
            result = (
                kernel.writes[0] if kernel.kind is KernelKind.GEMM and kernel.vector_flops and kernel.writes else None
            )
            self._buffers.append(LiveBuffer(size, self._now, self._now, before=result))
        if not library and len(kernel.writes) == 1:
            self._single.add(kernel.writes[0])

    def _written_padded(self, kernel: Kernel, schedule: Schedule) -> int:
        """Bytes of operands that a pass over elements pads as it makes them: nobody else reads them, and they are there once."""
        makers = {made: step for step in schedule.steps for made in step.writes}
        alone = [
            value
            for value in padded_operands(kernel, self._tensors)
            if isinstance(maker := makers.get(value), Kernel)
            and self._goes_by_elements(maker, value)
            and value not in schedule.outputs
            and sum(value in step.reads for step in schedule.steps) == 1
        ]
        return sum(self._tensors[value].bytes for value in alone)

    def _goes_by_elements(self, maker: Kernel, value: int) -> bool:
        """Whether a kernel computes a value element by element, be it beside sums: as large as what it reads, it is none."""
        if maker.kind is KernelKind.LOOP_FUSION:
            return "copy" not in maker.flags  # which is begun ahead in a loop, or stays a copy
        elements = [self._tensors[read].elements for read in maker.reads]
        several = maker.kind is KernelKind.REDUCTION and len(maker.writes) > 1
        return several and self._tensors[value].elements >= max(elements, default=0)

    def _donors(self, step: Step, dying: set[int], live: dict[int, LiveBuffer]) -> dict[int, LiveBuffer]:
        """The buffers that a step's results are written into, where those exist already."""
        if isinstance(step, LoopStep):
            found: dict[int, LiveBuffer] = {}
            free = {v for v in dying if not live[v].held or v in self._donated}
            body = step.body
            for operand, result, before, after in zip(step.reads, step.writes, body.inputs, body.outputs, strict=False):
                if operand in live and (before == after or operand in free):
                    found[result] = live[operand]
                    free.discard(operand)  # a second carried value that starts the same has to be copied
            return found
        if not isinstance(step, Kernel):
            return {}
        if step.updates:
            pairs = zip(step.writes, step.updates, strict=False)
            return {result: live[target] for result, target in pairs if target in live}
        if self._on_tpu:
            return self._written_over(step, dying, live)
        if step.kind in (KernelKind.SORT, KernelKind.SOLVER):
            return self._done_in_place(step, dying, live)
        if step.kind not in (KernelKind.LOOP_FUSION, KernelKind.REDUCTION) or dying.isdisjoint(step.reads):
            return {}
        found = {}
        for result in step.writes:
            if result in self._aliases:
                continue
            size = self._tensors[result].bytes
            for value in step.reads:
                shared = value in dying and (self._device is None or value in self._single)
                if shared and not live[value].held and live[value].size == size and writes_over(step, value, result):
                    found[result] = live[value]
                    dying.discard(value)
                    break
        return found

    def _done_in_place(self, step: Kernel, dying: set[int], live: dict[int, LiveBuffer]) -> dict[int, LiveBuffer]:
        """Dying operands of a sort, each for the result of its place; of a solver, the first."""
        shape = step.geometry
        if isinstance(shape, SortGeometry) and (shape.top or sorted_by_radix(shape, DTYPE_BITS.get(step.dtype, 32))):
            return {}
        pairs = zip(step.reads, step.writes if step.kind is KernelKind.SORT else step.writes[:1], strict=False)
        return {
            result: live[value]
            for value, result in pairs
            if value in dying and not live[value].held and live[value].size == self._tensors[result].bytes
        }

    def _written_over(self, step: Kernel, dying: set[int], live: dict[int, LiveBuffer]) -> dict[int, LiveBuffer]:
        """Dying operands of a pass over elements, each for one result of its size."""
        if step.kind not in (KernelKind.LOOP_FUSION, KernelKind.REDUCTION):
            return {}
        free = {id(live[v]): live[v] for v in step.reads if v in dying and not live[v].held}
        found: dict[int, LiveBuffer] = {}
        for value in step.writes:
            size = self._tensors[value].bytes
            buffer = next((b for b in free.values() if b.size == size), None)
            if buffer is not None and value not in self._aliases:
                found[value] = free.pop(id(buffer))
        return found


def _written_in_place(body: Schedule) -> dict[int, int | None]:
    """Outputs of a loop body that can be written straight into the carried buffer, each with its old value: dead by then."""
    last = last_reads(body)
    defined = {value: (index, step) for index, step in enumerate(body.steps) for value in step.writes}
    found: dict[int, int | None] = {}
    for before, after in zip(body.inputs, body.outputs, strict=True):
        if after in defined:
            index, step = defined[after]
            ends = last.get(before, -1)
            if ends < index or (ends == index and isinstance(step, Kernel) and writes_over(step, before, after)):
                found[after] = before
    return found


def last_reads(schedule: Schedule) -> dict[int, int]:
    """The last step that reads a value; outputs are read after all of them."""
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        for value in step.reads:
            last[value] = index
    for value in schedule.outputs:
        last[value] = len(schedule.steps)
    return last
