"""A program through the real compiler of its device: XLA's own kernels, schedule and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from meshcast.base import UnsupportedError, UsageError
from meshcast.hardware import Device
from meshcast.lower.compiled import xla_gpu, xla_tpu
from meshcast.lower.compiled.compilation_cache import Compilation
from meshcast.lower.compiled.scheduled_hlo import lower_scheduled
from meshcast.lower.kernel import LoweredProgram
from meshcast.partition import check_divisible, is_sharded, with_mesh
from meshcast.programs import Program, from_bytes, has_uneven_shares
from meshcast.workload import ReadOptions, read_workload


class _Compile(Protocol):
    def __call__(self, program: Program, device: Device, *, limit_s: float | None, hides_latency: bool) -> Compilation:
        """A program compiled for a device, within a limit of seconds, if any; whether exchanges start early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiler:
    backend: str
    compile_program: _Compile
    why_not: Callable[[Device], str | None]


def _for_tpu(program: Program, device: Device, *, limit_s: float | None, hides_latency: bool) -> Compilation:
    """XLA:TPU's own scheduler starts exchanges early, and is not asked for less."""
    return xla_tpu.compile_program(program, device, limit_s=limit_s)


_COMPILERS = {
    "gpu": _Compiler(backend="xla-gpu", compile_program=xla_gpu.compile_program, why_not=xla_gpu.why_not),
    "tpu": _Compiler(backend="xla-tpu", compile_program=_for_tpu, why_not=xla_tpu.why_not),
}
_WITHOUT = "use --lowering modelled"


def why_not_compiled(program: Program, device: Device) -> str | None:
    """Why a program cannot be compiled for a device here; None when it can be tried."""
    compiler = _COMPILERS.get(device.kind)
    if compiler is None:
        return _no_compiler(device)
    return compiler.why_not(device) or _not_compilable(program)


def lower_compiled(
    program: Program,
    device: Device,
    *,
    mesh: Mapping[str, int] | None = None,
    options: ReadOptions | None = None,
    limit_s: float | None = None,
    hides_latency: bool = True,
) -> LoweredProgram:
    """The kernels that a device runs for a program, as XLA decides them.

    XLA partitions a sharded program itself. On GPUs nothing is autotuned: a product without an epilogue is timed as the
    library call that an autotuner would most often choose.

    Args:
        program: A captured program, sharded or not, before any partitioning.
        device: A CUDA GPU or a TPU of the catalogue.
        mesh: Axis sizes that replace the program's own.
        options: What the program's text cannot say.
        limit_s: How long compiling may take; None: as long as is usual, 5 minutes for GPUs and 2 hours for TPUs.
        hides_latency: Whether XLA's latency-hiding scheduler orders a program over several GPUs; on TPUs it always does.

    Raises:
        UsageError: The program is partitioned already, or what was told about its loops does not fit XLA's.
        InfeasibleError: The mesh does not divide an argument.
        OutOfMemoryError: The compiler finds that the program does not fit.
        UnsupportedError: The compiler is not there, or refuses the device or the program.
    """
    why = _not_compilable(program)
    if why is not None:
        raise UsageError(why, where="--lowering compiled", fix=_WITHOUT)
    compiler = _COMPILERS.get(device.kind)
    if compiler is None:
        raise UnsupportedError(_no_compiler(device), where="--lowering compiled", fix=_WITHOUT)
    whole = with_mesh(program, mesh)
    check_divisible(whole, whole.mesh)  # as JAX demands; XLA itself would pad
    found = compiler.compile_program(whole, device, limit_s=limit_s, hides_latency=hides_latency)
    local = from_bytes(found.hlo.encode(), name=program.name, where=program.source)
    same = len(local.arguments) == len(program.arguments)
    local = replace(
        local,
        mesh=whole.mesh,
        sha256=program.sha256,
        arguments=program.arguments if same else local.arguments,
        partitioned=True,
    )
    lowered = lower_scheduled(read_workload(local, options), backend=compiler.backend, tuned=False)
    return replace(lowered, lowering="compiled", memory=found.memory, compiler=found.by)


def _no_compiler(device: Device) -> str:
    return f"there is no compiler for {device.name} ({device.kind})"


def _not_compilable(program: Program) -> str | None:
    if program.partitioned:
        return "the program is one device's already: XLA wants the one that it was partitioned from"
    if program.devices > 1 and not is_sharded(program):
        return "the program has collectives and no mesh: it is one device's already"
    if has_uneven_shares(program):
        return "the program stores shares that are not all of one size, which XLA makes even by storing fewer of them"
    return None
