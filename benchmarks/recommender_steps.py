"""Holds whole recommender steps against what `embeddings.py` measured on an H200, the half set apart first.

    python benchmarks/recommender_steps.py data/measured/h200-embeddings/measurements.jsonl.gz [--rows] [--fit]

`queued` is a step with the host ahead (the device alone), `host` what the host takes, `step` one after another. `--rows` shows
rows of the half that may be looked at, `--fit` leaves the other half out.

Rows of `recommender_host.py` (data/measured/h200-embeddings/host.jsonl.gz) have the time of a reference step beside them, taken
before and after each: the host is as many times as fast as `--host slow` as that step is predicted longer with it than it was.
Times are means of all rounds there. Both references are of one pace and differ all the same: how well they agree over all rows,
correlation r of their logarithms, is how much of what sets a row's reference apart is the host's pace and not chance. What is
expected of the pace, then, is the mean of all rows' and of that row's the share 2 r / (1 + r) of its distance (Spearman and
Brown's reliability of two readings; Kelley's estimate of what was read). Nothing of the steps themselves enters.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from meshcast.hardware import load_device
from meshcast.jobs import (
    Distribution,
    EagerDense,
    EagerStep,
    EmbeddingKernels,
    LookUps,
    bag_launches,
    batched_launches,
    eager_dense,
    eager_step,
    layers_host_s,
    read_tables,
)  # fmt: skip
from meshcast.simulate import call_costs
from meshcast.zoo import DenseLayers

TABLES = read_tables("mlperf-dcnv2")  # as `embeddings.py` has them
KERNELS = EmbeddingKernels(device=load_device("h200"), by_element=True)


@cache
def dense(model: str, batch: int, dim: int, precision: str, stacked: bool) -> EagerDense:
    """The dense part of a case."""
    cross = 3 if model == "dcnv2" else 0
    layers = DenseLayers(features=len(TABLES), dim=dim, bottom=(512, 256, dim), cross=cross)
    return eager_dense(layers, "h200", batch, precision, stacked=stacked)


def predicted(row: dict[str, Any]) -> EagerStep:
    """A case's step."""
    multi = row["hots"] == "multi"
    law = Distribution(kind="zipf", skew=row["zipf"]) if row["zipf"] else Distribution()
    works = [
        LookUps(
            picked=law.over(min(table.rows, row["most_rows"])), dim=row["dim"], element_bytes=4,
            look_ups=row["batch"] * (table.pooling if multi else 1), bags=row["batch"],
        )
        for table in TABLES
    ]  # fmt: skip
    bag = row["tables"] == "bag"
    whole = dense(row["model"], row["batch"], row["dim"], row["precision"], bag)
    tables = bag_launches(works, KERNELS) if bag else batched_launches(works, KERNELS)
    costs = call_costs("slow")
    if "pace_ms" in row:
        costs = costs.scaled(1e-3 * row["pace_ms"] / reference_s())
    return eager_step(whole.with_tables(list(tables)), costs)


@cache
def reference_s() -> float:
    """The reference step of `recommender_host.py` on a slow host."""
    return layers_host_s((13, 512, 256, 128, 1), 64, "h200", call_costs("slow"))


def main() -> None:
    """Reads, predicts, tells."""
    lines = gzip.decompress(Path(sys.argv[1]).read_bytes()).splitlines()
    rows = paced([averaged(row) for row in map(json.loads, lines) if row["what"] == "step" and "step_ms" in row])
    halves = ("fit",) if "--fit" in sys.argv else ("apart", "fit")
    for half in halves:
        found = [(row, predicted(row)) for row in rows if row["half"] == half]
        if "--rows" in sys.argv and half == "fit":
            for row, step in sorted(found, key=lambda each: str(each[0])):
                shown = [
                    f"{row[name]!s:>8}"
                    for name in ("model", "tables", "precision", "batch", "dim", "hots", "most_rows")
                ]
                times = [
                    f"{name} {1e3 * ours:7.3f} / {row[key]:7.3f} = {1e3 * ours / row[key]:5.2f}"
                    for name, key, ours in pairs(step)
                ]
                print(*shown, *times)
        for tables in ("batched", "bag"):
            for precision in ("all", "float32", "tf32", "bfloat16"):
                chosen = [
                    (row, step) for row, step in found
                    if row["tables"] == tables and precision in ("all", row["precision"])
                ]  # fmt: skip
                print(f"{half:6} {tables:8} {precision:9} {len(chosen):3}", *(told(chosen, n) for n in range(3)))


def averaged(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the means of its rounds, where it was measured in rounds."""
    if "rounds" not in row:
        return row
    mean = {name: fmean(each[name] for each in row["rounds"]) for name in ("step", "host", "before", "after")}
    return row | {
        "step_ms": mean["step"],
        "host_ms": mean["host"],
        "before_ms": mean["before"],
        "after_ms": mean["after"],
    }


def paced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what a reference step is expected to take the host beside each, where references were taken."""
    known = [row for row in rows if "before_ms" in row]
    if not known:
        return rows
    before, after = (np.log([row[name] for row in known]) for name in ("before_ms", "after_ms"))
    agreement = float(np.corrcoef(before, after)[0, 1])
    read = (before + after) / 2
    expected = np.exp(read.mean() + 2 * agreement / (1 + agreement) * (read - read.mean()))
    for row, pace in zip(known, expected, strict=True):
        row["pace_ms"] = float(pace)
    return rows


def pairs(step: EagerStep) -> list[tuple[str, str, float]]:
    """What is compared with what."""
    return [
        ("queued", "queued_ms", step.device_s),
        ("host", "host_ms", max(step.host_s, 0.0)),
        ("step", "step_ms", step.step_s),
    ]


def told(chosen: list[tuple[dict[str, Any], EagerStep]], which: int) -> str:
    """The geometric mean of the error of one time, and its bias."""
    off = []
    for row, step in chosen:
        name, key, ours = pairs(step)[which]
        if name == "host" and row["step_ms"] < 1.05 * row["queued_ms"]:
            continue  # the host waits for the device there
        off.append(math.log(1e3 * ours / row[key]))
    if not off:
        return ""
    name = pairs(chosen[0][1])[which][0]
    return f"{name} {np.expm1(np.abs(off).mean()):6.1%} (bias {np.expm1(np.mean(off)):+6.1%}, {len(off)})"


if __name__ == "__main__":
    main()
