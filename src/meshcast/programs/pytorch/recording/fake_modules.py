"""A module whose tensors are fake ones while a step of it is recorded.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from meshcast.programs.stand_ins import standing_in

_SMALL = 1 << 12  # elements of a buffer whose values may decide what runs (EnCodec's paddings)


@contextmanager
def on_fakes(module: Any, fake: Callable[[Any], Any]) -> Iterator[list[tuple[Any, torch.Tensor]]]:
    """While a step is recorded, a module's tensors are fake ones; shared ones stay shared.

    Gives the small buffers that have values, which those of a module on the meta device have not, with the fakes in their
    places. A module that is moved to the dtype that it has stays as it is (`swap_tensors` does not take fakes), and a fake
    number is written as the number that is known of it (Switch Transformers name their experts so).
    """
    made: dict[int, Any] = {}

    def stand_in(tensor: Any) -> Any:
        if id(tensor) not in made:
            new = fake(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
            made[id(tensor)] = new
        return made[id(tensor)]

    kept = []
    real: list[tuple[Any, torch.Tensor]] = []
    try:
        for each in module.modules():
            real += [(stand_in(value), _copied(value)) for value in each._buffers.values() if _is_small(value)]
            for held in (each._parameters, each._buffers):
                kept.append((held, dict(held)))
                held.update({name: stand_in(value) for name, value in held.items() if value is not None})
        with (
            standing_in(torch.nn.Module, to=_unless_it_is_so(torch.nn.Module.to)),
            standing_in(FakeTensor, __format__=_formatted),
        ):
            yield real
    finally:
        for held, before in kept:
            held.clear()
            held.update(before)


def _is_small(value: Any) -> bool:
    return (
        value is not None
        and value.device.type == "cpu"
        and value.numel() <= _SMALL
        and not isinstance(value, FakeTensor)
    )


def _copied(value: torch.Tensor) -> torch.Tensor:
    with _disable_current_modes():
        return value.detach().clone()


def _unless_it_is_so(move: Callable[..., Any]) -> Callable[..., Any]:
    """`Module.to` that does nothing where all floating point tensors have the dtype already."""

    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        _, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        tensors = (each for each in chain(self.parameters(), self.buffers()) if each.is_floating_point())
        return self if dtype is None or all(each.dtype == dtype for each in tensors) else move(self, *args, **kwargs)

    return moved


def _formatted(self: Any, spec: str) -> str:
    return format(self.item() if self.dim() == 0 else repr(self), spec)
