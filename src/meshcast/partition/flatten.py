"""One flat function without repeated work: calls inlined, equal expressions merged, as every XLA backend does first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxlib.mlir import passmanager

from meshcast.partition.inline import inline_calls
from meshcast.programs import Program, entry_function


def flatten(program: Program) -> Program:
    """The program with its calls inlined and equal pure ops merged; the original is left alone.

    Programs from optimised HLO keep their calls: these are XLA's own fusions, and XLA has merged what it could.
    """
    if "meshcast.scheduled" in program.module.operation.attributes or _has_fusions(program.module):
        return program
    module = program.module.operation.clone()
    inline_calls(module, entry_function(module, where=program.source), whole=False)
    with module.context:
        passmanager.PassManager.parse("builtin.module(cse)").run(module.operation)
    return replace(program, module=module)


def _has_fusions(module: Any) -> bool:
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    if len(functions) < 2:  # a fusion calls a function of its own
        return False
    entry_ops = (op.operation for function in functions for op in function.operation.regions[0].blocks[0].operations)
    return any(op.name == "func.call" and "meshcast.fusion" in op.attributes for op in entry_ops)
