"""The child process that runs Shardy: a failed check inside Shardy aborts the process, and must not abort ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import passmanager

from meshcast.base import serve
from meshcast.partition.inline import inline_calls
from meshcast.partition.meshes import resize_meshes
from meshcast.partition.rewrites import (
    merge_equal_reshards,
    reassociate_all_reduces,
    scale_before_all_reduces,
    scans_to_windows,
    scatter_sliced_all_reduces,
)
from meshcast.partition.uneven import border_of, put_back
from meshcast.programs import entry_function, ir, make_context, to_bytecode

# Up to explicit collectives on global types, with a sharding on every op. `sdy-convert-global-to-local` is left out on
# purpose: it fails on loops in jaxlib 0.10 and aborts on some programs in 0.12; local shapes follow by division.
PIPELINE = (
    "func.func(chlo-legalize-to-stablehlo)",
    "sdy-propagation-pipeline",
)
EXPLICIT = (
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    "func.func(sdy-reshard-to-collectives)",
)
# All-reduce and slice become reduce-scatter; equal ops become one, as in XLA. Recomputation stays apart behind its
# optimization barriers.
CLEAN_UP = ("canonicalize{enable-patterns={sdy-collective}}", "cse")


def partition_module(
    data: bytes, mesh: Mapping[str, int] | None, *, optimise: bool = True, verify: bool = False
) -> bytes:
    """The module with explicit `sdy` collectives, marked as partitioned.

    Args:
        data: The program's bytecode.
        mesh: Sizes of axes that replace its own.
        optimise: Whether collectives are merged as XLA would later.
        verify: Whether the module is verified behind each of some forty passes, which takes twice as long as the passes do; it
            is verified when it is read and when all is done in any case.
    """
    context = make_context()
    context.enable_multithreading(False)  # a module is one function: threads have nothing to share, and cost a tenth
    with context, ir.Location.unknown():
        module = ir.Module.parse(data)
        if mesh:
            resize_meshes(module, mesh)
        _run(module, ["func.func(stablehlo-legalize-composite-to-call)"], verify=verify)
        inline_calls(module, entry_function(module, where="program"), whole=True)
        scans_to_windows(module)
        border = border_of(module)
        _run(module, PIPELINE, verify=verify)
        put_back(module, border)
        _run(module, EXPLICIT, verify=verify)
        merge_equal_reshards(module)
        if optimise:
            scale_before_all_reduces(module)
            reassociate_all_reduces(module)
            _run(module, CLEAN_UP, verify=verify)
            scatter_sliced_all_reduces(module)
        module.operation.verify()
        module.operation.attributes["meshcast.partitioned"] = ir.UnitAttr.get()
        return to_bytecode(module)


def _run(module: Any, stages: Sequence[str], *, verify: bool) -> None:
    for stage in stages:
        passes = passmanager.PassManager.parse(f"builtin.module({stage})")
        passes.enable_verifier(verify)
        passes.run(module.operation)


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """One request: `{"mesh": {...} | null, "optimise": bool, "verify": bool}` and the module's bytecode."""
    return partition_module(data, request["mesh"], optimise=request["optimise"], verify=request["verify"])


if __name__ == "__main__":
    serve(answer)
