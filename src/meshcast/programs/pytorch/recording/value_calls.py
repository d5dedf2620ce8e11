"""Calls whose kernels hang on values, put in terms of calls that do not, as PyTorch does it on CUDA.

- masks as indices become the places where they hold (`expandTensors` in `IndexingUtils.h`), but for a single number that is
  written, which is filled in under the mask (`canDispatchToMaskedFill`);
- `grouped_mm` in other dtypes than bf16 becomes a product for each group (`eager.expert_products`).

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from meshcast.programs.pytorch.eager.expert_products import one_by_one, shared_out
from meshcast.programs.pytorch.recording.known_values import NumbersAlone

aten = torch.ops.aten
_READ = frozenset({aten.index.Tensor})
_WRITTEN = frozenset({aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default})
_MASKS = (torch.bool, torch.uint8)
Call = Callable[[], Any]


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in _MASKS


def _places(indices: Any) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        found += list(aten.nonzero(index).unbind(1)) if _is_mask(index) else [index]
    return found


def in_other_terms(func: Any, args: Any, kwargs: Any, values: NumbersAlone, waits: Callable[[], None]) -> Call | None:
    """What is called instead of a call; None where it is called as it is."""
    if func in _READ or func in _WRITTEN:
        masks = [index for index in args[1] if _is_mask(index)]
        if not masks:
            return None
        added = bool(args[3] if len(args) > 3 else kwargs.get("accumulate"))
        if func in _WRITTEN and len(args[1]) == 1 and not args[2].dim() and not added:
            fill = aten.masked_fill if func is aten.index_put.default else aten.masked_fill_
            behind = (1,) * (args[0].dim() - masks[0].dim())
            return lambda: fill(args[0], masks[0].reshape(*masks[0].shape, *behind), args[2])
        return lambda: func(args[0], _places(args[1]), *args[2:], **kwargs)
    name = func.overloadpacket.__name__
    if name in ("_grouped_mm", "grouped_mm_fallback") and args[0].dtype != torch.bfloat16:
        ends = args[2] if len(args) > 2 else kwargs.get("offs")
        return None if ends is None else lambda: _group_by_group(args[0], args[1], ends, values, waits)
    return None


def _group_by_group(left: Any, right: Any, ends: Any, values: NumbersAlone, waits: Callable[[], None]) -> Any:
    rows = (
        left.shape[0] if left.dim() == 2 and right.dim() == 3 else right.shape[-1] if left.dim() == 3 else left.shape[1]
    )
    known = shared_out(rows, ends.shape[0])
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        values.put(ends, torch.tensor(known, dtype=ends.dtype))
    waits()
    return one_by_one(
        left, right, known,
        empty=lambda like, shape: aten.empty(shape, dtype=like.dtype, device=like.device),
        multiply=lambda a, b, out: aten.mm.out(a, b, out=out),
    )  # fmt: skip


def shaped_by_values(func: Any, args: Any, kwargs: Any, values: NumbersAlone) -> Any:
    """What a call gives whose shape hangs on values: as they are known; places of a mask that is not, everywhere; else None."""
    found = values.found(func, args, kwargs)
    if found is not None:

        def empty(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            made = aten.empty(list(value.shape), dtype=value.dtype, device=args[0].device)
            values.put(made, value)
            return made

        return pytree.tree_map(empty, found)
    if func is aten.nonzero.default:
        made = aten.empty([args[0].numel(), args[0].dim()], dtype=torch.int64, device=args[0].device)
        values.put_places(made, args[0].shape)
        return made
    return None
