"""A program through the real compiler: XLA's own kernels, schedule and memory, for any CUDA GPU of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.capture.files import from_bytes
from meshcast.capture.program import Program
from meshcast.errors import UsageError
from meshcast.hardware import Device
from meshcast.lower.kernel import LoweredProgram
from meshcast.lower.scheduled import lower_scheduled
from meshcast.lower.xla_gpu.compiler import EXTRA, compile_program, installed_version
from meshcast.lower.xla_gpu.target import missing_facts
from meshcast.partition.meshes import is_sharded, with_mesh
from meshcast.workload.reader import ReadOptions, read_workload


def why_not(program: Program, device: Device) -> str | None:
    """Why a program cannot be compiled for a device here; None when it can be tried."""
    if installed_version() is None:
        return f"XLA's CUDA compiler is not installed (pip install 'meshcast[{EXTRA}]')"
    return missing_facts(device) or _not_compilable(program)


def lower_compiled(
    program: Program, device: Device, *, mesh: Mapping[str, int] | None = None, options: ReadOptions | None = None
) -> LoweredProgram:
    """The kernels that XLA:GPU launches for a program, as its compiler decides them.

    XLA partitions a sharded program itself. Nothing is autotuned: a product without an epilogue is timed as the
    library call that an autotuner would most often choose.

    Args:
        program: A captured program, sharded or not, before any partitioning.
        device: A CUDA GPU of the catalogue.
        mesh: Axis sizes that replace the program's own.
        options: What the program's text cannot say.

    Raises:
        UsageError: The program is partitioned already.
        UnsupportedError: The compiler is not there, or refuses the device or the program.
    """
    why = _not_compilable(program)
    if why is not None:
        raise UsageError(why, where="--lowering compiled", fix="use --lowering modelled")
    whole = with_mesh(program, mesh)
    found = compile_program(whole, device)
    local = from_bytes(found.hlo.encode(), name=program.name, where=program.source)
    same = len(local.arguments) == len(program.arguments)
    local = replace(
        local,
        mesh=whole.mesh,
        sha256=program.sha256,
        arguments=program.arguments if same else local.arguments,
        partitioned=True,
    )
    lowered = lower_scheduled(read_workload(local, options), tuned=False)
    return replace(lowered, lowering="compiled", memory=found.memory)


def _not_compilable(program: Program) -> str | None:
    if program.partitioned:
        return "the program is one device's already: XLA wants the one that it was partitioned from"
    if program.devices > 1 and not is_sharded(program):
        return "the program has collectives and no mesh: it is one device's already"
    return None
