"""Costs of the most frequent ops, each worked out once for all that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshcast.workload.graph import Cost, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import COSTED_ALSO_BY, COSTED_BY, COSTED_WHOLE_BY


class KnownCosts:
    """Costs of ops that follow from their types and a few attributes alone (`COSTED_BY`).

    Args:
        tensors: The types of all values, which may grow.
        sharded: Whether the program is shared out over devices; where it is not, `COSTED_WHOLE_BY` has more such ops.
    """

    def __init__(self, tensors: Sequence[Tensor], *, sharded: bool) -> None:
        self._tensors = tensors
        self._asked = dict(COSTED_BY) if sharded else {**COSTED_BY, **COSTED_WHOLE_BY}
        self._found: dict[tuple[object, ...], Cost] = {}
        # Of ops of one result that nothing but types says the cost of, by name: costs by the identities of operands' types and
        # the result's.
        self.by_types: dict[str, dict[tuple[int, ...], Cost]] = {
            name: {} for name, asked in self._asked.items() if not asked and name not in COSTED_ALSO_BY
        }

    def of(
        self, name: str, operation: Any, rule: Rule, operands: tuple[int, ...], results: tuple[int, ...]
    ) -> Cost | None:
        """The cost of an op; None where it depends on more than its types and a few attributes.

        Types go by identity, which `tensors` keeps: the reader makes one object of equal ones.
        """
        asked = self._asked.get(name)
        if asked is None:
            return None
        tensors = self._tensors
        key: tuple[object, ...] = (name, len(operands), *map(id, map(tensors.__getitem__, operands + results)))
        if asked:
            key += tuple(map(operation.attributes.get, asked))
        also = COSTED_ALSO_BY.get(name)
        if also is not None:
            said = also(operation)
            if said is None:
                return None
            key += (said,)
        found = self._found.get(key)
        if found is None:
            takes, gives = (tuple([tensors[value] for value in values]) for values in (operands, results))
            found = self._found[key] = rule(OpReading(name=name, operands=takes, results=gives, op=operation))
        return found
