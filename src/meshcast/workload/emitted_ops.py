"""Ops of a workload as a walk over a program finds them, one after the other."""

from __future__ import annotations

from typing import Any

from meshcast.base import copier
from meshcast.programs import Program
from meshcast.workload.calls import Calls
from meshcast.workload.equal_ops import EqualOps
from meshcast.workload.graph import Block, Cost, Op, OpKind, Tensor
from meshcast.workload.known_costs import KnownCosts
from meshcast.workload.local_types import LocalTypes
from meshcast.workload.made_launches import CompiledLaunch
from meshcast.workload.numbered_values import NumberedValues
from meshcast.workload.rule import OpReading
from meshcast.workload.rules import RULES

_BLANK = Op(name="", cost=Cost(kind=OpKind.VIEW), operands=(), results=())
_typed_op = copier(Op, "name", "cost", "operands", "results", "location", "recomputed", "equal")


class EmittedOps(NumberedValues):
    """What a walk knows of the ops that it has found, and of where it is."""

    def __init__(self, program: Program) -> None:
        """Begins with none."""
        super().__init__(LocalTypes(program.mesh, where=program.name), sharded=program.partitioned)
        self._calls = Calls(program.source)
        self._named = program.named  # whether ops may have names in their debug locations
        self._located = self._recomputing = False  # recomputation: can be told, is here
        self._scheduled = "meshcast.scheduled" in program.module.operation.attributes
        self._launch: CompiledLaunch | None = None
        self._costs = KnownCosts(self._tensors, sharded=program.partitioned)
        # Most ops of most programs are arithmetic on whole arrays: they are read by a shorter way.
        self._typed = {} if program.partitioned or self._scheduled else self._costs.by_types
        self._equal = EqualOps(self._tensors)

    def _emit(
        self, name: str, cost: Cost, operands: tuple[int, ...], results: tuple[int, ...], location: str, ops: list[Op],
        blocks: tuple[Block, ...] = (), trips: int = 1, equal: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        recomputed = self._recomputing
        if location:
            self._located = True
            recomputed = recomputed or "rematted_computation" in location
        self._calls.emitted += 1
        ops.append(
            Op(
                name=name,
                cost=cost,
                operands=operands,
                results=results,
                blocks=blocks,
                trip_count=trips,
                location=location,
                recomputed=recomputed,
                launch=self._launch,
                equal=equal,
            )
        )

    def _emit_halo(self, cost: Cost, operands: tuple[int, ...], location: str, ops: list[Op]) -> int:
        """An exchange the program does not spell out; its value is one more operand of the op that needs it."""
        received = len(self._tensors)
        self._tensors.append(Tensor((cost.written_bytes,), "i8"))
        self._emit("meshcast.halo", cost, operands[:1], (received,), location, ops)
        return received

    def _plain_by_types(
        self, name: str, operation: Any, ops: list[Op], known: dict[tuple[int, ...], Cost]
    ) -> None:  # fmt: skip
        """`_plain` of an op with one result whose cost follows from its types alone, in a program of one device."""
        tensors, ids, value = self._tensors, self._ids, operation.result
        operands = tuple(map(ids.__getitem__, operation.operands))
        if len(operands) == 3 and operands[1] == operands[2] and name == "stablehlo.select":
            ids[value] = operands[1]  # either way: compilers drop it
            return
        kind = self._types.tensor(value.type)
        results = (len(tensors),)
        ids[value] = results[0]
        tensors.append(kind)
        key = (*[id(tensors[operand]) for operand in operands], id(kind))
        cost = known.get(key)
        if cost is None:
            reading = OpReading(name=name, operands=self._tensors_of(operands), results=(kind,), op=operation)
            cost = known[key] = RULES[name](reading)
        location = location_name(operation) if self._named else ""
        recomputed = self._recomputing
        if location:
            self._located = True
            recomputed = recomputed or "rematted_computation" in location
        self._calls.emitted += 1
        equal = self._equal.before(name, operation, operands, results)
        ops.append(_typed_op(_BLANK, name, cost, operands, results, location, recomputed, equal))


def location_name(operation: Any) -> str:
    """The op's own name in its debug location (`jit(step)/while/body/dot_general`), or nothing."""
    return getattr(operation.location, "name_str", "") or ""
