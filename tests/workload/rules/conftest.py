"""A small walker over MLIR modules, independent of the reader: local shapes are the types' own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from jaxlib.mlir import ir

from meshcast.programs.mlir import parse_module
from meshcast.workload.custom_calls import custom_call_cost
from meshcast.workload.graph import Cost, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules import RULES


def _tensor(value_type: Any) -> Tensor:
    if str(value_type) == "!stablehlo.token":
        return Tensor((), "token")
    tensor_type = ir.RankedTensorType(value_type)
    return Tensor(tuple(tensor_type.shape), str(tensor_type.element_type))


def _costs(
    block: Any, functions: dict[str, Any], local: dict[str, Tensor], wanted: Iterable[int] | None = None
) -> list[tuple[str, Cost]]:
    """Costs of the ops that the `wanted` results need, as XLA sees no others; of every op by default."""
    *body, terminator = [view.operation for view in block.operations]
    returned = list(terminator.operands)
    live = {returned[i] for i in (range(len(returned)) if wanted is None else wanted)}
    found: list[tuple[str, Cost]] = []
    for op in reversed(body):
        used = [i for i, result in enumerate(op.results) if result in live]
        if wanted is not None and not used:
            continue
        live.update(op.operands)
        if op.name == "func.call":
            callee = functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            found += reversed(_costs(callee.operation.regions[0].blocks[0], functions, local, used))
        else:
            found.append((op.name, _cost(op, local)))
    return found[::-1]


def _cost(op: Any, local: dict[str, Tensor]) -> Cost:
    reading = OpReading(
        name=op.name,
        operands=tuple(local.get(str(value.type)) or _tensor(value.type) for value in op.operands),
        results=tuple(local.get(str(value.type)) or _tensor(value.type) for value in op.results),
        op=op,
        location="test.mlir",
    )
    rule = custom_call_cost if op.name == "stablehlo.custom_call" else RULES[op.name]
    return rule(reading)


@pytest.fixture
def costs_of() -> Callable[..., list[tuple[str, Cost]]]:
    """Op names and costs of a module, calls followed; `local` replaces types by what a shard of them would be."""

    def costs(module: Any, local: dict[str, Tensor] | None = None, live_only: bool = False) -> list[tuple[str, Cost]]:
        if isinstance(module, str):
            module = parse_module(module, where="test.mlir")
        functions = {
            ir.StringAttr(op.attributes["sym_name"]).value: op
            for op in module.body.operations
            if op.operation.name == "func.func"
        }
        entry = functions["main"].operation.regions[0].blocks[0]
        returned = list(entry.operations)[-1].operation.operands
        return _costs(entry, functions, local or {}, range(len(returned)) if live_only else None)

    return costs


@pytest.fixture
def cost_of(costs_of: Callable[..., list[tuple[str, Cost]]]) -> Callable[..., Cost]:
    """The cost of one op, given as its generic form: name, region and attributes, operand types, result types."""

    def cost(
        name: str,
        operands: list[str],
        results: list[str],
        attributes: str = "",
        region: str = "",
        local: dict[str, Tensor] | None = None,
    ) -> Cost:
        arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(operands))
        values = ", ".join(f"%a{i}" for i in range(len(operands)))
        left = f"%r:{len(results)} = " if results else ""
        signature = f"({', '.join(operands)}) -> ({', '.join(results)})"
        body = f'{left}"{name}"({values}) {region} {{{attributes}}} : {signature}'
        text = f"func.func @main({arguments}) {{\n {body}\n return\n}}"
        return costs_of(text, local)[-1][1]

    return cost
