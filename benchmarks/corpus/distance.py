"""Writes how far modelled kernels usually are from XLA's own: `python -m benchmarks.corpus.distance FOLDER`.

FOLDER holds measured programs of libraries set apart, with XLA's optimized HLO (`data/measured/h200-corpus-apart`). The figures
of `meshcast validate lowering FOLDER` become medians of `|ln(ours / XLA's)|`, as shares, in the file that predictions quote where
their kernels are modelled (`src/meshcast/estimate/data/lowering.toml`).
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from pathlib import Path

from meshcast.estimate import read_measured_programs
from meshcast.evidence import LoweringSummary, validate_lowering
from meshcast.hardware import load_device

FILE = Path(__file__).parents[2] / "src/meshcast/estimate/data/lowering.toml"
MEASURES = {"kernels": "kernels", "hbm_bytes": "bytes", "peak_memory": "memory"}


def main() -> None:
    """Judges the programs and writes the file; its comments stay."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.distance", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", default="h200")
    asked = parser.parse_args()
    programs = read_measured_programs(asked.folder)
    summary = LoweringSummary(rows=tuple(validate_lowering(programs, load_device(asked.on))))
    figures = {name: median(summary, what) for name, what in MEASURES.items()}
    counted = sum(row.modelled.kernels is not None for row in summary.rows)
    told = {"source": f'"meshcast validate lowering {asked.folder} --on {asked.on}"', "programs": str(counted)}
    told |= {name: f"{figure:.3f}" for name, figure in figures.items()}
    text = FILE.read_text(encoding="utf-8")
    for name, value in told.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        print(f"{name} = {value}")
    FILE.write_text(text, encoding="utf-8")


def median(summary: LoweringSummary, what: str) -> float:
    """The median error of a measure of modelled kernels, as a share."""
    pairs = [pair for row in summary.rows if (pair := getattr(row.modelled, what)) is not None]
    return math.expm1(statistics.median(math.log(pair.factor) for pair in pairs))


if __name__ == "__main__":
    main()
