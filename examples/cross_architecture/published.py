"""Square products and published training steps on GPUs and TPUs in every fidelity that needs nothing installed.

    python examples/cross_architecture/published.py RUNS.csv

`RUNS.csv` is laid out as `meshcast validate runs` reads it; the rows of hespas (ISPASS 2026) are taken: Llamas and ResNets on
A100, H100, H200, B200 and TPU v3. What hespas itself predicts of them is in `data/published/hespas.csv`. Writes
docs/cross-architecture-published.md.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from meshcast import Options, capture, compare
from meshcast.base.units import format_time
from meshcast.evidence import chosen_runs, read_run_rows, validate_runs
from meshcast.evidence.validate.measures import measure

ROOT = Path(__file__).resolve().parents[2]
FIDELITIES = ("roofline", "analytical", "simulated")
SIDES = tuple(2**power for power in range(5, 14))
HESPAS = ROOT / "data" / "published" / "hespas.csv"
METHODS = {
    "roofline": "its roofline, after XLA's passes",
    "roofline-unoptimised": "its roofline, on the program as written",
    "xla-profiled": "its blocks measured on the device",
}
DEVICES = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "h200", "b200", "tpu-v3", "tpu-v4", "tpu-v6e")
INTRODUCTION = """\
# Products and published steps across architectures

Written by `python examples/cross_architecture/published.py RUNS.csv`. Three fidelities that need nothing installed, on GPUs
and TPUs: the speed of light (`roofline`), closed forms (`analytical`), and simulators (`simulated`): thread blocks on a GPU's
SMs ([gpu-simulator.md](gpu-simulator.md)), folds on a TPU's systolic arrays ([systolic.md](systolic.md)).

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="published runs, as `meshcast validate runs` reads them")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page goes")
    asked = parser.parse_args()
    page = INTRODUCTION + products() + published(asked.runs)
    (asked.docs / "cross-architecture-published.md").write_text(page, encoding="utf-8")
    print(page)


def products() -> str:
    """Square bf16 products from 32 to 8192 on every device, and how far the fidelities agree about them."""
    programs = []
    for side in SIDES:
        square = jax.ShapeDtypeStruct((side, side), jnp.bfloat16)
        programs.append(capture(lambda x, w: x @ w, square, square, name=f"{side}"))
    found = compare(programs, on=DEVICES, fidelities=FIDELITIES)
    times = {(cell.ask.target, cell.ask.on, cell.ask.fidelity): cell.step_time_s for cell in found.cells}
    lines = [
        "## Square products in bf16",
        "",
        "A side, and `roofline` / `analytical` / `simulated` on each device.",
        "",
        f"| side | {' | '.join(DEVICES)} |",
        "|---:|" + "---:|" * len(DEVICES),
    ]
    for side in SIDES:
        cells = []
        for device in DEVICES:
            answers = [times[str(side), device, fidelity] for fidelity in FIDELITIES]
            cells.append(" / ".join("-" if answer is None else format_time(answer) for answer in answers))
        lines.append(f"| {side} | {' | '.join(cells)} |")
    lines += [
        "",
        "| fidelities | cells | ratio of times | Spearman | Kendall within sizes |",
        "|---|---:|---:|---:|---:|",
    ]
    for pair in found.agreements:
        rank, within = (f"{value:.3f}" if value is not None else "-" for value in (pair.spearman, pair.within))
        lines.append(f"| {' and '.join(pair.fidelities)} | {pair.cells} | {pair.ratio:.2f} | {rank} | {within} |")
    return "\n".join(lines) + "\n\n"


def published(runs: Path) -> str:
    """Published steps beside all fidelities, with errors, and how well each keeps the order of the runs."""
    rows = chosen_runs(read_run_rows(runs), only="hespas", limit=None)
    answers: dict[str, dict[str, float]] = {}
    for fidelity in FIDELITIES:
        for result in validate_runs(rows, Options(fidelity=fidelity)):
            pair = result.row.time
            if pair is not None:
                answers.setdefault(result.row.id, {})[fidelity] = pair.predicted
    measured = {row.id: row.step_time_s for row in rows if row.step_time_s is not None and row.id in answers}
    lines = [
        "## Published training steps",
        "",
        "Llamas by FSDP and ResNets by data parallelism on four devices each, as hespas (ISPASS 2026) published them; times were",
        "rounded to 0.01 s. Nothing of the GPU simulator was set on them.",
        "",
        f"| run | model | on | measured s | {' | '.join(FIDELITIES)} |",
        "|---|---|---|---:|" + "---:|" * len(FIDELITIES),
    ]
    for row in rows:
        if row.id in measured:
            said = [_beside(answers[row.id].get(fidelity), measured[row.id]) for fidelity in FIDELITIES]
            lines.append(
                f"| {row.id} | {row.run.model} | {row.run.devices} {row.run.device} | {measured[row.id]:g} | {' | '.join(said)} |"
            )
    lines += ["", "| fidelity | runs | geomean error | bias | Spearman |", "|---|---:|---:|---:|---:|"]
    for fidelity in FIDELITIES:
        both = [(found[fidelity], measured[name]) for name, found in answers.items() if fidelity in found]
        lines.append(f"| {fidelity} | {len(both)} | {_summary(both)} |")
    names = {row.id: f"{row.run.model} on {row.run.devices} {row.run.device}" for row in rows}
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
        said = [_beside(value, reference) for value in _all_of(row, answers)]
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


def _all_of(row: Mapping[str, str], answers: Mapping[str, Mapping[str, float]]) -> list[float | None]:
    """Their seconds of a run, then ours in each fidelity."""
    return [float(row["predicted_s"]), *(answers[row["run"]].get(fidelity) for fidelity in FIDELITIES)]


def _beside(predicted: float | None, measured: float) -> str:
    return "-" if predicted is None else f"{predicted:.3g} ({predicted / measured - 1:+.0%})"


def _summary(both: Sequence[tuple[float, float]]) -> str:
    found = measure([predicted for predicted, _ in both], [measured for _, measured in both])
    values = found.geomean_error, found.bias, found.spearman
    error, bias, rank = (math.nan if value is None else value for value in values)
    return f"{error:.1%} | {bias:+.1%} | {rank:.3f}"


if __name__ == "__main__":
    main()
