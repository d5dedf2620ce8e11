"""Recordings of PyTorch's calls made by hand: no torch is needed to lower them."""

from __future__ import annotations

import math
from typing import Any

from meshcast.programs.pytorch.recording.calls import BYTES, AtenOp, Phase, Recording, View


def dense(storage: int, *shape: int, dtype: str = "float32") -> View:
    """A contiguous tensor that is all of its storage."""
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return View(storage, shape, strides, dtype)


def call(
    name: str, takes: tuple[View, ...], gives: tuple[View, ...], *, phase: Phase = "forward", frees: tuple[int, ...] = (),
    places: tuple[str, ...] = (), **told: Any,
) -> AtenOp:  # fmt: skip
    """A call of an operator."""
    return AtenOp(name=name, phase=phase, takes=takes, gives=gives, told=told, frees=frees, place=places)


def recording(*ops: AtenOp, held: dict[int, str], returned: tuple[View, ...]) -> Recording:
    """A step of these calls; storages are as large as the largest view of them."""
    sizes: dict[int, int] = {}
    for op in ops:
        for view in (*op.takes, *op.gives):
            sizes[view.storage] = max(sizes.get(view.storage, 0), view.elements * BYTES[view.dtype])
    return Recording(ops=ops, sizes=sizes, held=held, returned=returned)
