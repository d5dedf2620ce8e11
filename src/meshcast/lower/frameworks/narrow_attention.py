"""Fused attention in 8 bits: queries, keys, values and probabilities are rounded, products run at the rate of fp8.

Transformer Engine does so where a recipe asks for it (`fp8_dpa`, "fp8 dot product attention"; `fp8_dot_product_attention` of
Megatron's configurations), by cuDNN's kernels, whose results have two bytes again. What rounding moves is the estimator's
(`estimate/gpu/attention.py`). Devices without products of 8 bits have no such kernel: there the type is widened again.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.workload import Attention

NARROW = "f8E4M3FN"
_WIDE = ("bf16", "f16")


def with_narrow_attention(schedule: Schedule) -> Schedule:
    """The schedule, inner blocks too, with its fused attention in 8 bits."""
    return replace(schedule, steps=tuple(map(_narrow, schedule.steps)))


def _narrow(step: Step) -> Step:
    if not isinstance(step, Kernel):
        return with_inner_blocks(step, with_narrow_attention)
    shape = step.geometry
    if not isinstance(shape, Attention) or shape.dtype not in _WIDE:
        return step
    return replace(step, dtype=NARROW, geometry=replace(shape, dtype=NARROW))
