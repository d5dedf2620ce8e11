"""Tensors that a module makes on the host while its own lie on the device.

A tensor that is made without a device lies on the host, and so does what is computed of such tensors alone: no kernel is
launched for it, and reading its values waits for nothing. Copies of it to the device, and tensors that are made of Python's
numbers for the device, wait until the device has done all that it was given before (`memcpy_and_sync` in
`ATen/native/cuda/Copy.cu`). Every tensor of a recording is a fake one of the CPU, so that calls have to be asked which is meant.

Single numbers that are computed of Python's alone are known, so that a module may cut a tensor at one.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

_MADE = frozenset(
    {
        torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.logspace, torch.ones, torch.rand,
        torch.randint, torch.randn, torch.randperm, torch.tensor, torch.zeros,
    }
)  # fmt: skip
_OF_NUMBERS = frozenset({torch.tensor})
_DRAWN = frozenset({torch.rand, torch.randint, torch.randn, torch.randperm, torch.empty})
_MOVED = frozenset({torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type_as})


class HostTensors(TorchFunctionMode):  # type: ignore[misc]
    """Follows which tensors are the host's.

    Attributes:
        computing: Whether what is called now is computed on the host.
    """

    def __init__(self, waits: Callable[[], None]) -> None:
        """Calls `waits` where the host waits for the device."""
        super().__init__()
        self.computing = False
        self._waits = waits
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet()
        self._numbers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # single ones that are known

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor is the host's."""
        return tensor.untyped_storage() in self._storages

    def number(self, tensor: Any) -> Any:
        """The number that a tensor of the host holds, where it was made of Python's numbers alone; else None."""
        return self._numbers.get(tensor.untyped_storage())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MADE:
            told = kwargs.get("device")
            if told is None:
                return self._computed(func, args, kwargs)
            if func in _OF_NUMBERS:
                self._waits()
            return func(*args, **kwargs)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not tensors or not self._storages or not all(map(self.holds, tensors[:1] if func in _MOVED else tensors)):
            return func(*args, **kwargs)
        if func in _MOVED and _names_device(func, args, kwargs):
            result = func(*args, **kwargs)
            self._storages.discard(result.untyped_storage())
            self._waits()
            return result
        return self._computed(func, args, kwargs)

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self._on_host():
            result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._storages.add(leaf.untyped_storage())
        if isinstance(result, torch.Tensor) and result.numel() == 1 and func not in _DRAWN:
            self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Notes what a single number is, where those that it is computed of are known."""
        leaves, form = pytree.tree_flatten((args, kwargs))
        known = [
            self._numbers.get(leaf.untyped_storage()) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ]
        tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if any(known[i] is None for i in tensors) or (not tensors and func not in _OF_NUMBERS):
            return
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            dtypes = [leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
            real = [
                torch.tensor(value, dtype=dtype) if dtype else value for value, dtype in zip(known, dtypes, strict=True)
            ]
            real_args, real_kwargs = pytree.tree_unflatten(real, form)
            self._numbers[result.untyped_storage()] = func(*real_args, **real_kwargs).item()

    @contextmanager
    def _on_host(self) -> Iterator[None]:
        before, self.computing = self.computing, True
        try:
            yield
        finally:
            self.computing = before


def _names_device(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a tensor is moved to a device, and not only cast."""
    if func is not torch.Tensor.to:
        return True
    named = (*args[1:], kwargs.get("device"), kwargs.get("other"))
    return any(isinstance(each, (str, torch.device, torch.Tensor)) for each in named)
