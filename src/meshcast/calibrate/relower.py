"""Our own kernels beside each measured row: the probe's program captured, read and lowered as any target is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.calibrate.compiling import unpack
from meshcast.calibrate.probe import parse
from meshcast.calibrate.suite import build
from meshcast.capture import Program, capture, from_bytes
from meshcast.errors import MeshcastError
from meshcast.lower import lower
from meshcast.partition import partition
from meshcast.profiles.file import Header, Row, read, write
from meshcast.profiles.kernels import kernel_to_json
from meshcast.version import VERSION
from meshcast.workload import ReadOptions, read_workload

_PLATFORMS = {"gpu": "cuda", "tpu": "tpu", "cpu": "cpu"}
_BACKENDS = {"tpu": "xla-tpu"}  # others are lowered as GPUs are, as in a prediction


def lowered_row(row: Row, backend: str) -> Row:
    """The row with our kernels, `[kernel, count]` each; one that ran but cannot be lowered says why."""
    kept = {name: value for name, value in row.items() if name not in ("lowered", "not_lowered")}
    if "error" in row:
        return kept
    try:
        skew = float(parse(row["id"]).arguments.get("skew", 0.0))
        workload = read_workload(partition(_program(row, backend)), ReadOptions(skew=skew))
        schedule = lower(workload, backend=_BACKENDS.get(backend, "xla-gpu")).schedule
    except MeshcastError as error:
        return kept | {"not_lowered": str(error)}
    counts: dict[str, list[Any]] = {}
    for kernel, count in schedule.walk():
        value = kernel_to_json(replace(kernel, name=""))
        counts.setdefault(repr(value), [value, 0])[1] += count
    return kept | {"lowered": list(counts.values())}


def _program(row: Row, backend: str) -> Program:
    """A row's program: as it was lowered on the device where it brings that along, else traced again."""
    if "stablehlo" in row:
        return from_bytes(unpack(row["stablehlo"]).encode(), name="probe", where=row["id"])
    body = build(parse(row["id"]))
    options = {"donate_argnums": body.donate} if body.donate else None
    return capture(body.function, *body.args, name="probe", platform=_PLATFORMS[backend], options=options)


def relower_rows(header: Header, rows: list[Row], step: Callable[[], None]) -> Iterator[Row]:
    """Every row with our kernels of today; `step` is called after each."""
    for row in rows:
        yield lowered_row(row, header.backend)
        step()


def relower_file(path: Path, listen: Callable[[int, int], None]) -> tuple[int, int]:
    """Lowers the rows of a file again and writes it; how many rows, and how many of them could not be lowered.

    Raises:
        InputError: The file cannot be read or written.
    """
    header, rows = read(path)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        listen(done, len(rows))

    lowered = list(relower_rows(header, rows, step))
    write(path, replace(header, lowered_by=VERSION), lowered)
    return len(lowered), sum("not_lowered" in row for row in lowered)
