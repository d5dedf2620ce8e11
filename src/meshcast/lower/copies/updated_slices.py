"""Parts of stacked arrays that a loop's turn updates, reads in products and hands on: XLA:GPU keeps them twice.

A turn that is handed a layer's part of a cache cuts it out, updates it, multiplies with it and writes it into the stack that
leaves the loop. XLA's priority fusion computes the update again inside the write into the stack, from the part as it was cut out;
so the update cannot happen in place, and cut and update are one kernel with both as its results (`loop_dynamic_slice_
dynamic_update_slice_fusion` of cached decoding: Llama 3 8B of the open ground truth, `data/measured/h200-plain/open`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.fused_kernels.fused_kernel import merged
from meshcast.lower.fused_kernels.kernel_flags import short_name
from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks

_CUT, _UPDATED = "dynamic_slice", "dynamic_update_slice"


def with_updated_slices(schedule: Schedule) -> Schedule:
    """A schedule with such cuts and updates as one kernel each, in loops at every depth."""
    steps = [
        step if isinstance(step, Kernel) else with_inner_blocks(step, with_updated_slices) for step in schedule.steps
    ]
    readers: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        for value in step.reads:
            readers.setdefault(value, []).append(place)
    makers = {value: place for place, step in enumerate(steps) for value in step.writes}
    outside = frozenset(schedule.outputs)
    left: list[Step | None] = list(steps)
    for place, step in enumerate(steps):
        cut, stacked = _around(step, steps, makers, readers) if isinstance(step, Kernel) else (None, None)
        if cut is None or stacked is None or not outside.isdisjoint(step.writes):
            continue
        first, last = steps[cut], steps[stacked]
        assert isinstance(step, Kernel)
        assert isinstance(first, Kernel)  # see `_around`
        assert isinstance(last, Kernel)
        both = merged(first, step)
        left[cut] = None
        left[place] = replace(both, written_bytes=2 * first.written_bytes, flags=both.flags - {"copy"})
        (part,), (updated,) = first.writes, step.writes
        left[stacked] = replace(last, reads=tuple([part if value == updated else value for value in last.reads]))
    return replace(schedule, steps=tuple([step for step in left if step is not None]))


def _around(
    update: Kernel, steps: Sequence[Step], makers: dict[int, int], readers: dict[int, list[int]]
) -> tuple[int | None, int | None]:
    """Places of the kernel that cuts out what a kernel updates, and of the one that writes the result into a stack."""
    if len(update.updates) != 1 or len(update.writes) != 1 or not _ends_with(update, _UPDATED):
        return None, None
    (part,), (updated,) = update.updates, update.writes
    cut = makers.get(part)
    reading = [steps[place] for place in readers.get(updated, ())]
    stacks = [
        place
        for place in readers.get(updated, ())
        if isinstance(step := steps[place], Kernel) and _ends_with(step, _UPDATED) and updated not in step.updates
    ]
    multiplied = any(isinstance(step, Kernel) and step.kind is KernelKind.GEMM for step in reading)
    if cut is None or len(readers.get(part, ())) != 1 or len(stacks) != 1 or not multiplied:
        return None, None
    first = steps[cut]
    if not isinstance(first, Kernel) or first.updates or len(first.writes) != 1 or not _ends_with(first, _CUT):
        return None, None
    return cut, stacks[0]


def _ends_with(kernel: Kernel, name: str) -> bool:
    return kernel.kind is KernelKind.LOOP_FUSION and bool(kernel.ops) and short_name(kernel.ops[-1]) == name
