"""Kernels with times from a folder of measured programs, laid out as `validate programs` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshcast.base import MeshcastError
from meshcast.estimate import (
    InterpolatorRow,
    MeasuredProgram,
    Split,
    chosen_half,
    read_measured_programs,
    reference_model,
    settled_clock,
    waits_for_host,
)
from meshcast.evidence.calibrate.pairing import TimedKernel
from meshcast.evidence.calibrate.timed import timed_kernels, timed_model
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind, lower
from meshcast.partition import partition
from meshcast.programs import CaptureOptions, load
from meshcast.workload import ReadOptions, read_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A program's kernels with their times, or why there are none."""

    program: MeasuredProgram
    rows: tuple[InterpolatorRow, ...] = ()
    why: str = ""


def collect_folder(folder: Path, device: Device, split: Split = "all") -> Iterator[Collected]:
    """Every program of a split, in the folder's order, as measured on a device.

    Raises:
        InputError: the folder or a row in it cannot be read.
    """
    for program in read_measured_programs(folder):
        if chosen_half(program.id, split, whole_model=program.whole_model):
            try:
                yield collect_program(program, device)
            except MeshcastError as error:
                yield Collected(program=program, why=error.message)


def at_full_clock(
    found: Sequence[TimedKernel], modelled: Sequence[tuple[Kernel, int]], device: Device
) -> Iterator[TimedKernel]:
    """Times as they were without the power cap.

    Programs are measured in runs back to back, long products among them at the clock that the cap leaves
    (`estimate.power`); a probe is run a few times and never gets there. What the cap makes of a program is
    a prediction's own business, so its kernels are kept at the full clock.
    """
    draw = reference_model(device, 0.0).estimate([kernel for kernel, _ in modelled], device).draw
    if draw is None:
        yield from found
        return
    counts = np.array([count for _, count in modelled], dtype=np.float64)
    share = settled_clock(draw, counts, device, "burst")
    drawn = reference_model(device, 0.0).estimate([kernel for kernel, _ in found], device).draw
    assert drawn is not None
    for (kernel, seconds), clocked in zip(found, drawn.clocked, strict=True):
        yield kernel, seconds / drawn.law.slowdown(float(clocked), share)


def chosen_by_tuning(kernel: Kernel) -> bool:
    """Whether a launch is one that XLA chooses by timing, and chooses otherwise than the library alone.

    On an H200 products of f32 (TF32) that were tuned ran faster for our model than those by cuBLAS alone (medians of measured
    over modelled: 0.92 of 11, against 1.4), though long ones of public programs did not; those of two bytes are cuBLAS's anyway.
    """
    return kernel.kind is KernelKind.GEMM and kernel.dtype == "f32"


def collect_program(program: MeasuredProgram, device: Device) -> Collected:
    """One program's kernels with their times.

    Raises:
        MeshcastError: It cannot be read or lowered.
    """
    timed = all("count" in launch and "us" in launch for launch in program.launches)
    if not program.launches or not timed or program.busy_us is None:
        return Collected(program=program, why="no kernels were measured")
    if program.whole_model and program.optimized is None:
        return Collected(program=program, why="a whole model without its optimized HLO: its kernels have no names")
    captured = partition(load(program.path, CaptureOptions(platform="cuda")))
    workload = read_workload(captured, ReadOptions(skew=program.skew or 0.0))
    modelled = [(k, n) for k, n in lower(workload, backend="xla-gpu").schedule.walk() if k.collective is None]
    hlo = program.optimized_text()
    if program.whole_model and hlo is not None:
        found = timed_model(program.launches, modelled, hlo, program.busy_us)
    else:
        found = timed_kernels(program.launches, modelled, hlo, program.busy_us)
    rows = tuple(
        InterpolatorRow(
            kernel=kernel, seconds=seconds, program=program.id, common=program.tuned or not chosen_by_tuning(kernel)
        )
        for kernel, seconds in at_full_clock(found, modelled, device)
        if not waits_for_host(kernel)  # its launches are a part of its time
    )
    return Collected(program=program, rows=rows, why="" if rows else "several kernels that nothing tells apart")
