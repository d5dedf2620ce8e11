"""Our own kernels beside each measured row: the probe's program captured, read and lowered as any target is.

`lowered` are all of them; `paired` are those that a time could be put beside: `[kernel, us]` each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshcast.base import VERSION, MeshcastError
from meshcast.estimate import ProfileHeader, ProfileRow, kernel_to_json, read_rows, write_rows
from meshcast.evidence.calibrate.compiling import unpack
from meshcast.evidence.calibrate.kept_hlo import hlo_folder, read_hlo
from meshcast.evidence.calibrate.probe import parse
from meshcast.evidence.calibrate.suite import build
from meshcast.evidence.calibrate.timed import timed_kernels
from meshcast.lower import Kernel, lower
from meshcast.partition import partition
from meshcast.programs import Program, capture, from_bytes
from meshcast.workload import ReadOptions, read_workload

_PLATFORMS = {"gpu": "cuda", "tpu": "tpu", "cpu": "cpu"}
_BACKENDS = {"tpu": "xla-tpu"}  # others are lowered as GPUs are, as in a prediction


_OURS = ("lowered", "not_lowered", "paired")


def lowered_row(row: ProfileRow, backend: str, hlo: str | None = None) -> ProfileRow:
    """The row with our kernels, `[kernel, count]` each; one that ran but cannot be lowered says why.

    Args:
        row: What was measured.
        backend: What it was measured on: cpu, gpu or tpu.
        hlo: What XLA compiled the probe to, where that was kept: it tells the kernels of a probe apart.
    """
    kept = {name: value for name, value in row.items() if name not in _OURS}
    if "error" in row:
        return kept
    try:
        skew = float(parse(row["id"]).arguments.get("skew", 0.0))
        workload = read_workload(partition(_program(row, backend)), ReadOptions(skew=skew))
        schedule = lower(workload, backend=_BACKENDS.get(backend, "xla-gpu")).schedule
        kernels = [(replace(kernel, name=""), count) for kernel, count in schedule.walk()]
        paired = _paired(row, kernels, hlo)
    except MeshcastError as error:
        return kept | {"not_lowered": str(error)}
    counts: dict[str, list[Any]] = {}
    for kernel, count in kernels:
        value = kernel_to_json(kernel)
        counts.setdefault(repr(value), [value, 0])[1] += count
    return kept | {"lowered": list(counts.values())} | ({"paired": paired} if paired else {})


def _paired(row: ProfileRow, kernels: Sequence[tuple[Kernel, int]], hlo: str | None) -> list[list[Any]]:
    """`[kernel, us]` of every kernel that has a time of its own; equal ones with equal times once."""
    found: dict[str, list[Any]] = {}
    for kernel, seconds in timed_kernels(row.get("kernels", ()), kernels, hlo, row["busy_us"]):
        pair = [kernel_to_json(kernel), round(seconds * 1e6, 4)]
        found[repr(pair)] = pair
    return list(found.values())


def _program(row: ProfileRow, backend: str) -> Program:
    """A row's program: as it was lowered on the device where it brings that along, else traced again."""
    if "stablehlo" in row:
        return from_bytes(unpack(row["stablehlo"]).encode(), name="probe", where=row["id"])
    body = build(parse(row["id"]))
    options = {"donate_argnums": body.donate} if body.donate else None
    return capture(body.function, *body.args, name="probe", platform=_PLATFORMS[backend], options=options)


def relower_rows(
    header: ProfileHeader, rows: list[ProfileRow], step: Callable[[], None], hlo: Mapping[str, str] | None = None
) -> Iterator[ProfileRow]:
    """Every row with our kernels of today; `step` is called after each."""
    for row in rows:
        yield lowered_row(row, header.backend, (hlo or {}).get(row["id"]))
        step()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relowered:
    """How many rows a file has, how many of them could not be lowered, and how many have kernels with times."""

    rows: int
    not_lowered: int
    paired: int


def relower_file(path: Path, listen: Callable[[int, int], None], hlo: Path | None = None) -> Relowered:
    """Lowers the rows of a file again and writes it.

    Args:
        path: The profile.
        listen: Told how many of how many rows are done.
        hlo: The folder of the probes' optimized HLO; the one that was kept beside the profile by default, if any.

    Raises:
        InputError: The file cannot be read or written.
    """
    header, rows = read_rows(path)
    texts = read_hlo(hlo or hlo_folder(path), needed=hlo is not None)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        listen(done, len(rows))

    lowered = list(relower_rows(header, rows, step, texts))
    write_rows(path, replace(header, lowered_by=VERSION), lowered)
    return Relowered(
        rows=len(lowered),
        not_lowered=sum("not_lowered" in row for row in lowered),
        paired=sum("paired" in row for row in lowered),
    )
