"""Nsight Systems' tables as CSV: `nsys stats --report cuda_gpu_trace --format csv`, and `cuda_gpu_kern_sum`.

The first has a row a launch, the second one a kernel name with the sum of its launches. Columns are found by their heads, whose
parentheses give the unit; lines before the head are what nsys says of its progress.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping

from meshcast.errors import InputError
from meshcast.measured.trace import MeasuredKernel, MeasuredTrace, by_start

TRACE_HEAD = ("Start", "Duration", "Name")
SUMMARY_HEAD = ("Total Time", "Instances", "Name")
TIMES = ("Start", "Duration", "Total Time")
UNITS = {"ns": 1e-9, "nsec": 1e-9, "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0}
_HEAD = re.compile(r"^\s*(.*?)\s*(?:\(([^)]*)\))?\s*$")


def head_of(text: str) -> tuple[int, dict[str, tuple[int, str]]] | None:
    """The line of the head, and the place and unit of each column by its name; None where it is no table of Nsight's."""
    for number, line in enumerate(text.splitlines()[:50]):
        cells = next(csv.reader([line]), [])
        found: dict[str, tuple[int, str]] = {}
        for place, cell in enumerate(cells):
            match = _HEAD.match(cell)
            assert match is not None  # it matches anything
            found.setdefault(match[1], (place, match[2] or ""))
        if set(TRACE_HEAD) <= set(found) or set(SUMMARY_HEAD) <= set(found):
            return number, found
    return None


def read_nsys(text: str, source: str) -> list[MeasuredTrace]:
    """The devices of a table.

    Raises:
        InputError: It has no such head, no rows, or a row that does not fit the head.
    """
    head = head_of(text)
    if head is None:
        raise InputError(
            "no table of Nsight Systems: no head with " + ", ".join(TRACE_HEAD) + " or " + ", ".join(SUMMARY_HEAD),
            where=source,
            fix="nsys stats --report cuda_gpu_trace --format csv REPORT",
        )
    line, found = head
    columns = {name: (place, _scale(name, unit, source)) for name, (place, unit) in found.items()}
    rows = [
        (line + 2 + number, row)
        for number, row in enumerate(csv.reader(io.StringIO("\n".join(text.splitlines()[line + 1 :]))))
        if row
    ]
    if not rows:
        raise InputError("the table has no rows", where=source, fix="record a run that uses the GPU (--trace cuda)")
    read = _launch if set(TRACE_HEAD) <= set(columns) else _sum
    devices: defaultdict[str, list[MeasuredKernel]] = defaultdict(list)
    for number, row in rows:
        try:
            cells = {
                name: (row[place].replace(",", ""), unit) for name, (place, unit) in columns.items() if name != "Name"
            }
            devices[cells["Device"][0] if "Device" in cells else ""].append(read(row[columns["Name"][0]], cells))
        except (IndexError, ValueError) as error:
            raise InputError(
                f"a row that does not fit the head: {error}", where=f"{source}:{number}", fix="write the table again"
            ) from None
    return [
        MeasuredTrace(
            source=source,
            format="nsys-trace" if read is _launch else "nsys-summary",
            device=_device(name)[0],
            device_name=_device(name)[1],
            kernels=by_start(kernels) if read is _launch else tuple(kernels),
        )
        for name, kernels in sorted(devices.items())
    ]


def _scale(column: str, unit: str, source: str) -> float:
    """Seconds in a column's unit; 1 where it holds no time that is read.

    Raises:
        InputError: It holds one, and its unit is none that we know.
    """
    if column not in TIMES:
        return 1.0
    if unit not in UNITS:
        said = f"is in {unit!r}" if unit else "has no unit"
        raise InputError(
            f"column {column!r} {said}", where=source, fix=f"let nsys write it as {column} (ns): " + ", ".join(UNITS)
        )
    return UNITS[unit]


def _device(text: str) -> tuple[str, str]:
    """("GPU:0", "NVIDIA H200") of "NVIDIA H200 (0)"."""
    match = re.match(r"^(.*?)\s*\((\d+)\)$", text)
    return (f"GPU:{match[2]}", match[1]) if match else ("GPU", text)


def _launch(name: str, cells: Mapping[str, tuple[str, float]]) -> MeasuredKernel:
    def seconds(column: str) -> float:
        value, unit = cells[column]
        return float(value) * unit

    grid = [cells[column][0] for column in ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ") if column in cells]
    return MeasuredKernel(
        name=name,
        start=seconds("Start"),
        duration=seconds("Duration"),
        stream=cells["Strm"][0] if "Strm" in cells else "",
        shape=",".join(grid),
    )


def _sum(name: str, cells: Mapping[str, tuple[str, float]]) -> MeasuredKernel:
    total, unit = cells["Total Time"]
    return MeasuredKernel(name=name, start=0.0, duration=float(total) * unit, count=int(cells["Instances"][0]))
