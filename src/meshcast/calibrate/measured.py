"""Kernels with times from a folder of measured programs, laid out as `validate programs` reads it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshcast.calibrate.timed import timed_kernels, timed_model
from meshcast.capture.target import CaptureOptions, load
from meshcast.errors import InputError, MeshcastError
from meshcast.estimate.profiled import Row
from meshcast.lower import lower
from meshcast.options import Options
from meshcast.partition import partition
from meshcast.profiles.halves import Split, chosen
from meshcast.profiles.programs import MeasuredProgram, read_measured_programs
from meshcast.workload import ReadOptions, read_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A program's kernels with their times, or why there are none."""

    program: MeasuredProgram
    rows: tuple[Row, ...] = ()
    why: str = ""


def collect_folder(folder: Path, split: Split = "all") -> Iterator[Collected]:
    """Every program of a split, in the folder's order.

    Raises:
        InputError: the folder or a row in it cannot be read.
    """
    for program in read_measured_programs(folder):
        if chosen(program.id, split, whole_model=program.whole_model):
            try:
                yield collect_program(program)
            except MeshcastError as error:
                yield Collected(program=program, why=error.message)


def collect_program(program: MeasuredProgram) -> Collected:
    """One program's kernels with their times.

    Raises:
        MeshcastError: It cannot be read or lowered.
    """
    timed = all("count" in launch and "us" in launch for launch in program.launches)
    if not program.launches or not timed or program.busy_us is None:
        return Collected(program=program, why="no kernels were measured")
    if program.whole_model and program.optimized is None:
        return Collected(program=program, why="a whole model without its optimized HLO: its kernels have no names")
    skew = Options(indices=program.indices or "uniform").index_skew
    workload = read_workload(partition(load(program.path, CaptureOptions(platform="cuda"))), ReadOptions(skew=skew))
    modelled = [(k, n) for k, n in lower(workload, backend="xla-gpu").schedule.walk() if k.collective is None]
    hlo = _text(program.optimized) if program.optimized else None
    if program.whole_model and hlo is not None:
        found = timed_model(program.launches, modelled, hlo, program.busy_us)
    else:
        found = timed_kernels(program.launches, modelled, hlo, program.busy_us)
    rows = tuple(Row(kernel=kernel, seconds=seconds, probe=program.id) for kernel, seconds in found)
    return Collected(program=program, rows=rows, why="" if rows else "several kernels that nothing tells apart")


def _text(path: Path) -> str:
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
