"""Remakes the intervals of `analytical` on GPUs: `python -m meshcast.evidence.fits.gpu_intervals DIR... [--check D] [--write F]`.

Reads folders of measured programs with XLA's optimized HLO (`data/measured/h200-corpus`): every launch is timed as the kernel
that XLA made of it. A kernel's interval is `[q_t, q_(1-t)]` times its prediction, the quantiles of measured over predicted over
kernels of its kind; of a program it is the sum over its launches. One number is fitted, the tail t: the largest, and so the
narrowest intervals, for which `COVERAGE` of the programs lie inside. `--check` judges programs that nothing was fitted to.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import InputError, write_whole
from meshcast.estimate import GpuAnalytical, GpuCalibration, shipped_gpu_calibration
from meshcast.evidence.calibrate.measured import collect_folder
from meshcast.evidence.fits.fitting import quantiles
from meshcast.hardware import Device, resolve
from meshcast.lower import Kernel

COVERAGE = 0.9
TAILS = tuple(percent / 100 for percent in range(20, 0, -1))
MIN_KERNELS = 100  # of a kind, below which its quantiles are those of all
_SECTION = "[intervals]\n"

Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """A program's launches with the seconds of each."""

    kernels: tuple[Kernel, ...]
    seconds: tuple[float, ...]


def timed_programs(folder: Path, device: Device) -> Iterator[TimedProgram]:
    """The programs of a folder that have launches with times.

    Raises:
        InputError: The folder or a row in it cannot be read.
    """
    model = GpuAnalytical()
    for program in collect_folder(folder, device):
        rows = [row for row in program.rows if row.common and model.supports(row.kernel, device).level != "no"]
        if rows:
            yield TimedProgram(tuple(row.kernel for row in rows), tuple(row.seconds for row in rows))


def kernel_bounds(programs: Sequence[TimedProgram], device: Device, tail: float) -> dict[str, tuple[float, float]]:
    """Quantiles of measured over predicted by kind of kernel, those of all under `default`."""
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    model = _model({})
    for program in programs:
        times = model.estimate(program.kernels, device).time
        for kernel, seconds, time in zip(program.kernels, program.seconds, times.tolist(), strict=True):
            ratios[kernel.kind.value].append(seconds / time)
    bounds = quantiles(ratios, low=tail, high=1 - tail)
    return {kind: ends for kind, ends in bounds.items() if kind == "default" or len(ratios[kind]) >= MIN_KERNELS}


def coverage(programs: Sequence[TimedProgram], device: Device, bounds: Bounds) -> float:
    """The share of programs whose measured time lies within the sum of their launches' intervals."""
    model, inside = _model(bounds), 0
    for program in programs:
        found = model.estimate(program.kernels, device)
        inside += float(found.low.sum()) <= sum(program.seconds) <= float(found.high.sum())
    return inside / len(programs)


def fitted_bounds(
    programs: Sequence[TimedProgram], device: Device, share: float = COVERAGE
) -> tuple[float, dict[str, tuple[float, float]]]:
    """The largest tail whose intervals hold `share` of the programs, and these intervals.

    Raises:
        InputError: There is no program, or no tail holds so many.
    """
    if not programs:
        raise InputError("no program has launches with times")
    for tail in TAILS:
        bounds = kernel_bounds(programs, device, tail)
        if coverage(programs, device, bounds) >= share:
            return tail, bounds
    raise InputError(f"less than {share:.0%} of the programs lie within quantiles of {TAILS[-1]:.0%}")


def with_intervals(text: str, bounds: Bounds, heading: Sequence[str]) -> str:
    """A parameter file with other intervals; everything before the comments of that section stays.

    Raises:
        InputError: The file has no section of intervals.
    """
    before, found, _ = text.partition(_SECTION)
    if not found:
        raise InputError("the file has no section [intervals]")
    kept = before.rstrip().split("\n")
    while kept and kept[-1].startswith("#"):
        kept.pop()
    lines = [f"{kind} = [{low:.3f}, {high:.3f}]" for kind, (low, high) in sorted(bounds.items())]
    return "\n".join([*kept, *(f"# {line}" for line in heading), _SECTION.rstrip(), *lines]) + "\n"


def _model(bounds: Bounds) -> GpuAnalytical:
    return GpuAnalytical(GpuCalibration(parameters=shipped_gpu_calibration().parameters, intervals=dict(bounds)))


def main() -> None:
    """Fits, judges and, if asked, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--check", type=Path, action="append", default=[], help="programs to judge by, never to fit on")
    parser.add_argument("--write", type=Path, help="the parameter file, e.g. src/meshcast/estimate/data/gpu.toml")
    asked = parser.parse_args()
    device = resolve(asked.on).device
    programs = [program for folder in asked.folders for program in timed_programs(folder, device)]
    tail, bounds = fitted_bounds(programs, device)
    kernels = sum(len(program.kernels) for program in programs)
    heading = [
        f"Measured over predicted: {tail:.0%} and {1 - tail:.0%} quantiles over {kernels:,} kernels of {len(programs)} programs,",
        f"of which {coverage(programs, device, bounds):.0%} lie in the sum of their kernels' intervals"
        f" ({coverage(programs, device, shipped_gpu_calibration().intervals):.0%} before)."
        " `python -m meshcast.evidence.fits.gpu_intervals`.",
    ]
    for folder in asked.check:
        apart = list(timed_programs(folder, device))
        heading.append(f"Of {len(apart)} programs that nothing was fitted to {coverage(apart, device, bounds):.0%} do.")
    print("\n".join([*heading, *(f"{kind} {low:.2f} {high:.2f}" for kind, (low, high) in sorted(bounds.items()))]))
    if asked.write:
        write_whole(asked.write, with_intervals(asked.write.read_text(encoding="utf-8"), bounds, heading))


if __name__ == "__main__":
    main()
