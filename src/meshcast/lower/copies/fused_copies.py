"""Copies of what a pass over elements has just written are further results of that pass: XLA:GPU's copy_fusion.

After copies have been inserted (updates in place, loops, what is returned twice), a copy of a loop fusion's result joins the
fusion if it computes its results from its operands element by element (copy_fusion.cc, OnlyElementwiseOpsReachableFromParams).
Most of them are zeros that several scatters add to. An op alone is no fusion yet and takes no copy in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.fused_kernels.fused_kernel import merged
from meshcast.lower.fused_kernels.kernel_flags import short_name
from meshcast.lower.fusion.cost_model import MAX_VALUES
from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks

COPY = ("copy",)  # the ops of a copy kernel
# Ask for their operands elsewhere than at the element that they compute.
_ELSEWHERE = frozenset(
    {
        "slice", "dynamic_slice", "dynamic_update_slice", "pad", "concatenate", "gather", "scatter", "transpose", "reverse",
        "reduce", "reduce_window", "copy",
    }
)  # fmt: skip


def with_fused_copies(schedule: Schedule) -> Schedule:
    """A block's schedule with such copies as results of the kernels before them, at every depth."""
    steps: list[Step | None] = []
    made: dict[int, int] = {}  # value -> place of the kernel that writes it and may take copies in
    for step in schedule.steps:
        if isinstance(step, Kernel):
            at = made.get(step.reads[0]) if step.ops == COPY and step.reads else None
            host = steps[at] if at is not None else None
            if at is not None and isinstance(host, Kernel) and len(host.reads) + len(host.writes) < MAX_VALUES:
                steps[at] = replace(merged(host, step), name=host.name, flags=host.flags)
                continue
            if _takes_copies(step):
                made.update(dict.fromkeys(step.writes, len(steps)))
        else:
            step = with_inner_blocks(step, with_fused_copies)
        steps.append(step)
    return replace(schedule, steps=tuple([step for step in steps if step is not None]))


def has_copies(steps: Sequence[Step]) -> bool:
    """Whether a block has copies, or others in it that may."""
    return any(not isinstance(step, Kernel) or step.ops == COPY for step in steps)


def _takes_copies(kernel: Kernel) -> bool:
    if kernel.kind is not KernelKind.LOOP_FUSION or kernel.updates or len(kernel.ops) < 2:
        return False
    if not kernel.reads:
        return True
    names = Counter(map(short_name, kernel.ops))
    # A constant may be spread over elements; an operand that is, is read elsewhere.
    return _ELSEWHERE.isdisjoint(names) and names["broadcast_in_dim"] <= names["constant"]
