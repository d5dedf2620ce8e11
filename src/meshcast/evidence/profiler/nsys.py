"""Nsight Systems' tables as CSV: `nsys stats --report cuda_gpu_trace --format csv`, and `cuda_gpu_kern_sum`.

The first has a row a launch, the second one a kernel name with the sum of its launches; `nsys_table.py` knows what their columns
are called. Other reports of the same kinds are read, too: `cuda_kern_exec_trace`, `cuda_gpu_sum`, `cuda_gpu_kern_gb_sum`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from meshcast.base import InputError
from meshcast.evidence.profiler.nsys_table import LAUNCHES, SUMMARY, NsysTable, tables
from meshcast.evidence.profiler.trace import MeasuredKernel, MeasuredTrace, by_start

GRID = ("grdx", "grdy", "grdz", "blkx", "blky", "blkz", "grid", "block")
WHOLE_SHARE = 97.0  # percent of a summary's time that its rows must hold: they are rounded to a tenth each
COMMAND = "nsys stats --report cuda_gpu_trace --format csv REPORT"


def read_nsys(text: str, source: str) -> list[MeasuredTrace]:
    """The devices of a table.

    Raises:
        InputError: It has no such head, no rows, or a row that does not fit the head.
    """
    table, is_trace = _chosen(tables(text, source), source)
    table.check_units(source)
    if not table.rows:
        raise InputError("the table has no rows", where=source, fix="record a run that uses the GPU (--trace cuda)")
    devices: defaultdict[str, list[MeasuredKernel]] = defaultdict(list)
    contexts: defaultdict[str, set[str]] = defaultdict(set)
    for line, row in table.rows:
        try:
            kernel = _launch(table, row) if is_trace else _sum(table, row)
        except ValueError as error:
            raise InputError(
                f"a row that does not fit the head: {error}", where=f"{source}:{line}", fix="write the table again"
            ) from None
        device = table.text(row, "device")
        devices[device].append(kernel)
        contexts[device].add(table.text(row, "context"))
    notes = _doubts(table, is_trace=is_trace)
    return [
        MeasuredTrace(
            source=source,
            format="nsys-trace" if is_trace else "nsys-summary",
            device=_device(name)[0],
            device_name=_device(name)[1],
            kernels=by_start(kernels) if is_trace else tuple(kernels),
            notes=(*notes, *_of_contexts(_device(name)[0], contexts[name])),
        )
        for name, kernels in sorted(devices.items())
    ]


def _chosen(found: list[NsysTable], source: str) -> tuple[NsysTable, bool]:
    """The table to read, and whether it is one of launches.

    Raises:
        InputError: There is none, none of the device's work, or several of launches.
    """
    of_device = [table for table in found if not ("thread" in table.columns and "device" not in table.columns)]
    if not of_device:
        raise InputError(
            "no table of Nsight Systems: no head with Start, Duration, Name or Total Time, Instances, Name"
            if not found
            else "a table of the host's calls (it has a thread and no device)",
            where=source if not found else f"{source}:{found[0].line}",
            fix=COMMAND,
        )
    launches = [table for table in of_device if table.has(LAUNCHES)]
    if len(launches) > 1:
        raise InputError(
            f"{len(launches)} tables of launches, at lines " + ", ".join(str(table.line) for table in launches),
            where=source,
            fix="put each into a file, and give --measured for each",
        )
    return (launches[0], True) if launches else (next(t for t in of_device if t.has(SUMMARY)), False)


def _doubts(table: NsysTable, *, is_trace: bool) -> list[str]:
    """What makes it doubtful that the table is whole."""
    said = []
    if table.open_end is not None:
        said.append(
            f"line {table.open_end}, the last row, has no end of line, as nsys writes one: the table may be cut off there"
        )
    if not is_trace and table.units.get("share") == "%":
        try:
            share = sum(table.number(row, "share") for _, row in table.rows)
        except ValueError:
            return said
        if share < WHOLE_SHARE:
            said.append(f"the rows of this summary hold {share:.0f} % of the time that nsys summed: others are missing")
    return said


def _of_contexts(device: str, contexts: set[str]) -> list[str]:
    if len(contexts) < 2:
        return []
    return [
        f"{device} has kernels of {len(contexts)} contexts ({', '.join(sorted(contexts))}): "
        "several processes, if that is what they are, are taken as one"
    ]


def _device(text: str) -> tuple[str, str]:
    """("GPU:0", "NVIDIA H200") of "NVIDIA H200 (0)"; a number alone is the device's."""
    match = re.match(r"^(.*?)\s*\((\d+)\)$", text)
    if match:
        return f"GPU:{match[2]}", match[1]
    return (f"GPU:{text}", "") if text.isdigit() else ("GPU", text)


def _name(table: NsysTable, row: list[str]) -> str:
    name = table.text(row, "name")
    if not name:
        raise ValueError("a kernel without a name")
    return name


def _launch(table: NsysTable, row: list[str]) -> MeasuredKernel:
    streams = [table.text(row, part) for part in ("context", "stream") if part in table.columns]
    return MeasuredKernel(
        name=_name(table, row),
        start=table.seconds(row, "start"),
        duration=table.seconds(row, "duration"),
        stream="/".join(streams),  # streams are numbered anew in each context
        shape=",".join(table.text(row, part) for part in GRID if part in table.columns),
    )


def _sum(table: NsysTable, row: list[str]) -> MeasuredKernel:
    return MeasuredKernel(
        name=_name(table, row),
        start=0.0,
        duration=table.seconds(row, "total"),
        count=int(table.number(row, "instances")),
    )
