"""Errors of measured programs with each library left out: `python -m benchmarks.corpus.left_out FOLDER... [--profile FILE...]`.

`profiled` has the kernels of these folders among its own, so that what it says of them tells nothing. Here every program is
predicted from the probes of the profiles and the folders' other libraries alone, with the kernels that XLA made of it and the
settings of the shipped families. Prints the error of whole programs, `exp(mean |ln(predicted / measured)|) - 1`, their median
and the share within the sum of their kernels' intervals, for `analytical` and `profiled`; then, for every family of kernels, its
share of the programs' times, and the sums of |predicted - measured| and of predicted - measured over the program's time, as a
mean over programs: what a better model of that family could gain at most.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meshcast.estimate import InterpolatorRow, read_profile
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.programs import is_program
from meshcast.estimate.profiled.features import Place, place
from meshcast.estimate.profiled.interpolation import FACTORS, FOLDS, LARGEST_Y, KernelFamily, outliers_doubted, predict
from meshcast.estimate.profiled.interpolator import Interpolator, shipped
from meshcast.evidence.calibrate.measured import collect_folder
from meshcast.hardware import Device, resolve

FEWEST = 20  # rows of a family that are judged by each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A measured kernel, and the library of its program; a probe is a library of its own."""

    row: InterpolatorRow
    library: str
    judged: bool


def collected(folders: Sequence[Path], profiles: Sequence[Path], device: Device) -> list[Timed]:
    """All kernels with times."""
    found = [
        Timed(row=InterpolatorRow(kernel=kernel, seconds=seconds, program=probe), library=probe, judged=False)
        for path in profiles
        for kernel, seconds, probe in read_profile(path).timed_kernels()
    ]
    for folder in folders:
        for program in collect_folder(folder, device):
            library = program.program.library or program.program.id
            found += [Timed(row=row, library=library, judged=row.common) for row in program.rows]
    return [each for each in found if each.row.seconds > 0]


def families(rows: Sequence[Timed], known: Interpolator, device: Device) -> dict[str, tuple[KernelFamily, Array]]:
    """Families with the shipped settings, and the library of each of their rows."""
    kept = list(rows)
    kept += [
        replace(each, row=replace(each.row, kernel=replace(each.row.kernel, tile=0, warps=0, programs=0)))
        for each in rows
        if is_program(each.row.kernel)
    ]
    once = list({(each.row.program, each.row.kernel.cost_key): each for each in kept}.values())
    modelled = GpuAnalytical().estimate([each.row.kernel for each in once], device).time
    grouped: defaultdict[str, list[tuple[Place, float, Timed]]] = defaultdict(list)
    for each, seconds in zip(once, modelled.tolist(), strict=True):
        where = place(each.row.kernel, device)
        grouped[where[0]].append((where, math.log(each.row.seconds / seconds), each))
    found = {}
    for name, members in grouped.items():
        settings = known.families.get(name)
        common = np.array([each.row.common for _, _, each in members])
        family = KernelFamily(
            places=np.array([where[1] for where, _, _ in members], dtype=np.float64),
            y=np.clip(np.array([y for _, y, _ in members]), -LARGEST_Y, LARGEST_Y),
            doubt=np.ones(len(members)),
        )
        if settings is not None:
            probes = max(FACTORS, key=lambda factor: float(np.sum(settings.doubt == factor) * (factor > 1)))
            family = replace(
                family, length=settings.length, noise=settings.noise, signal=settings.signal, mean=settings.mean,
                quantile=settings.quantile, doubt=np.where(common, 1.0, probes),
            )  # fmt: skip
        folds = np.array([hashlib.sha256(each.library.encode()).digest()[0] % FOLDS for _, _, each in members])
        if len(members) > FEWEST and common.any() and len(set(folds.tolist())) > 1:
            family = outliers_doubted(family, folds, common)
        found[name] = family, np.array([each.library for _, _, each in members])
    return found


def without_their_library(rows: Sequence[Timed], known: Interpolator, device: Device) -> tuple[Array, Array, Array]:
    """(modelled seconds, seconds by all other libraries, logarithm of the interval's end) of the judged rows."""
    judged = [each for each in rows if each.judged]
    modelled = GpuAnalytical().estimate([each.row.kernel for each in judged], device).time
    y, spread = np.zeros(len(judged)), np.zeros(len(judged))
    asked: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    places = [place(each.row.kernel, device) for each in judged]
    for index, (each, (name, _)) in enumerate(zip(judged, places, strict=True)):
        asked[name, each.library].append(index)
    measured = families(rows, known, device)
    for (name, library), indices in asked.items():
        family, libraries = measured[name]
        others = libraries != library
        if others.any():
            rest = replace(family, places=family.places[others], y=family.y[others], doubt=family.doubt[others])
            answers = predict(rest, np.array([places[i][1] for i in indices], dtype=np.float64))
            y[indices], spread[indices] = answers.y, answers.deviation * family.quantile
    return modelled, modelled * np.exp(y), spread


def main() -> None:
    """Judges the folders that are named and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--profile", type=Path, nargs="*", default=[])
    parser.add_argument("--on", default="h200")
    asked = parser.parse_args()
    device = resolve(asked.on).device
    known = shipped(asked.on)
    assert known is not None, f"nothing was measured on {asked.on}"
    rows = collected(asked.folders, asked.profile, device)
    modelled, predicted, spread = without_their_library(rows, known, device)
    judged = [each for each in rows if each.judged]
    seconds = np.array([each.row.seconds for each in judged])
    numbers = {name: number for number, name in enumerate(dict.fromkeys(each.row.program for each in judged))}
    program = np.array([numbers[each.row.program] for each in judged])
    whole = np.bincount(program, seconds)
    for name, times in (("analytical", modelled), ("profiled", predicted)):
        off = np.abs(np.log(np.bincount(program, times) / whole))
        low, high = (np.bincount(program, times * np.exp(sign * spread)) for sign in (-1, 1))
        inside = f", {np.mean((low <= whole) & (whole <= high)):.0%} inside" if name == "profiled" else ""
        print(
            f"{name}: {len(whole)} programs, {math.expm1(off.mean()):.1%} (median {math.expm1(np.median(off)):.1%}){inside}"
        )
    share, off = seconds / whole[program] / len(whole), (predicted - seconds) / whole[program] / len(whole)
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for index, each in enumerate(judged):
        line = sums[place(each.row.kernel, device)[0]]
        for column, value in enumerate((1, share[index], abs(off[index]), off[index])):
            line[column] += value
    print(f"{'family':40} {'kernels':>7}  {'share':>6}  {'off':>6}  {'bias':>6}")
    for name, (count, part, size, bias) in sorted(sums.items(), key=lambda item: -item[1][2]):
        print(f"{name:40} {count:7.0f}  {part:6.1%}  {size:6.2%}  {bias:+6.2%}")


if __name__ == "__main__":
    main()
