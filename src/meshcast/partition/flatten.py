"""One flat function without repeated work: calls inlined, equal expressions merged, as every XLA backend does first."""

from __future__ import annotations

from dataclasses import replace

from jaxlib.mlir import passmanager

from meshcast.partition.inline import FusionCallError, inline_calls
from meshcast.programs import Program, entry_function


def flatten(program: Program) -> Program:
    """The program with its calls inlined and equal pure ops merged; the original is left alone.

    Programs from optimised HLO keep their calls: these are XLA's own fusions, and XLA has merged what it could.
    """
    if "meshcast.scheduled" in program.module.operation.attributes:
        return program
    module = program.module.operation.clone()
    try:
        inline_calls(module, entry_function(module, where=program.source), whole=False)
    except FusionCallError:
        return program
    with module.context:
        merging = passmanager.PassManager.parse("builtin.module(cse)")
        merging.enable_verifier(False)  # the parser has verified every op, and bodies are as their callers need them
        merging.run(module.operation)
    return replace(program, module=module)
