"""Values in 8 and 4 bits as Transformer Engine makes them: by kernels of their own, that read what layers have written.

Our programs round values where they are made: XLA fuses the cast, and the search for the largest value, into the kernel before
it. Transformer Engine has kernels for it, whose threads load 16 bytes each, so that the memory's rate bounds them and not the
rate of blocks (transformer_engine/common at 22 August 2026: `amax_kernel` of recipe/current_scaling.cu,
`cast_transpose_general_kernel` and `cast_transpose_optimized_kernel` of transpose/cast_transpose.cu, `quantize_mxfp8_kernel` of
cast/mxfp8, and hadamard_transform):

- one scale a tensor: a pass for the largest value, and one that reads n numbers of w bytes and writes them in both orders, where
  products want both: `w n` and `(w + 2 b) n` bytes of b bytes a number (current scaling);
- a scale for 32 numbers (MXFP8): no largest value of all, the second pass alone;
- NVFP4: the second order is of values turned by a random Hadamard matrix, so that they are read once more.

What is fused here is taken apart: the kernel before writes its values in 16 bits. A norm finds the largest of what it writes
itself (`FUSED_NORM_AMAX_FP8` of pytorch/csrc/extensions/normalization.cpp), and so it stays here. Its activations would too
(`FUSED_ACTIVATION_AMAX_FP8`, and MXFP8 whole), but Megatron Core's are its own (`bias_swiglu_impl`), which write 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import element_bytes

_WIDE = "bf16"
_MADE = (KernelKind.LOOP_FUSION, KernelKind.REDUCTION)
# What a cast is made of: a place in a stack, a scale, bounds.
_CASTING = frozenset(
    f"stablehlo.{name}"
    for name in (
        "constant", "convert", "broadcast_in_dim", "divide", "multiply", "maximum", "minimum", "clamp", "dynamic_slice",
        "slice", "reshape", "transpose", "reduce_precision",
    )
)  # fmt: skip
_ABSOLUTE, _REDUCE, _CONVERT = "stablehlo.abs", "stablehlo.reduce", "stablehlo.convert"
_FEW = 256  # of an array's bytes so many times fewer are numbers about it
_SECOND_ORDER = "cast:transpose"  # of `lower.products.narrow_operands`


def with_engine_casts(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with casts and searches for largest values as kernels of their own.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which those in between are added to.
    """
    return replace(schedule, steps=tuple(made for step in schedule.steps for made in _apart(step, values)))


def _apart(step: Step, values: ValueTypes) -> Iterator[Step]:
    if not isinstance(step, Kernel):
        yield with_inner_blocks(step, lambda body: with_engine_casts(body, values))
    elif step.name == _SECOND_ORDER:
        yield _beside_the_first(step, values)
    elif step.kind not in _MADE:
        yield step
    elif narrow := [value for value in step.writes if _is_narrow(values.tensors[value].dtype)]:
        yield from _cast(step, narrow, values)
    elif (found := _largest_beside(step, values)) is not None:
        yield from found
    else:
        yield step


def _is_narrow(dtype: str) -> bool:
    return dtype.startswith(("f8", "f4"))


def _beside_the_first(copy: Kernel, values: ValueTypes) -> Kernel:
    """A second order that is written by the kernel that writes the first, or, of 4 bits, read and turned by another."""
    kind = values.tensors[copy.reads[0]]
    read = int(kind.elements * element_bytes(_WIDE)) if kind.dtype.startswith("f4") else 0
    return replace(copy, read_bytes=read, operand_bytes=(read,))


def _cast(kernel: Kernel, narrow: list[int], values: ValueTypes) -> Iterator[Kernel]:
    """A kernel that writes narrow values: a cast at the memory's rate, behind what makes them where it is anything else."""
    large = [size for size in kernel.operand_bytes if size > SCALAR_BYTES]
    if (
        kernel.kind is KernelKind.LOOP_FUSION
        and len(large) == 1 == len(kernel.writes)
        and _CASTING.issuperset(kernel.ops)
    ):
        yield _streamed(kernel)
        return
    wide = {value: values.new(values.tensors[value].shape, _WIDE) for value in narrow}
    more = sum(values.tensors[other].bytes - values.tensors[value].bytes for value, other in wide.items())
    yield replace(
        kernel,
        writes=tuple(wide.get(value, value) for value in kernel.writes),
        written_bytes=kernel.written_bytes + more,
    )
    for value, other in wide.items():
        read, kind = values.tensors[other].bytes, values.tensors[value]
        yield _streamed(
            Kernel(
                name="cast",
                kind=KernelKind.LOOP_FUSION,
                dtype=kind.dtype,
                read_bytes=read,
                written_bytes=kind.bytes,
                reads=(other,),
                operand_bytes=(read,),
                writes=(value,),
                elements=kind.elements,
                ops=(_CONVERT,),
                location=kernel.location,
            )
        )


def _streamed(kernel: Kernel) -> Kernel:
    return replace(kernel, flags=kernel.flags | {"copy"})


def _largest_beside(kernel: Kernel, values: ValueTypes) -> tuple[Kernel, Kernel] | None:
    """What writes an array and finds its largest value, as two kernels; None where it does not, or sums up besides."""
    if kernel.kind is not KernelKind.REDUCTION or kernel.ops.count(_REDUCE) != 1 or _ABSOLUTE not in kernel.ops:
        return None
    large = [value for value in kernel.writes if values.tensors[value].bytes * _FEW > kernel.written_bytes]
    few = tuple(value for value in kernel.writes if value not in large)
    if not large or not few or any(op == _REDUCE for op in kernel.ops[: kernel.ops.index(_ABSOLUTE)]):
        return None
    size = sum(values.tensors[value].bytes for value in large)
    making = replace(
        kernel,
        kind=KernelKind.LOOP_FUSION,
        geometry=None,
        writes=tuple(large),
        written_bytes=size,
        sources=(),
        elements=values.tensors[large[0]].elements,
        shape=values.tensors[large[0]].shape,
        ops=tuple(op for op in kernel.ops if op not in (_ABSOLUTE, _REDUCE)),
    )
    finding = replace(
        kernel,
        name="largest",
        reads=tuple(large),
        operand_bytes=tuple(values.tensors[value].bytes for value in large),
        read_bytes=size,
        writes=few,
        written_bytes=kernel.written_bytes - size,
        updates=(),
        rearranged=(),
        sources=(),
        vector_flops=2.0 * sum(values.tensors[value].elements for value in large),
        transcendentals=0.0,
        ops=(_ABSOLUTE, _REDUCE),
    )
    return making, finding
