"""Gradients added up in fp32 by kernels of their own, behind sums in half precision: DeepSpeed's bf16 optimizer.

Our passes add a gradient of half precision to the fp32 sum in one kernel, and Megatron's fused accumulation in none. PyTorch's
autograd adds it to the parameter's `grad`, of the parameter's type; DeepSpeed's `BF16_Optimizer` clears that before every
backward pass and adds it to the fp32 sum behind it (deepspeed/runtime/bf16_optimizer.py: `clear_lp_grads`, `update_hp_grads` with
`hp_grad.data.add_(lp.grad.data.to(hp_grad.dtype))`; runtime/pipe/engine.py calls both for every microbatch, from #1801 on). Of n
numbers of w bytes that are

    clear w + add 3 w + widen (w + 4) + add 12 bytes each, (5 w + 16) n in all, where one kernel moves (w + 8) n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import element_bytes

_ADD, _CONVERT = "stablehlo.add", "stablehlo.convert"


def with_wide_sums(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with each sum of a gradient and a wider array made in four kernels.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which those in between are added to.
    """
    return replace(schedule, steps=tuple(made for step in schedule.steps for made in _apart(step, values)))


def _apart(step: Step, values: ValueTypes) -> Iterator[Step]:
    gradient = _widened(step, values)
    if gradient is None:
        yield with_inner_blocks(step, lambda body: with_wide_sums(body, values))
        return
    assert isinstance(step, Kernel)
    (total,) = (value for value in step.reads if values.tensors[value] == values.tensors[step.writes[0]])
    wide = values.tensors[step.writes[0]]
    kind = values.tensors[gradient]
    # Of gradients that are added layer by layer one layer's is alive (`lower.frameworks.layerwise_weights`), and all are read.
    narrow = step.operand_bytes[step.reads.index(gradient)]
    held, added = (values.new(kind.shape, kind.dtype) for _ in range(2))
    widened = values.new((1, *wide.shape[1:]) if kind.elements < wide.elements else wide.shape, wide.dtype)
    yield _pointwise(step, {}, held, narrow, kind.dtype, "clear")
    yield _pointwise(step, {gradient: narrow, held: narrow}, added, narrow, kind.dtype, _ADD)
    yield _pointwise(step, {added: narrow}, widened, wide.bytes, wide.dtype, _CONVERT)
    yield _pointwise(step, {widened: wide.bytes, total: wide.bytes}, step.writes[0], wide.bytes, wide.dtype, _ADD)


def _widened(step: Step, values: ValueTypes) -> int | None:
    """The narrow array that a kernel adds to a wide one of as many numbers, where it does nothing else; None elsewhere."""
    if not isinstance(step, Kernel) or step.kind is not KernelKind.LOOP_FUSION or len(step.writes) != 1:
        return None
    if not {_ADD, _CONVERT} <= set(step.ops):
        return None
    wide = values.tensors[step.writes[0]]
    large = {value: size for value, size in zip(step.reads, step.operand_bytes, strict=True) if size > SCALAR_BYTES}
    sums = [value for value in large if values.tensors[value] == wide]
    narrow = [
        value
        for value, size in large.items()
        if size < wide.bytes and size == wide.elements * element_bytes(values.tensors[value].dtype)
    ]
    return narrow[0] if len(large) == 2 and len(narrow) == len(sums) == 1 else None


def _pointwise(like: Kernel, reads: Mapping[int, int], writes: int, written: int, dtype: str, op: str) -> Kernel:
    """A kernel that reads whole arrays, given with their bytes, and writes one of so many."""
    return Kernel(
        name=op.removeprefix("stablehlo."),
        kind=KernelKind.LOOP_FUSION,
        dtype=dtype,
        read_bytes=sum(reads.values()),
        written_bytes=written,
        reads=tuple(reads),
        operand_bytes=tuple(reads.values()),
        writes=(writes,),
        elements=like.elements,
        vector_flops=like.elements * (op == _ADD),
        ops=(op,),
        location=like.location,
    )
