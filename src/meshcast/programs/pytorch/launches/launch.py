"""A launch: one kernel with the tensors that it reads and writes, and the arithmetic in it; free of torch.

Both of PyTorch's ways end here: `eager.kernels` gives launches for every ATen call, `inductor.kernels` for fused groups of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from meshcast.programs.pytorch.recording.calls import View

Form = Literal["pointwise", "reduce", "product", "convolution", "attention", "gather", "scatter", "window", "sort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """One part of a kernel's arithmetic: ops on every element, or a reduction over some dimensions of what is there."""

    ops: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()  # that the ops run over; empty: the result's
    reduced: tuple[int, ...] = ()  # dimensions of `shape` that are then summed over


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel.

    Attributes:
        name: Whose it is, for people: the operator and the kernel.
        form: What decides its time.
        takes: What it reads.
        gives: What it writes.
        stages: Arithmetic, in order, of kernels that are no library's.
        told: Sizes of a product, a convolution or an attention.
        share: Of the rate that memory gives to well-shaped code, what this kernel's shape of code gets.
        extra: Seconds beside that, at an H200's clock: rows that each want a block, sums whose parts wait for each other.
        block_cycles: Cycles of the device's clock that its slowest block takes, whatever memory gives.
        wait_cycles: Cycles that it takes beside either.
        turned: Whether it reads in another order than it writes.
    """

    name: str
    form: Form
    takes: tuple[View, ...]
    gives: tuple[View, ...]
    stages: tuple[Arithmetic, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    extra: float = 0.0
    block_cycles: float = 0.0
    wait_cycles: float = 0.0
    turned: bool = False
    op: int = -1  # the call of the recording that it is for
    renews: frozenset[int] = frozenset()  # storages that a result may be written over, element by element


def pointwise(name: str, takes: Sequence[View], gives: Sequence[View], ops: tuple[str, ...]) -> Launch:
    """An elementwise kernel; `turned` where an operand of the result's shape has another dimension innermost."""
    result = gives[0]
    inner = {_innermost(view) for view in (*takes, result) if view.shape == result.shape and view.elements > 1}
    return Launch(
        name=name,
        form="pointwise",
        takes=tuple(takes),
        gives=tuple(gives),
        stages=(Arithmetic(ops=ops),),
        turned=len(inner) > 1,
    )


def _innermost(view: View) -> int:
    sized = [d for d, n in enumerate(view.shape) if n > 1 and view.strides[d]]
    return min(sized, key=lambda d: (view.strides[d], -d), default=-1)
