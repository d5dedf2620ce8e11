"""What PyTorch runs op by op: a recording of ATen calls with the tensors between them, free of torch itself.

A recording is the stream of operators below autograd: forward, backward and optimizer as the dispatcher sees them. Tensors
are views of storages; a storage is taken from the caching allocator once and given back once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# A recording numbers its storages from 0. Those that it does not know, copies and workspaces that a call makes and gives back,
# are numbered from here on, all of them (`storage_of_a_call`), so that a number tells which of both it is.
OF_A_CALL = 1 << 28
_DIGEST = 7  # bytes: two of a million buffers have one number with a chance of 1e-5
Phase = Literal["forward", "backward", "optimizer"]

BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: a strided view of a storage, at an offset in elements."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of its elements, each once however often it is repeated by a stride of 0."""
        distinct = math.prod(n for n, step in zip(self.shape, self.strides, strict=True) if step or n == 0)
        return distinct * BYTES[self.dtype]

    @property
    def dense_order(self) -> tuple[int, ...] | None:
        """Dimensions from the outermost to the innermost in memory; None where elements repeat or lie apart."""
        sized = [d for d, n in enumerate(self.shape) if n != 1]
        order = sorted(sized, key=lambda d: -self.strides[d])
        step = 1
        for d in reversed(order):
            if self.strides[d] != step:
                return None
            step *= self.shape[d]
        return tuple(order)

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie one after the other in the order of its dimensions."""
        order = self.dense_order
        return order is not None and list(order) == sorted(order)


def storage_of_a_call(what: str, view: View, shape: tuple[int, ...]) -> int:
    """The number of a buffer that a call makes of a view: another one for other views, shapes and uses, the same in every run."""
    key = repr((what, view.storage, view.offset, view.shape, view.strides, view.dtype, shape)).encode()
    return OF_A_CALL + int.from_bytes(hashlib.blake2b(key, digest_size=_DIGEST).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class AtenOp:
    """One call. `gives` are new tensors, or those that it writes into; `shares`: whether it only makes another view."""

    name: str  # as in native_functions.yaml, without its overload: `add`, `native_layer_norm_backward`
    phase: Phase
    takes: tuple[View, ...]
    gives: tuple[View, ...]
    told: Mapping[str, Any] = field(default_factory=dict)  # arguments that are no tensors, by name
    shares: bool = False
    frees: tuple[int, ...] = ()  # storages that were given back before the call
    place: tuple[str, ...] = ()  # arguments that are tensors, by name, as `takes`
    modules: int = 0  # that were called since the call before
    cast: bool = False  # inside a region of autocast
    waits: bool = False  # the host reads a value, and waits for the device

    def tensor(self, name: str) -> View | None:
        """The tensor that it takes under a name."""
        return self.takes[self.place.index(name)] if name in self.place else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One step."""

    ops: tuple[AtenOp, ...]
    sizes: Mapping[int, int]  # bytes of every storage
    held: Mapping[int, str]  # storages that are there before the step, and what they are: `parameter`, `state`, `input`
    returned: tuple[View, ...]
    label: str = "step"
    passed_on: tuple[
        View, ...
    ] = ()  # of compiled steps: results of modules inside which a graph ends, where they have gradients

    def phase(self, phase: Phase) -> Iterator[AtenOp]:
        """The calls of one phase."""
        return (op for op in self.ops if op.phase == phase)
