"""Layers with what SCALE-Sim 3.0.0 reports for them, in `scalesim_reports.csv`.

Named ones and the first products: larger layers on square arrays, ResNet-18 and AlexNet as in SCALE-Sim's topologies. The rest:
random small layers on small arrays with little memory, most of which stall, run with the package `scalesim` 3.0.0.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray

PATH = Path(__file__).with_name("scalesim_reports.csv")
SIZES = ("ifmap_height", "ifmap_width", "filter_height", "filter_width", "channels", "filters", "stride")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A layer, an array, and SCALE-Sim's answer."""

    layer: Layer
    array: SystolicArray
    cycles: tuple[int, int, int]  # compute, stalls, total
    cycles_with_prefetch: int
    shares: tuple[float, float, float]  # overall, mapping, compute


def reports() -> list[Report]:
    """Every row."""
    with PATH.open(newline="") as file:
        return [_report(row) for row in csv.DictReader(file)]


def _report(row: dict[str, str]) -> Report:
    buffers = {
        name: ArrayBuffer(words=1024 * int(row[f"{name}_kb"]), bandwidth=int(row[f"{name}_bandwidth"]))
        for name in ("ifmap", "filter", "ofmap")
    }
    return Report(
        layer=Layer(name=row["layer"], **{size: int(row[size]) for size in SIZES}),
        array=SystolicArray(
            rows=int(row["rows"]), columns=int(row["columns"]), dataflow=row["dataflow"],  # type: ignore[arg-type]
            estimated_bandwidth=row["mode"] == "CALC", **buffers,
        ),
        cycles=(int(row["compute_cycles"]), int(row["stall_cycles"]), int(row["total_cycles"])),
        cycles_with_prefetch=int(row["cycles_with_prefetch"]),
        shares=(
            float(row["overall_util_pct"]) / 100, float(row["mapping_efficiency_pct"]) / 100,
            float(row["compute_util_pct"]) / 100,
        ),
    )  # fmt: skip
