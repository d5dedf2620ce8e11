"""Which lowering a program gets: modelled by our rules, compiled by the real compiler, or as it came."""

from __future__ import annotations

from meshcast.base import UnsupportedError, UsageError
from meshcast.hardware import Device
from meshcast.lower.kernel import Lowering
from meshcast.programs import Program

LOWERINGS = ("auto", "modelled", "compiled")


def backend_of(device: Device) -> str:
    """Whose rules kernels are modelled by on a device, a key of `pass_tables.TABLES`.

    XLA's for TPUs; on other accelerators with arrays of their own the same, less what TPUs' vectors ask for; else XLA's for GPUs.
    """
    return {"tpu": "xla-tpu", "npu": "npu"}.get(device.kind, "xla-gpu")


def choose_lowering(asked: str, program: Program, device: Device, *, prefer_compiled: bool) -> Lowering:
    """The lowering of a program on a device.

    Args:
        asked: One of `LOWERINGS`. `auto`: a program that came compiled stays as it is; else see `prefer_compiled`.
        program: The captured program.
        device: What it runs on.
        prefer_compiled: Whether `auto` takes the compiler where it is installed and knows the device.

    Raises:
        UsageError: There is no such lowering.
        UnsupportedError: The compiler is asked for and cannot be had.
    """
    if asked not in LOWERINGS:
        raise UsageError(f"no lowering {asked!r}", where="--lowering", fix="one of " + ", ".join(LOWERINGS))
    if asked == "modelled":
        return "modelled"
    if "meshcast.scheduled" in program.module.operation.attributes:
        return "given"
    if asked == "auto" and not prefer_compiled:
        return "modelled"
    # Here, as options and help know the words above, and need neither compilers nor readers of what they make.
    from meshcast.lower.compiled.real_compilers import why_not_compiled

    why = why_not_compiled(program, device)
    if why is None:
        return "compiled"
    if asked == "compiled":
        raise UnsupportedError(
            f"the compiled lowering cannot be had: {why}",
            where=program.name,
            fix="use another --fidelity, or --lowering modelled with it",
        )
    return "modelled"
