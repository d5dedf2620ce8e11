"""Measured kernels from a table of single ops that somebody else timed: `meshcast calibrate --from FILE.csv`.

Each row becomes the program that was run (`validate ops`), lowered for its chip, and its time that of the program's kernels.
Where they are several, the row tells them apart no more than the reference model does: all share its ratio,

    seconds(kernel) = reference(kernel) * measured / sum(reference).

Only device times can be learned from (grade A, unless asked otherwise); rows of one shape are one program to the fit, so
that its settings and intervals are judged on shapes that it has not seen. A time that no device can have taken is none: a row
below the speed of light of its kernels is refused, by the bound that the profiled fidelity answers no less than.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError, MeshcastError, UsageError
from meshcast.estimate import (
    Estimates,
    Interpolator,
    InterpolatorRow,
    Split,
    build_interpolator,
    chosen_half,
    light_beside,
    reference_model,
)
from meshcast.evidence.validate.ops.comparison import op_run
from meshcast.evidence.validate.ops.programs import op_program
from meshcast.evidence.validate.ops.rows import OpRow, device_of, measured_us
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind, LoopStep, Schedule
from meshcast.options import Options

Listen = Callable[[int, int], None]
_NOT_LEARNED = {
    KernelKind.COLLECTIVE: "a collective is timed by the network",
    KernelKind.CUSTOM: "a hand-written kernel's time says nothing about others",
}
_LOWERED = Options(fidelity="analytical", lowering="modelled", levers=False)
_LEAST_SHARE = 0.05  # of a row's time: what less of it is spent on, the row says nothing about


class ImpossibleTimeError(InputError):
    """A row's time is below the speed of light of what it is said to have computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedTable:
    """What a table gave: the kernels to interpolate in, rows that were taken, and why the others were not."""

    interpolator: Interpolator
    rows: int
    left_out: dict[str, str]  # by id


def kernels_of_table(
    rows: Sequence[OpRow],
    device: Device,
    *,
    source: str,
    split: Split = "all",
    listen: Listen | None = None,
) -> CollectedTable:
    """The measured kernels of a device in a table; rows of other chips are passed over.

    Args:
        rows: The table's rows that are to be believed.
        device: What to collect for.
        source: The table's name, kept beside what is made of it.
        split: One half of the shapes, so that the other can judge.
        listen: Told how many rows are done, and of how many.

    Raises:
        InputError: A row of the device has no time, or one that is below the speed of light, or none of them a program.
        UsageError: The rows are of other devices.
    """
    mine = [row for row in rows if _is_on(row, device)]
    if not mine:
        chips = ", ".join(sorted({row.chip for row in rows})) or "none"
        raise UsageError(f"no row is of {device.name}: the table's chips are {chips}", where="--on", fix="name another")
    for row in mine:
        measured_us(row, source)  # before any row is lowered, which takes minutes of a long table
    chosen = [row for row in mine if chosen_half(row.text, split)]
    found: list[InterpolatorRow] = []
    left_out: dict[str, str] = {}
    for number, row in enumerate(chosen, 1):
        try:
            found += row_kernels(row, device)
        except ImpossibleTimeError as error:
            raise ImpossibleTimeError(error.message, where=row.place(source), fix=error.fix) from error
        except MeshcastError as error:
            left_out[row.id] = error.message
        if listen is not None:
            listen(number, len(chosen))
    if not found:
        name, why = next(iter(left_out.items()), ("", f"the {split} half of the shapes has none of them"))
        raise InputError(
            f"no row has a program whose kernels could be timed; {name + ': ' if name else ''}{why}",
            where=source,
            fix="correct the shapes, ops and types of rows (docs/calibration.md), or take another table",
        )
    made = build_interpolator(found, device, [source if split == "all" else f"{source} ({split})"])
    return CollectedTable(interpolator=made, rows=len(chosen) - len(left_out), left_out=left_out)


def _is_on(row: OpRow, device: Device) -> bool:
    try:
        return device_of(row) == device.name
    except MeshcastError:
        return False


def row_kernels(row: OpRow, device: Device) -> Iterator[InterpolatorRow]:
    """A row's kernels with their times, under the name of its shape.

    Raises:
        MeshcastError: It has no program, a collective is in it, or it is faster than light.
    """
    assert row.time_us is not None
    program = op_program(row)
    schedule = op_run(program, _LOWERED).lowered.schedule
    kernels = list((_loops(schedule) or schedule).walk() if program.slope else schedule.walk())
    for kind, why in _NOT_LEARNED.items():
        if any(kernel.kind is kind for kernel, _ in kernels):
            raise InputError(why, where=row.id)
    counts = np.array([count / program.steps for _, count in kernels])
    base = reference_model(device, 0.0).estimate([kernel for kernel, _ in kernels], device)
    least_us = float(_least_seconds([kernel for kernel, _ in kernels], device, base) @ counts) * 1e6
    if row.time_us < least_us:
        raise ImpossibleTimeError(
            f"{row.op} of {row.text} ({row.element}) in {row.time_us:g} us is faster than {device.name} can be, "
            f"{least_us:.4g} us",
            where=row.id,
            fix="correct its time, shape or dtype, or take the row out of the table; times are microseconds",
        )
    reference = base.time * counts
    ratio = row.time_us * 1e-6 / reference.sum()
    for (kernel, _), seconds, count in zip(kernels, reference, counts, strict=True):
        if seconds >= _LEAST_SHARE * reference.sum():
            yield InterpolatorRow(kernel=kernel, seconds=float(seconds * ratio / count), program=row.text)


def _least_seconds(kernels: Sequence[Kernel], device: Device, base: Estimates) -> npt.NDArray[np.float64]:
    """What kernels take at least: where there is a cache, any part of what was run before may still be in it."""
    light = light_beside(kernels, device, base)
    if device.kind == "tpu" or not device.cache_bandwidth:
        return light
    cached = replace(device, memory_bandwidth=max(device.cache_bandwidth, device.memory_bandwidth))
    return np.minimum(light, light_beside(kernels, cached, base))


def _loops(schedule: Schedule) -> Schedule | None:
    """The loops of a schedule alone: what a further step of a chain repeats."""
    steps = tuple(step for step in schedule.steps if isinstance(step, LoopStep))
    return Schedule(inputs=schedule.inputs, outputs=schedule.outputs, steps=steps) if steps else None
