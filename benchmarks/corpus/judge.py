"""Judges the times of kernels on measured programs: `python -m benchmarks.corpus.judge FOLDER... [--fidelity analytical]`.

FOLDER holds measured programs with XLA's optimized HLO (`data/measured/h200-corpus-apart`). Every launch that the HLO names is
predicted as the kernel that XLA made of it, so that nothing of our lowering is judged; a program's time is the sum over its
launches. Products of f32 in programs that were compiled with cuBLAS alone (`"quick": true`) are left out: XLA times Triton's
kernels against them, and takes those more often than not. Prints the error by library:
`exp(mean |ln(predicted / measured)|) - 1`, the median, the bias, and the share of programs that lie within the sum of their
kernels' intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshcast.estimate import Estimator, load_estimator
from meshcast.evidence.calibrate.measured import collect_folder
from meshcast.hardware import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A program's kernels in all, in seconds."""

    library: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def off(self) -> float:
        """The logarithm of predicted over measured."""
        return math.log(self.predicted / self.measured)


def judged_programs(folder: Path, estimator: Estimator, device_name: str) -> Iterator[Judged]:
    """The programs of a folder that have kernels with times."""
    device = resolve(device_name).device
    path = folder / "measurements.jsonl"
    libraries = {row["id"]: row.get("library", "") for row in map(json.loads, path.read_text().splitlines())}
    for program in collect_folder(folder, device):
        rows = [row for row in program.rows if row.common and estimator.supports(row.kernel, device).level != "no"]
        if program.why:
            print(f"{program.program.id}: {program.why}", file=sys.stderr)
        if not rows:
            continue
        times = estimator.estimate([row.kernel for row in rows], device)
        yield Judged(
            library=libraries[program.program.id],
            measured=sum(row.seconds for row in rows),
            predicted=float(times.time.sum()),
            low=float(times.low.sum()),
            high=float(times.high.sum()),
        )


def line(name: str, programs: list[Judged]) -> str:
    """One line of the table."""
    offs = [program.off for program in programs]
    sizes = [abs(off) for off in offs]
    inside = statistics.mean(program.low <= program.measured <= program.high for program in programs)
    mean, median = math.expm1(statistics.mean(sizes)), math.expm1(statistics.median(sizes))
    bias = math.expm1(statistics.mean(offs))
    return f"{name:28} {len(programs):4}  {mean:7.1%}  {median:7.1%}  {bias:+7.1%}  {inside:7.0%}"


def main() -> None:
    """Judges the folders that are named and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--fidelity", choices=("profiled", "analytical"), default="profiled")
    asked = parser.parse_args()
    estimator = load_estimator(asked.fidelity)
    found = [judged for folder in asked.folders for judged in judged_programs(folder, estimator, asked.on)]
    by_library: defaultdict[str, list[Judged]] = defaultdict(list)
    for judged in found:
        by_library[judged.library].append(judged)
    print(f"{'library':28} {'rows':>4}  {'geomean':>7}  {'median':>7}  {'bias':>7}  {'inside':>7}")
    for library, programs in sorted(by_library.items()):
        print(line(library, programs))
    print(line("all", found))


if __name__ == "__main__":
    main()
