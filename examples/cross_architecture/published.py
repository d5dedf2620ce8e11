"""Square products and published training steps on GPUs and TPUs in every fidelity.

    python examples/cross_architecture/published.py RUNS.csv

`RUNS.csv` is laid out as `meshcast validate runs` reads it; the rows of hespas (ISPASS 2026) are taken: Llamas and ResNets on
A100, H100, H200, B200 and TPU v3. What hespas itself predicts of them is in `data/published/hespas.csv`. Writes
docs/cross-architecture-published.md, and the cells beside this file, published.json: of fidelities that `--fidelity` leaves out
those that are there stay. `compiled` takes half an hour of a core for GPUs; what libtpu made of the steps on TPU v3 is in
`compiled/`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kept import keep_compiled
from published_cells import (
    DEVICES,
    FIDELITIES,
    SIDES,
    Said,
    kept_cells,
    made_by,
    noted,
    place,
    product_cells,
    run_cells,
    unpublished,
    write_cells,
)

from meshcast.base.units import format_time
from meshcast.evidence import read_run_rows
from meshcast.evidence.comparison.agreement import agreement
from meshcast.evidence.validate.measures import measure
from meshcast.evidence.validate.runs.rows import RunRow

ROOT = Path(__file__).resolve().parents[2]
CELLS = Path(__file__).resolve().parent / "published.json"
HESPAS = ROOT / "data" / "published" / "hespas.csv"
METHODS = {
    "roofline": "its roofline, after XLA's passes",
    "roofline-unoptimised": "its roofline, on the program as written",
    "xla-profiled": "its blocks measured on the device",
}
INTRODUCTION = """\
# Products and published steps across architectures

Written by `python examples/cross_architecture/published.py RUNS.csv`; `examples/cross_architecture/published.json` has the
cells. Every fidelity, on GPUs and TPUs: the speed of light (`roofline`), closed forms (`analytical`), simulators
(`simulated`: thread blocks on a GPU's SMs, [gpu-simulator.md](gpu-simulator.md), folds on a TPU's systolic arrays,
[systolic.md](systolic.md)), measured kernels (`profiled`), and the real compilers' kernels (`compiled`: XLA:GPU and libtpu,
without the device). Nobody measured all kernels of an A100, an H100, a B200 or a TPU v3: what was not is carried over from the
nearest device that was, an H200 or TPU v4 (`extrapolated`, with wider intervals; [calibration.md](calibration.md)). Where a
fidelity has no answer, its cell says why. A time with a star is mostly another fidelity's that stood in, and has no part in
errors and orders.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="published runs, as `meshcast validate runs` reads them")
    parser.add_argument("--fidelity", default=",".join(FIDELITIES), help="those to ask again, with commas between them")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page goes")
    parser.add_argument("--cells", type=Path, default=CELLS, help="the file of cells")
    asked = parser.parse_args()
    asked.docs.mkdir(parents=True, exist_ok=True)  # before the work, which takes long
    keep_compiled()
    fidelities = [name for name in FIDELITIES if name in asked.fidelity.split(",")]
    rows = [row for row in read_run_rows(asked.runs) if row.id.startswith("hespas-")]
    rows += unpublished(rows)
    earlier, makers = kept_cells(asked.cells, but=fidelities)
    makers |= made_by(fidelities)
    runs = list(earlier.get("runs", []))
    for cell in run_cells(rows, fidelities):
        print(f"{cell.target} on {cell.on}, {cell.fidelity}: {cell.step_time_s or cell.reason}", flush=True)
        runs.append(cell)
    products = [*earlier.get("products", []), *(product_cells(fidelities) if fidelities else [])]
    products = [noted(cell) for cell in products]
    write_cells(asked.cells, {"products": products, "runs": runs}, makers)
    page = INTRODUCTION + products_section(products) + published_section(rows, runs) + _makers(makers)
    (asked.docs / "cross-architecture-published.md").write_text(page, encoding="utf-8")


def products_section(cells: Sequence[Said]) -> str:
    """Square bf16 products from 32 to 8192 on every device, and how far the fidelities agree about them."""
    found = {cell.key: cell for cell in cells}
    lines = [
        "## Square products in bf16",
        "",
        "Of a TPU v3 one core is a device, as JAX shows it and libtpu compiles for it.",
        "",
    ]
    for device in DEVICES:
        lines += [
            f"### On {device}",
            "",
            f"| side | {' | '.join(FIDELITIES)} |",
            "|---:|" + "---:|" * len(FIDELITIES),
        ]
        for side in SIDES:
            said = [_shown(found.get((str(side), device, fidelity)), format_time) for fidelity in FIDELITIES]
            lines.append(f"| {side} | {' | '.join(said)} |")
        lines.append("")
        notes = sorted({cell.note for cell in cells if cell.on == device and cell.note})
        lines += [line for note in notes for line in (f"{device} has {note}: these cells are not compared below.", "")]
    lines += [
        "### How far they agree",
        "",
        "| fidelities | cells | ratio of times | Spearman | Kendall within sizes |",
        "|---|---:|---:|---:|---:|",
    ]
    times = {
        fidelity: {
            (c.target, c.on): c.step_time_s
            for c in cells
            if c.fidelity == fidelity and c.own and c.step_time_s and not c.note
        }
        for fidelity in FIDELITIES
    }
    for pair in itertools.combinations(FIDELITIES, 2):
        agreed = agreement(pair, times[pair[0]], times[pair[1]])
        ratio, rank, within = (
            "-" if value is None else f"{value:.{places}f}"
            for value, places in ((agreed.ratio, 2), (agreed.spearman, 3), (agreed.within, 3))
        )
        lines.append(f"| {' and '.join(pair)} | {agreed.cells} | {ratio} | {rank} | {within} |")
    return "\n".join(lines) + "\n\n"


def published_section(rows: Sequence[RunRow], cells: Sequence[Said]) -> str:
    """Published steps beside all fidelities, with errors, and how well each keeps the order of the runs."""
    found = {(cell.target, cell.fidelity): cell for cell in cells}
    measured = {row.id: row.step_time_s for row in rows if row.step_time_s is not None and row.scored}
    lines = [
        "## Published training steps",
        "",
        "Llamas by FSDP and ResNets by data parallelism on four devices each, as hespas (ISPASS 2026) published them; times were",
        "rounded to 0.01 s. Those in brackets are of grade C, as rounding alone may put them off by 10 to 25 %: they are shown,",
        "and no error is made of them. Nothing of the GPU simulator was set on them. `compiled` has TPU v3's cores for devices,",
        "two a chip.",
        "",
        f"| run | model | on | measured s | {' | '.join(FIDELITIES)} |",
        "|---|---|---|---:|" + "---:|" * len(FIDELITIES),
    ]
    for row in rows:
        reference = measured.get(row.id)
        told = "not published" if row.step_time_s is None else f"{row.step_time_s:g}"
        told = told if reference is not None or row.step_time_s is None else f"({told})"
        said = [_beside(found.get((row.id, fidelity)), reference) for fidelity in FIDELITIES]
        lines.append(f"| {row.id} | {row.run.model} | {place(row)} | {told} | {' | '.join(said)} |")
    answers = {
        name: {
            fidelity: cell.step_time_s
            for fidelity in FIDELITIES
            if (cell := found.get((name, fidelity))) is not None and cell.own and cell.step_time_s is not None
        }
        for name in measured
    }
    lines += ["", "| fidelity | runs | geomean error | bias | Spearman |", "|---|---:|---:|---:|---:|"]
    for fidelity in FIDELITIES:
        both = [(said[fidelity], measured[name]) for name, said in answers.items() if fidelity in said]
        lines.append(f"| {fidelity} | {len(both)} | {_summary(both)} |")
    names = {row.id: f"{row.run.model} on {place(row)}" for row in rows}
    return "\n".join(lines) + "\n\n" + beside_hespas(names, measured, answers)


def beside_hespas(
    names: Mapping[str, str], measured: Mapping[str, float], answers: Mapping[str, Mapping[str, float]]
) -> str:
    """The tool's own predictions of these runs, as far as they are public, beside ours of the same runs."""
    with HESPAS.open(newline="", encoding="utf-8") as rows:
        theirs = [row for row in csv.DictReader(rows) if row["run"] in measured]
    lines = [
        "## Beside the tool's own predictions",
        "",
        "hespas's authors publish the measured steps above, and of their predictions those below (from where:",
        "`data/published/README.md`). What covers `compute` has no collectives in it: a whole step takes longer still.",
        "",
        f"| run | measured s | hespas | covers | it predicts | {' | '.join(FIDELITIES)} |",
        "|---|---:|---|---|---:|" + "---:|" * len(FIDELITIES),
    ]
    for row in theirs:
        run, reference = row["run"], measured[row["run"]]
        said = [_off(value, reference) for value in _all_of(row, answers)]
        lines.append(
            f"| {names[run]} | {reference:g} | {METHODS[row['method']]} | {row['covers']} | {' | '.join(said)} |"
        )
    lines += [
        "",
        f"| geomean error | runs | hespas | {' | '.join(FIDELITIES)} |",
        "|---|---:|" + "---:|" * (1 + len(FIDELITIES)),
    ]
    for method, covers in dict.fromkeys((row["method"], row["covers"]) for row in theirs):
        chosen = [row for row in theirs if (row["method"], row["covers"]) == (method, covers)]
        columns = zip(*(_all_of(row, answers) for row in chosen), strict=True)
        references = [measured[row["run"]] for row in chosen]
        errors = [
            "-" if None in column else f"{measure(column, references).geomean_error:.1%}"
            for column in map(list, columns)
        ]
        lines.append(f"| {METHODS[method]}: {covers} | {len(chosen)} | {' | '.join(errors)} |")
    return "\n".join(lines) + "\n"


def _makers(makers: Mapping[str, str]) -> str:
    said = [f"`{fidelity}` by {maker}" for fidelity, maker in makers.items() if maker]
    return f"\nMade with: {'; '.join(said)}.\n" if said else ""


def _all_of(row: Mapping[str, str], answers: Mapping[str, Mapping[str, float]]) -> list[float | None]:
    """Their seconds of a run, then ours in each fidelity."""
    return [float(row["predicted_s"]), *(answers[row["run"]].get(fidelity) for fidelity in FIDELITIES)]


def _beside(cell: Said | None, measured: float | None) -> str:
    return _shown(cell, lambda time: f"{time:.3g}" if measured is None else _off(time, measured))


def _shown(cell: Said | None, show: Callable[[float], str]) -> str:
    """A cell's time, with a star where another fidelity stood in; else why there is none, in short."""
    if cell is None:
        return "not asked"
    if cell.step_time_s is None:
        return cell.reason.split(": ")[0]
    return show(cell.step_time_s) + ("" if cell.own else " *")


def _off(predicted: float | None, measured: float) -> str:
    return "-" if predicted is None else f"{predicted:.3g} ({predicted / measured - 1:+.0%})"


def _summary(both: Sequence[tuple[float, float]]) -> str:
    found = measure([predicted for predicted, _ in both], [measured for _, measured in both])
    said = (found.geomean_error, ".1%"), (found.bias, "+.1%"), (found.spearman, ".3f")
    return " | ".join("-" if value is None or math.isnan(value) else f"{value:{places}}" for value, places in said)


if __name__ == "__main__":
    main()
