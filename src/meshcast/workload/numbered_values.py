"""Values of a program, numbered in order of definition, each with its type as one device holds it."""

from __future__ import annotations

from typing import Any

from meshcast.programs import sdy
from meshcast.workload.graph import Tensor
from meshcast.workload.local_types import LocalTypes


class NumberedValues:
    """What a walk over a program knows of its values.

    Args:
        types: What devices hold of types.
        sharded: Whether ops say how their results are sharded.
    """

    def __init__(self, types: LocalTypes, *, sharded: bool) -> None:
        self._types = types
        self._sharded = sharded
        self._tensors: list[Tensor] = []
        self._ids: dict[Any, int] = {}
        self._shardings: dict[int, Any] = {}

    def _define(self, value: Any, sharding: Any | None) -> int:
        tensors = self._tensors
        self._ids[value] = index = len(tensors)
        tensors.append(self._types.tensor(value.type, sharding))
        if sharding is not None:
            self._shardings[index] = sharding
        return index

    def _define_like(self, value: Any, model: int) -> int:
        """A new value held exactly as another one is."""
        index = len(self._tensors)
        self._tensors.append(self._tensors[model])
        self._ids[value] = index
        if model in self._shardings:
            self._shardings[index] = self._shardings[model]
        return index

    def _results(self, operation: Any) -> tuple[int, ...]:
        results = operation.results
        if self._sharded and "sdy.sharding" in (attributes := operation.attributes):
            shardings = sdy.TensorShardingPerValueAttr(attributes["sdy.sharding"]).shardings
            return tuple(self._define(r, s) for r, s in zip(results, shardings, strict=True))
        if len(results) == 1:
            return (self._define(results[0], None),)
        return tuple([self._define(result, None) for result in results])

    def _operands(self, operation: Any) -> tuple[int, ...]:
        return tuple(map(self._ids.__getitem__, operation.operands))

    def _tensors_of(self, ids: tuple[int, ...]) -> tuple[Tensor, ...]:
        return tuple(map(self._tensors.__getitem__, ids))
