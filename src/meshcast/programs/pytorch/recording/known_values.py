"""Values of tensors that a module makes of numbers alone, while everything else is recorded without values.

Positions (`arange`), masks of ones and masks that numpy draws (`mask_time_indices` of wav2vec 2.0) are the same whatever the
inputs are, and models ask them: how large an image under a mask is (ViLT), which positions attend to all (Longformer), how far
positions go (Reformer). So small tensors that are computed of known ones alone are computed for real beside the recording.

Where a value is not known, a mask is taken to hold everywhere, which is what `if mask.all()` is answered with, tokens to be no
padding, and choices of experts (`one_hot`) to be spread evenly.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

_MOST = 1 << 20  # elements of a tensor whose values are kept
aten = torch.ops.aten
_LIFTED = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default})
_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
_EMPTY = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})


class NumbersAlone:
    """By fake tensor, what it holds; views and writes are followed, since the same calls are made with the values."""

    def __init__(self) -> None:
        self._values: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, tensor: Any) -> torch.Tensor | None:
        """A tensor's values, None where they are not known; TorchScript makes tensors that no mode sees."""
        if isinstance(tensor, FakeTensor):
            return self._values.get(tensor)
        return tensor if tensor.numel() <= _MOST and tensor.device.type == "cpu" else None

    def number(self, tensor: Any) -> Any:
        """The number that a tensor of one element holds, None where it is not known."""
        value = self.of(tensor)
        if value is None:
            return None
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return value.item()

    def found(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What a call gives with values; None where one of its operands is not known."""
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not leaves or not all(self.of(leaf) is not None for leaf in leaves):
            return None
        return self._called(func, args, kwargs)

    def put(self, tensor: Any, value: torch.Tensor) -> None:
        """Notes what a tensor holds."""
        self._values[tensor] = value

    def put_places(self, tensor: Any, shape: Any) -> None:
        """Notes that a tensor holds all places of a shape, if they are not too many."""
        if tensor.numel() <= _MOST:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                self.put(tensor, torch.ones(shape, dtype=torch.bool).nonzero())

    def note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Does with values what was done without, where all that it takes is known; else forgets what was written over."""
        name = func.overloadpacket.__name__
        if func in _LIFTED and not isinstance(args[0], FakeTensor):
            if args[0].numel() <= _MOST:
                with _disable_current_modes(), torch._C.DisableTorchFunction():
                    self.put(result, args[0].detach().clone())
            return
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if name in ("ne", "eq") and self._compared(func, args, kwargs, result):
            return
        if name in ("isnan", "isinf") and self.of(leaves[0]) is None:  # data is finite
            self._forget(func, args, kwargs)
            self._put_everywhere(result, holds=False)
            return
        given = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        known = name in _LIKE or all(self.of(leaf) is not None for leaf in leaves)  # of numbers alone, too
        if not known or not given or max(each.numel() for each in given) > _MOST or _is_drawn(func):
            self._forget(func, args, kwargs)
            return
        try:
            self._follow(func, args, kwargs, given)
        except Exception:  # a kernel that this build of torch has not: the value is not known
            self._forget(func, args, kwargs)

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        def real(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return self.of(leaf) if isinstance(leaf, FakeTensor) else leaf
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            args, kwargs = pytree.tree_map(real, (args, kwargs))
            return func(*args, **kwargs)

    def _follow(self, func: Any, args: Any, kwargs: Any, given: list[Any]) -> None:
        if func.overloadpacket.__name__ in _LIKE:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                like = torch.empty((), dtype=args[0].dtype).expand(args[0].shape)  # of any size: one element in memory
            args = (like, *args[1:])
            kwargs = {**kwargs, "dtype": given[0].dtype}
        found = self._called(func, args, kwargs)
        values = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        for fake, value in zip(given, values, strict=True):
            self.put(fake, value)

    def _compared(self, func: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Whether a comparison of unknown numbers has a known answer: a tensor is equal to itself, no token is padding."""
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if all(self.of(leaf) is not None for leaf in leaves):
            return False
        differs = func.overloadpacket.__name__ == "ne"
        if len(leaves) > 1 and leaves[0] is leaves[1]:  # no NaN
            self._forget(func, args, kwargs)
            self._put_everywhere(result, holds=not differs)
            return True
        if differs and result.numel() <= _MOST:
            self._forget(func, args, kwargs)
            self._put_everywhere(result, holds=True)
            return True
        return not differs and self._one_hot(leaves, result)

    def _one_hot(self, leaves: list[Any], result: Any) -> bool:
        """Whether unknown numbers are compared with all of 0 to n - 1, as `one_hot` does: they are taken to be spread evenly."""
        if len(leaves) != 2 or result.numel() > _MOST or not leaves[0].dim() or leaves[0].shape[-1] != 1:
            return False
        choices = self.of(leaves[1])
        if self.of(leaves[0]) is not None or choices is None or choices.dim() != 1 or result.dim() < 2:
            return False
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            count = choices.shape[0]
            if not count or not torch.equal(choices, torch.arange(count, dtype=choices.dtype)):
                return False
            spread = torch.arange(result.numel() // count) % count
            self.put(result, (spread.reshape(*result.shape[:-1], 1) == choices).reshape(result.shape))
        return True

    def _put_everywhere(self, mask: Any, *, holds: bool) -> None:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            value = torch.full((), holds, dtype=mask.dtype).expand(mask.shape)
            self.put(mask, value.clone() if mask.numel() <= _MOST else value)  # large ones have one element in memory

    def _forget(self, func: Any, args: Any, kwargs: Any) -> None:
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                for leaf in pytree.tree_leaves(value):
                    if isinstance(leaf, torch.Tensor) and (held := self._values.pop(leaf, None)) is not None:
                        self._forget_views(held)

    def _forget_views(self, held: torch.Tensor) -> None:
        """What shares memory with a tensor that was written over."""
        place = held.untyped_storage().data_ptr()
        for other in [each for each, value in self._values.items() if value.untyped_storage().data_ptr() == place]:
            del self._values[other]


def _is_drawn(func: Any) -> bool:
    """Whether a call draws random numbers, which would move the caller's generator, or gives memory as it was."""
    return torch.Tag.nondeterministic_seeded in func.tags or func.overloadpacket.__name__ in _EMPTY
