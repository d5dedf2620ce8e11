"""Reads a folder of measured programs: `measurements.jsonl[.gz]` and `programs/ID.mlir[.gz]`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.base import LARGEST_TEXT, InputError, UsageError, json_value, nearest, unpacked, unreadable

MOSTLY_BUSY = 0.9  # of a sustained run
_SKEW = re.compile(r"-z(\d+(?:\.\d+)?)$")
# Programs of one op: timed by `busy_us`, since below some 40 us `wall_us` measures the host's dispatch. All others are
# whole models, timed by `wall_us`.
ONE_OP_GROUPS = frozenset(
    {"gemm", "elementwise", "reduce", "transpose", "movement", "sort", "embedding", "attention", "conv"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEnergy:
    """Joules per run of a program that ran without pause, and how long such a run took."""

    joules: float
    run_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProgram:
    """One row of a ground truth. A figure is None where it was not measured."""

    id: str
    group: str
    path: Path
    busy_us: float | None
    wall_us: float | None
    memory_bytes: int | None  # arguments + outputs + temporaries - aliased
    energy: MeasuredEnergy | None
    skew: float | None = None  # of the Zipf law by which gather and scatter indices were spread, where the row says so
    launches: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)  # per run: hlo_op, kernel, count, us
    optimized: Path | None = None  # XLA's optimized HLO of it, where that was kept
    library: str = ""  # whose program it is, where the row says so
    kernel_count: float | None = None  # launches of a run, where they were counted apart from `launches`
    runs: int | None = None  # that `wall_us` is an average of: issued back to back, and waited for at the end
    tuned: bool = True  # whether products were timed on the device; False: all are cuBLAS's (`measure.py --quick`)

    @property
    def indices(self) -> str | None:
        """The skew as options spell it: `zipf:1.05`, `uniform`; nothing where the row does not say."""
        if self.skew is None:
            return None
        return f"zipf:{self.skew:g}" if self.skew else "uniform"

    def optimized_text(self) -> str | None:
        """XLA's optimized HLO, where it was kept.

        Raises:
            InputError: The file cannot be read.
        """
        return _text(self.optimized) if self.optimized is not None else None

    @property
    def whole_model(self) -> bool:
        """Whether the row is a model rather than one op."""
        return self.group not in ONE_OP_GROUPS

    @property
    def time_us(self) -> float | None:
        """The time a prediction is held against."""
        return self.wall_us if self.whole_model else self.busy_us

    @property
    def averaged_s(self) -> float:
        """Seconds without a pause that the time of a whole model is an average over; 0 where the row does not say."""
        return self.runs * self.wall_us * 1e-6 if self.whole_model and self.runs and self.wall_us else 0.0

    @property
    def time_name(self) -> str:
        """The measurement's field that `time_us` is."""
        return "wall_us" if self.whole_model else "busy_us"

    @property
    def sustained_us(self) -> float | None:
        """The time of one of many runs without pause; None for an op that mostly waited for the host between them."""
        if self.energy is None:
            return None
        busy = self.whole_model or (self.busy_us or 0.0) >= MOSTLY_BUSY * self.energy.run_us
        return self.energy.run_us if busy else None

    def energy_j(self, idle_watts: float) -> float | None:
        """Joules per run of the work that `time_us` times.

        Back-to-back runs of a small op leave the card waiting for the host; as `busy_us` leaves that wait out of the
        time, `idle_watts * (run - busy)` is taken out of the energy.
        """
        if self.energy is None:
            return None
        if self.whole_model or self.busy_us is None:
            return self.energy.joules
        return self.energy.joules - idle_watts * max(0.0, self.energy.run_us - self.busy_us) * 1e-6


def read_measured_programs(
    folder: Path, *, groups: Sequence[str] = (), limit: int | None = None
) -> list[MeasuredProgram]:
    """The rows of a folder, in its order.

    Args:
        folder: Laid out as `groundtruth/h200`.
        groups: Only these; all when empty.
        limit: At most so many rows.

    Raises:
        InputError: the folder or a row in it cannot be read.
        UsageError: the folder has no such group.
    """
    rows = [_row(data, folder, where) for data, where in measurement_objects(folder)]
    if not rows:
        raise InputError("no measurements in it", where=str(folder))
    known = {row.group for row in rows}
    for name in groups:
        if name not in known:
            raise UsageError(f"no group {name!r} in {folder}", where="--group", fix=nearest(name, known))
    chosen = [row for row in rows if not groups or row.group in groups]
    return chosen[:limit]


def measurement_objects(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Every measurement of a folder, with its `file:line`.

    Raises:
        InputError: The folder or a line in it cannot be read.
    """
    return _objects(_measurements(folder))


def _measurements(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder), fix="give a folder with measurements.jsonl and programs/")
    for name in ("measurements.jsonl.gz", "measurements.jsonl", "index.jsonl"):  # the last: captured, not measured
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        "neither measurements.jsonl.gz nor measurements.jsonl in it",
        where=str(folder),
        fix="lay the folder out as measurements.jsonl and programs/ID.mlir[.gz]",
    )


def _objects(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Every line's object with its `file:line`."""
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        data = json_value(line, where=where)
        if not isinstance(data, dict):
            raise InputError("not a JSON object", where=where)
        yield data, where


def _text(path: Path) -> str:
    try:
        return unpacked(path.read_bytes(), where=str(path), largest=LARGEST_TEXT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _row(data: dict[str, Any], folder: Path, where: str) -> MeasuredProgram:
    names = [data.get("id"), data.get("group")]
    if not all(isinstance(name, str) and name for name in names):
        raise InputError("a measurement needs the texts id and group", where=where)
    identifier, group = (str(name) for name in names)
    memory, energy = data.get("mem"), data.get("energy")
    return MeasuredProgram(
        id=identifier,
        group=group,
        path=_program(folder, identifier),
        busy_us=_positive(data, "busy_us", where),
        wall_us=_positive(data, "wall_us", where),
        memory_bytes=_memory(memory, where) if memory is not None else None,
        energy=_energy(energy, where) if energy is not None else None,
        skew=_skew(data, identifier, where),
        launches=_launches(data, where),
        library=str(data.get("library") or ""),
        kernel_count=_positive(data, "kernel_count", where),
        runs=round(runs) if (runs := _positive(data, "iters", where)) is not None and runs >= 1 else None,
        tuned=not data.get("quick"),
        optimized=optimized if (optimized := folder / "programs" / f"{identifier}.opt.hlo.gz").is_file() else None,
    )


def _launches(data: dict[str, Any], where: str) -> tuple[Mapping[str, Any], ...]:
    """What the profiler saw, per run; nothing where it was not asked."""
    found = data.get("kernels") or ()
    for launch in found:
        if not isinstance(launch, dict) or not all(isinstance(launch.get(key), str) for key in ("hlo_op", "kernel")):
            raise InputError(f"a kernel needs the texts hlo_op and kernel, not {launch!r}", where=where)
        for key in ("count", "us"):
            _positive(launch, key, where)
    return tuple(found)


def _skew(data: dict[str, Any], identifier: str, where: str) -> float | None:
    """`meta.zipf`, or the name's ending `-zSKEW` where a whole model has no `meta`: the exponent, 0 for uniform."""
    meta = data.get("meta")
    skew = meta.get("zipf") if isinstance(meta, dict) else None
    if skew is None and (named := _SKEW.search(identifier)):
        skew = float(named[1])
    if skew is None:
        return None
    if isinstance(skew, bool) or not isinstance(skew, int | float) or not 0 <= skew < math.inf:
        raise InputError(f"meta.zipf is {skew!r}, not an exponent of 0 or more", where=where)
    return float(skew)


def _program(folder: Path, identifier: str) -> Path:
    """Where the program lies; a missing one is the row's failure, not the folder's."""
    packed, plain = (folder / "programs" / (identifier + ending) for ending in (".mlir.gz", ".mlir"))
    return plain if plain.is_file() and not packed.is_file() else packed


def _memory(data: Any, where: str) -> int:
    keys = ("args", "out", "temp", "alias")
    if not isinstance(data, dict) or not all(isinstance(data.get(key), int) for key in keys):
        raise InputError("mem needs the whole numbers args, out, temp and alias", where=where)
    return int(data["args"] + data["out"] + data["temp"] - data["alias"])


def _energy(data: Any, where: str) -> MeasuredEnergy:
    if isinstance(data, dict):
        joules, run_us = (_positive(data, key, where) for key in ("joules_per_run", "us_per_run"))
        if joules is not None and run_us is not None:
            return MeasuredEnergy(joules=joules, run_us=run_us)
    raise InputError("energy needs joules_per_run and us_per_run", where=where)


def _positive(data: dict[str, Any], key: str, where: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{key} is {value!r}, not a time or energy", where=where)
    return float(value) or None  # zero: the profiler saw no kernel
