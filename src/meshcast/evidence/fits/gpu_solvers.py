"""Fits the costs of dense solvers to measured calls, and says how far off they are on calls that were left out.

`python -m meshcast.evidence.fits.gpu_solvers MEASUREMENTS.csv [-o solvers.toml] [--check AFTERWARDS.csv]` prints both errors by
operation, and those on calls that were measured when the model was done.

Left out, chosen before anything was fitted: every matrix whose shorter side is 384, 768, 1536 or 3072, every batch of 64, and
three whole operations that combine others (`solve`, `inv`, `cho_solve`). All costs are found together, by least squares of
relative errors with no cost negative; weights are renewed with the predicted times, which makes the errors logarithmic.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls  # jax brings scipy

from meshcast.base import write_whole
from meshcast.estimate import HOST_WAITS, SolverAmounts, solver_amounts, solver_path
from meshcast.evidence.calibrate.solver_calls import SOLVER_DTYPES
from meshcast.hardware import Device, load_device
from meshcast.workload import SOLVER_COUNTS, Factorisation, Routine, real_factor

DEVICE = "h200"
LEFT_OUT_SIDES = frozenset({384, 768, 1536, 3072})
LEFT_OUT_BATCH = 64
LEFT_OUT_OPS = frozenset({"solve", "inv", "cho_solve"})
_CALLS: Mapping[str, tuple[Routine, ...]] = {
    "cholesky": ("cholesky",),
    "lu": ("lu",),
    "qr": ("qr", "q"),
    "qr_complete": ("qr", "q"),
    "qr_r": ("qr",),
    "q": ("q",),
    "svd": ("svd",),
    "svd_full": ("svd",),
    "svdvals": ("svd",),
    "eigh": ("eigh",),
    "eigvalsh": ("eigh",),
    "eig": ("eig",),
    "triangular": ("triangular",),
    "solve": ("lu", "triangular", "triangular"),
    "inv": ("lu", "triangular", "triangular"),
    "cho_solve": ("cholesky", "triangular", "triangular"),
}
_JACOBI_UP_TO = 1024  # rows and columns up to which JAX asks for Jacobi's SVD
_ROUNDS = 30
_COSTS = ("fixed", "step", "byte", "work")


@dataclass(frozen=True, slots=True)
class SolverRow:
    """One measured call: the solver calls in it by path, and its seconds."""

    op: str
    label: str
    parts: tuple[tuple[str, SolverAmounts], ...]
    seconds: float
    left_out: bool


def read_rows(lines: Iterable[str], device: Device, *, check: bool = False) -> list[SolverRow]:
    """The measured calls of a CSV file, all of them left out where they are a check; other operations are passed over."""
    found = []
    for cells in csv.DictReader(lines):
        if cells["op"] not in _CALLS:
            continue
        op, dtype = cells["op"], SOLVER_DTYPES[cells["dtype"]]
        batch, m, n, k = (int(cells[name]) for name in ("batch", "m", "n", "k"))
        parts = []
        for routine in _CALLS[op]:
            shape = Factorisation(
                routine="svd-qr" if routine == "svd" and max(m, n) > _JACOBI_UP_TO else routine,
                batch=batch, rows=m, columns=n, right=(n if op == "inv" else k) if routine == "triangular" else 0,
            )  # fmt: skip
            flops = 2.0 * n * n * shape.right if routine == "triangular" else SOLVER_COUNTS[routine](m, n)
            parts.append((solver_path(shape), solver_amounts(shape, batch * flops * real_factor(dtype), dtype, device)))
        measured = cells["wall_us"] if HOST_WAITS.intersection(_CALLS[op]) else cells["busy_us"]
        left_out = check or op in LEFT_OUT_OPS or min(m, n) in LEFT_OUT_SIDES or batch == LEFT_OUT_BATCH
        label = f"{op} {cells['dtype']} {batch} x {m} x {n}" + (f", {k} sides" if k else "")
        found.append(SolverRow(op, label, tuple(parts), float(measured) * 1e-6, left_out))
    return found


def fit(rows: Sequence[SolverRow]) -> dict[str, tuple[float, ...]]:
    """The costs of every path that fits these rows best."""
    paths = sorted({name for row in rows for name, _ in row.parts})
    design = _design(rows, paths)
    scale = np.maximum(design.max(axis=0), 1e-30)
    measured = np.array([row.seconds for row in rows])
    weights = 1 / measured
    for _ in range(_ROUNDS):
        costs, _ = nnls((design / scale) * weights[:, None], measured * weights)
        predicted = (design / scale) @ costs
        weights = 1 / np.sqrt(measured * np.maximum(predicted, 1e-9))
    costs = costs / scale
    return {name: tuple(float(c) for c in costs[4 * i : 4 * i + 4]) for i, name in enumerate(paths)}


def predicted(row: SolverRow, costs: Mapping[str, Sequence[float]]) -> float:
    """The seconds that these costs give."""
    return sum(float(np.dot(_vector(found), costs[name])) for name, found in row.parts)


def _vector(found: SolverAmounts) -> tuple[float, float, float, float]:
    return found.fixed, found.steps, found.bytes, found.peak


def _design(rows: Sequence[SolverRow], paths: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    design = np.zeros((len(rows), 4 * len(paths)))
    for index, row in enumerate(rows):
        for name, found in row.parts:
            at = 4 * paths.index(name)
            design[index, at : at + 4] += _vector(found)
    return design


def log_ratios(rows: Sequence[SolverRow], costs: Mapping[str, Sequence[float]]) -> list[float]:
    """ln(predicted / measured) of each row."""
    return [math.log(predicted(row, costs) / row.seconds) for row in rows]


def table(rows: Sequence[SolverRow], costs: Mapping[str, Sequence[float]]) -> str:
    """Errors by operation, of what was fitted and of what was left out, as Markdown."""
    lines = [
        "| operation | fitted | geomean error | left out | geomean error | worst factor |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    groups = [(op, [row for row in rows if row.op == op]) for op in _CALLS if any(row.op == op for row in rows)]
    for op, members in (*groups, ("all", list(rows))):
        cells = []
        for left_out in (False, True):
            errors = [abs(r) for r in log_ratios([row for row in members if row.left_out is left_out], costs)]
            cells += [str(len(errors)), f"{100 * math.expm1(sum(errors) / len(errors)):.1f} %" if errors else "-"]
            worst = f"{math.exp(max(errors)):.2f}" if errors else "-"
        lines.append(f"| {op} | {' | '.join(cells)} | {worst} |")
    return "\n".join(lines)


def solvers_file(
    costs: Mapping[str, Sequence[float]], interval: tuple[float, float], device: Device, source: str
) -> str:
    """The parameter file."""
    head = (
        "# Costs of dense solvers: estimate/gpu/solvers.py says what they mean. Written by evidence/fits/gpu_solvers.py from\n"
        f"# {source}; `interval` holds nine tenths of the calls that were left out of the fit.\n"
    )
    low, high = interval
    lines = [
        f'{head}schema = "meshcast.solvers/1"', f'device = "{device.name}"', f"clock_hz = {device.clock_hz:.6g}",
        f"interval = [{low:.3g}, {high:.3g}]",
    ]  # fmt: skip
    for name, numbers in costs.items():
        said = ", ".join(f"{key} = {number:.4g}" for key, number in zip(_COSTS, numbers, strict=True))
        lines.append(f'[costs."{name}"]\n' + said.replace(", ", "\n"))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fits, prints the errors and writes the file where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--check", type=Path, help="calls that nothing is fitted to")
    asked = parser.parse_args()
    device = load_device(DEVICE)
    rows = read_rows(asked.measurements.read_text().splitlines(), device)
    costs = fit([row for row in rows if not row.left_out])
    print(table(rows, costs))
    if asked.check:
        print(f"\n{table(read_rows(asked.check.read_text().splitlines(), device, check=True), costs)}")
    ratios = sorted(log_ratios([row for row in rows if row.left_out], costs))
    # predicted / measured: a measured time lies between predicted / e^high and predicted / e^low
    low, high = ratios[int(0.05 * len(ratios))], ratios[int(0.95 * len(ratios))]
    if asked.output:
        interval = (math.exp(-max(high, 0.1)), math.exp(max(-low, 0.1)))
        write_whole(asked.output, solvers_file(costs, interval, device, f"{asked.measurements}"))


if __name__ == "__main__":
    main()
