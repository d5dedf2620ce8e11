"""A program's kernels on a kind of device, kept by everything that shaped them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshcast.base import UnsupportedError, UsageError, programs_kept
from meshcast.hardware import Device
from meshcast.jobs.program.deadlocks import check_program
from meshcast.lower import (
    LoweredProgram,
    Lowering,
    OutOfMemoryError,
    Overflow,
    Overlap,
    backend_of,
    lower,
    lower_compiled,
    overlapped,
)
from meshcast.options import InWords, LoweringOptions, ProgramOptions, key_of, predicted_turns
from meshcast.partition import partition
from meshcast.programs import Program
from meshcast.workload import ReadOptions, may_deadlock, read_workload, registered_rules

# Lowered programs by content, the latest last: the same program on other hardware, or at another fidelity, starts from there.
_LOWERED: OrderedDict[tuple[object, ...], LoweredProgram] = OrderedDict()
_NOTHING = InWords("", Overlap())


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoseKernels:
    """Whose kernels run: what is asked for, and what that comes to for a program on a device.

    Attributes:
        asked: The lowering that is asked for.
        lowering: The lowering that it gets.
        hides_latency: Whether a compiler is asked to start exchanges early.
    """

    asked: str
    lowering: Lowering
    hides_latency: bool = True


def lowered_program(
    program: Program,
    mesh: Mapping[str, int] | None,
    device: Device,
    *,
    whose: WhoseKernels,
    reading: ProgramOptions,
    lowering: LoweringOptions,
) -> LoweredProgram:
    """The kernels of a program on a kind of device; kept by the program's content and everything that shaped them.

    Args:
        program: The program.
        mesh: Sizes of its mesh where they are others than its own.
        device: What it runs on.
        whose: Whose kernels they are.
        reading: How it is partitioned and read.
        lowering: What a compiler makes of it, and what is rewritten of that.

    Raises:
        UsageError: Its ranks would wait for each other for ever.
        UnsupportedError: It holds what cannot be read, or a compiler that is asked for cannot be had.
    """
    found = _kept(program, mesh, device, whose=whose, reading=reading, lowering=lowering)
    own = {"name": program.name, "source": program.source, "facts": program.facts}  # equal programs may have others
    if not program.notes and all(getattr(found.workload, name) == value for name, value in own.items()):
        return found
    warnings = (*program.notes, *found.workload.warnings)
    return replace(found, workload=replace(found.workload, **own, warnings=warnings))  # type: ignore[arg-type]


def _kept(
    program: Program, mesh: Mapping[str, int] | None, device: Device, *, whose: WhoseKernels,
    reading: ProgramOptions, lowering: LoweringOptions,
) -> LoweredProgram:  # fmt: skip
    """The kernels of a program of this content, whatever it is called."""
    backend = backend_of(device)
    # The digest is the source's: a program that was partitioned, or put on another mesh, by hand still carries it.
    key = (
        program.sha256, program.mesh, program.module if program.partitioned else None, tuple((mesh or {}).items()),
        key_of(reading), key_of(lowering), backend, registered_rules(), whose,
        device if whose.lowering == "compiled" else None,
    )  # fmt: skip
    found = _LOWERED.pop(key, None)
    if found is None and lowering.rewrites.any:
        # Rewrites are of kernels that other questions, such as the same without them, have lowered already.
        without = replace(lowering, overlap=_NOTHING)
        plain = _kept(program, mesh, device, whose=whose, reading=reading, lowering=without)
        found = plain if plain.workload.step is not None else overlapped(plain, lowering.rewrites)
    elif found is None:
        found = _lowered(program, mesh, device, backend, whose=whose, reading=reading, lowering=lowering)
        if program.devices > 1 and may_deadlock(found.workload):
            check_program(program)
    _LOWERED[key] = found
    while len(_LOWERED) > programs_kept():
        _LOWERED.popitem(last=False)
    return found


def forget_lowered() -> None:
    """Leaves no program kept, so that the next one is lowered anew."""
    _LOWERED.clear()


def _lowered(
    program: Program, mesh: Mapping[str, int] | None, device: Device, backend: str, *, whose: WhoseKernels,
    reading: ProgramOptions, lowering: LoweringOptions,
) -> LoweredProgram:  # fmt: skip
    turns = predicted_turns(reading.trip_counts)
    read = ReadOptions(trip_counts=turns, approximate=reading.approximate, skew=reading.indices.value)
    refused, overflow = "", None
    if whose.lowering == "compiled":
        try:
            return lower_compiled(
                program, device, mesh=mesh, options=read, limit_s=lowering.compile_limit or None,
                hides_latency=whose.hides_latency,
            )  # fmt: skip
        except OutOfMemoryError as error:
            refused, overflow = error.message, Overflow(demand=error.demand, bound=error.bound)
        except (UnsupportedError, UsageError) as error:  # loops may have other names and counts in XLA's program
            if whose.asked == "compiled":
                raise
            refused = f"{error.message}; the lowering is modelled instead"
    workload = read_workload(partition(program, mesh=mesh, route=reading.partitioner), read)
    kernels = lower(
        workload, backend=backend, given=whose.lowering == "given", fusion=lowering.fusion,
        attention=lowering.attention_library, layers=lowering.layers, ragged=lowering.ragged,
    )  # fmt: skip
    if refused:
        kernels = replace(kernels, workload=replace(kernels.workload, warnings=(*kernels.workload.warnings, refused)))
    return replace(kernels, overflow=overflow)
