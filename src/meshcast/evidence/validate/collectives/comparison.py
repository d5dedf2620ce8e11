"""Measured collectives predicted: a row for each, with the plan that was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.base import InputError, MeshcastError, UnsupportedError, UsageError, nearest
from meshcast.evidence.validate.collectives.leaving_out import without_class
from meshcast.evidence.validate.collectives.rows import CollectiveRow
from meshcast.evidence.validate.collectives.system import System
from meshcast.evidence.validate.collectives.systems import system_of
from meshcast.evidence.validate.programs import ProgramRow, why_failed
from meshcast.network import KINDS, CollectivePlan, bus_factor, collective_of, plan_collective

BORDER = 2**20
EACH = "each"
MISTUNED, UNKNOWN = "mis-tuned", "not understood"
SIZES = (">= 1 MiB", "< 1 MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveResult:
    """One row predicted, or why not; `skipped` where it is no collective at all."""

    measured: CollectiveRow = field(repr=False)
    row: ProgramRow
    system: System | None = None
    plan: CollectivePlan | None = None
    skipped: bool = False

    @property
    def hardware_class(self) -> str:
        """The class of hardware that a row's error is counted under."""
        return self.system.hardware_class if self.system else UNKNOWN

    @property
    def size_class(self) -> str:
        """The class of sizes of a row: below 1 MiB latency counts, above it bandwidth."""
        return SIZES[0] if (self.measured.size or 0.0) >= BORDER else SIZES[1]

    @property
    def group(self) -> str:
        """Hardware and size together."""
        return f"{self.hardware_class}, {self.size_class}" if self.system else UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row, and what was planned for it."""
        line = {
            **self.row.to_json(),
            "hardware": self.measured.hardware,
            "collective": self.measured.collective,
            "bytes": self.measured.size,
            "judged_by": "time_us" if self.measured.time_us is not None else "busbw_GBps",
            "skipped": self.skipped,
        }
        if self.plan is None or self.system is None or self.row.predicted is None:
            return line
        kind, devices, size = self.plan.kind, self.system.devices, self.measured.size or 0.0
        return {
            **line,
            "cluster": self.system.cluster.name,
            "devices": devices,
            "assumed": list(self.system.assumed),
            "algorithm": self.plan.algorithm,
            "protocol": self.plan.protocol,
            "busbw_GBps": {
                "measured": self.measured.busbw,
                "predicted": bus_factor(kind, devices) * size / self.row.predicted / 1e3,
            },
        }


def validate_collectives(rows: Sequence[CollectiveRow], *, leave_out: str | None = None) -> Iterator[CollectiveResult]:
    """A result for each row, in order.

    Args:
        rows: The measurements.
        leave_out: A class of hardware whose rows alone are predicted, with parameters that know nothing of measurements of
            it; `each`: every row so, with its own class left out.

    Raises:
        UsageError: No row is of the class.
    """
    if leave_out is not None and leave_out != EACH:
        rows = _of_class(rows, leave_out)
    for measured in rows:
        yield _result(measured, left_out=leave_out is not None)


def _of_class(rows: Sequence[CollectiveRow], label: str) -> list[CollectiveRow]:
    """Rows of a class of hardware, by its name in any case."""
    classes: dict[str, list[CollectiveRow]] = {}
    for row in rows:
        try:
            classes.setdefault(system_of(row).hardware_class, []).append(row)
        except MeshcastError:
            continue  # which has no class
    found = next((name for name in classes if name.lower() == label.lower()), None)
    if found is None:
        raise UsageError(f"no row is of the class {label!r}", where="--leave-out", fix=nearest(label, (EACH, *classes)))
    return classes[found]


def _result(measured: CollectiveRow, *, left_out: bool) -> CollectiveResult:
    if measured.no_collective:
        row = ProgramRow(id=measured.id, group="skipped", measured=None, predicted=None, why="no collective")
        return CollectiveResult(measured=measured, row=row, skipped=True)
    system: System | None = None
    try:
        kind = _checked(measured)
        system = system_of(measured)
        if left_out:
            system = replace(system, cluster=without_class(system.cluster, system.hardware_class))
        plan = predicted_plan(measured, kind, system)
    except Exception as error:  # this row's failure, or a bug: named in the row, so that the others are still judged
        failed = CollectiveResult(measured=measured, row=_row(measured, None, None), system=system)
        row = _row(measured, None, None, group=_group(failed), why=why_failed(error))
        return CollectiveResult(measured=measured, row=row, system=system)
    time = measured_us(measured, kind, system.devices)
    why = None if time else "unmeasured: neither time_us nor busbw_GBps and bytes"
    done = CollectiveResult(measured=measured, row=_row(measured, time, plan), system=system, plan=plan)
    row = _row(measured, time, plan if time else None, group=_group(done), why=why)
    return CollectiveResult(measured=measured, row=row, system=system, plan=plan)


def _checked(measured: CollectiveRow) -> str:
    if measured.wrong:
        raise InputError(measured.wrong, where=measured.id)
    if measured.kind is None:
        fix = nearest(measured.collective, tuple(KINDS))
        raise UnsupportedError(f"no collective {measured.collective!r} is known", where=measured.id, fix=fix)
    return measured.kind


def _group(result: CollectiveResult) -> str:
    return MISTUNED if result.measured.mistuned else result.group


def predicted_plan(measured: CollectiveRow, kind: str, system: System) -> CollectivePlan:
    """The plan for what was measured, on the system it was measured on."""
    if measured.size is None:
        raise UnsupportedError("a collective without a size", where=measured.id)
    collective = collective_of(kind, int(measured.size), system.group)
    return plan_collective(collective, system.cluster, algorithm=system.algorithm, protocol=system.protocol)


def measured_us(measured: CollectiveRow, kind: str, devices: int) -> float | None:
    """Microseconds that a row gives, or that its bus bandwidth means."""
    if measured.time_us is not None:
        return measured.time_us
    if measured.busbw is None or measured.size is None:
        return None
    return bus_factor(kind, devices) * measured.size / measured.busbw / 1e3


def _row(
    measured: CollectiveRow, time: float | None, plan: CollectivePlan | None, *, group: str = "", why: str | None = None
) -> ProgramRow:
    predicted = plan.seconds * 1e6 if plan else None
    return ProgramRow(id=measured.id, group=group, measured=time, predicted=predicted, why=why)
