"""Judges the times of kernels on the programs of `benchmarks/walks.py`: `python -m benchmarks.walks_table FOLDER`.

FOLDER holds what was measured (`data/measured/h200-walks/apart`). Every launch that the optimized HLO names is predicted by
`analytical` as the kernel that XLA made of it. Prints the error by kind, `exp(mean |ln(predicted / measured)|) - 1`, and the
median of predicted over measured.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path

from meshcast.estimate import load_estimator, read_measured_programs
from meshcast.hardware import resolve
from meshcast.lower import lower_hlo


def offs_by_kind(folder: Path, device_name: str) -> dict[str, list[float]]:
    """Logarithms of predicted over measured times of all launches, by the first word of their program's id."""
    estimator, device = load_estimator("analytical"), resolve(device_name).device
    found: defaultdict[str, list[float]] = defaultdict(list)
    for program in read_measured_programs(folder):
        hlo = program.optimized_text()
        if hlo is None:
            continue
        measured: defaultdict[str, float] = defaultdict(float)
        for launch in program.launches:
            measured[launch["hlo_op"]] += launch["us"] * 1e-6
        for kernel, count in lower_hlo(hlo).schedule.walk():
            if kernel.collective is None and measured.get(kernel.name):
                seconds = float(estimator.estimate([kernel], device).time[0]) * count
                found[program.id.partition("-")[0]].append(math.log(seconds / measured[kernel.name]))
    return dict(found)


def main() -> None:
    """Judges a folder and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", default="h200")
    asked = parser.parse_args()
    for kind, offs in sorted(offs_by_kind(asked.folder, asked.on).items()):
        error = math.expm1(statistics.mean(map(abs, offs)))
        print(f"{kind:10} {len(offs):4}  {error:7.1%}  {math.exp(statistics.median(offs)):5.2f}")


if __name__ == "__main__":
    main()
