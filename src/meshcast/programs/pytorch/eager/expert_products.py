"""`grouped_mm`, the products of experts, on CUDA: one kernel in bf16, a product for each group in other dtypes.

In bf16 on Hopper it is CUTLASS's grouped GEMM behind a small kernel that writes down where groups begin
(`GroupMM.cu`, `prepare_grouped_gemm_data`). In other dtypes PyTorch 2.11 copies the groups' ends to the host, which waits for
the device, and multiplies one group after the other (`_grouped_mm_fallback` in `GroupedMMUtils.h`); `transformers` does the same
in an operator of its own where it is compiled (`grouped_mm_fallback` in `integrations/moe.py`).

How many rows every expert gets hangs on the router: they are taken to be shared out evenly. Free of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from meshcast.programs.pytorch.launches.launch import Launch, pointwise
from meshcast.programs.pytorch.recording.calls import AtenOp, View


def shared_out(rows: int, groups: int) -> list[int]:
    """Where each group ends."""
    return [rows * (i + 1) // groups for i in range(groups)]


def grouped_sizes(left: View, right: View, groups: int) -> dict[str, int]:
    """Products of one group, by which dimension the groups share out."""
    if len(left.shape) == 2 and len(right.shape) == 3:
        return {"m": max(1, left.shape[0] // groups), "k": left.shape[1], "n": right.shape[2]}
    if len(left.shape) == 3 and len(right.shape) == 2:
        return {"m": left.shape[1], "k": left.shape[2], "n": max(1, right.shape[1] // groups)}
    if len(left.shape) == 2:
        return {"m": left.shape[0], "k": max(1, left.shape[1] // groups), "n": right.shape[1]}
    return {"m": left.shape[1], "k": left.shape[2], "n": right.shape[2]}


def grouped_product(op: AtenOp) -> Iterator[Launch]:
    """The kernel that says where groups begin, and the products."""
    left, right = op.takes[0], op.takes[1]
    ends = op.tensor("offs") or (op.takes[2] if len(op.takes) > 2 else None)
    groups = ends.elements if ends is not None else left.shape[0]
    if ends is not None:
        yield pointwise("prepare_grouped_gemm_data", (ends,), (ends,), ("add",))
    told: dict[str, Any] = {
        "batch": groups,
        **grouped_sizes(left, right, groups),
        "left_k_minor": left.strides[-1] == 1,
        "right_k_minor": right.strides[-1] != 1,
        "plain": False,
    }
    yield Launch(name=op.name, form="product", takes=(left, right), gives=op.gives[:1], told=told)


def one_by_one(
    left: Any, right: Any, ends: list[int], *, empty: Callable[..., Any], multiply: Callable[..., Any]
) -> Any:
    """The products of groups as PyTorch's fallback calls them.

    Args:
        left: As `grouped_mm` takes it.
        right: Likewise.
        ends: Where each group ends.
        empty: Makes a tensor of a shape like another.
        multiply: Multiplies two matrices into a third.
    """
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if left.dim() == 2 and right.dim() == 3:
        out = empty(left, (left.shape[0], right.shape[2]))
        for i, (begin, end) in enumerate(spans):
            multiply(left[begin:end], right[i], out[begin:end])
    elif left.dim() == 3 and right.dim() == 2:
        out = empty(left, (left.shape[1], right.shape[1]))
        for i, (begin, end) in enumerate(spans):
            multiply(left[i], right[:, begin:end], out[:, begin:end])
    else:
        out = empty(left, (len(ends), left.shape[0], right.shape[1]))
        for i, (begin, end) in enumerate(spans):
            multiply(left[:, begin:end], right[begin:end], out[i])
    return out
