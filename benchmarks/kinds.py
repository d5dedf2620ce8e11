"""Errors of a fidelity on the probes of a profile, by family: `python -m benchmarks.kinds PROFILE.jsonl.gz [--fidelity ...]`.

Two halves by a hash of the probes' ids: the models of the newer families (`src/meshcast/estimate/gpu`) were made while looking
at the first, the second was left alone. Every kernel that has a time of its own counts once. With `--shared FIDELITY` only those
count that this fidelity answers for, too, so that two tables hold the same kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
from collections import defaultdict
from pathlib import Path

from meshcast.estimate import Estimator, load_estimator, load_simulator, read_profile
from meshcast.hardware import Device, resolve

FIDELITIES = ("profiled", "analytical", "simulated")


def looked_at(probe: str) -> bool:
    """Whether a probe is of the half that models were made with."""
    return hashlib.sha256(probe.encode()).digest()[0] % 2 == 0


def error(offs: list[float]) -> str:
    """The geometric mean of the factor by which predictions are off, less one; and the median."""
    sizes = [abs(off) for off in offs]
    return f"{math.expm1(statistics.mean(sizes)):.1%} ({math.expm1(statistics.median(sizes)):.1%})" if sizes else "-"


def estimator_of(fidelity: str, device: Device) -> Estimator:
    """The estimator that a fidelity asks first on a device."""
    return load_simulator(None, device) if fidelity == "simulated" else load_estimator(fidelity)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--fidelity", choices=FIDELITIES, default="analytical")
    parser.add_argument("--shared", choices=FIDELITIES)
    asked = parser.parse_args()
    profile = read_profile(asked.profile)
    device = resolve(profile.header.device).device
    estimator = estimator_of(asked.fidelity, device)
    answering = [estimator, *([estimator_of(asked.shared, device)] if asked.shared else [])]
    rows = [
        row for row in profile.timed_kernels() if all(each.supports(row[0], device).level != "no" for each in answering)
    ]
    times = estimator.estimate([kernel for kernel, _, _ in rows], device)
    offs: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    inside: defaultdict[str, list[bool]] = defaultdict(list)
    columns = (times.time.tolist(), times.low.tolist(), times.high.tolist())
    for (_, seconds, probe), time, low, high in zip(rows, *columns, strict=True):
        if seconds <= 0:
            continue
        for family in (probe.partition(":")[0], "all"):
            offs[family, looked_at(probe)].append(math.log(time / seconds))
            inside[family].append(low <= seconds <= high)
    print("| family | kernels | left alone: error (median) | made with: error (median) | in interval |")
    print("|---|---:|---:|---:|---:|")
    for family in sorted(inside, key=lambda name: (name == "all", name)):
        alone, made_with = offs[family, False], offs[family, True]
        share = statistics.mean(inside[family])
        print(f"| {family} | {len(alone) + len(made_with)} | {error(alone)} | {error(made_with)} | {share:.0%} |")


if __name__ == "__main__":
    main()
