"""Would we have picked the fastest plan of vTrain's measured runs? Rank correlation and regret by group; their files are not
shipped.

    python benchmarks/vtrain.py ground_truth_multi.csv ground_truth_single.csv [--only 18.4] [--every 6] [--jobs 2] [--rows]
        [--kept FILE.jsonl] [--most 200] [--stack megatron-2022]

`--kept` notes every prediction as it comes, so that a long run goes on where it was ended; `--most` ends it after so many.

vTrain (Bang et al., MICRO 2024; https://github.com/VIA-Research/vTrain, `data/ground_truth_*.csv`) trained GPTs with
Megatron-LM on nodes of eight A100 80GB under many plans. A group is a model on as many GPUs with the same batch. What the files
do not state is in the configurations beside them (`config/validation`): whole layers are computed again (`use_checkpoint`),
stages run 1F1B, gradients are reduced behind the backward pass (`use_gradient_bucket` is false), and a node has 800 Gbit/s to the
others, 12.5 GB/s a GPU. The vocabulary of 51,200 is Megatron-LM's own.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.evidence.rank_correlation import spearman  # noqa: E402
from meshcast.explore.bounding import family_of  # noqa: E402
from meshcast.explore.engines import engine_named  # noqa: E402
from meshcast.explore.point import Outcome, Point  # noqa: E402
from meshcast.explore.space import parsed_plan  # noqa: E402
from meshcast.explore.work import SearchWork  # noqa: E402

CLOSE = 0.03


ON = "dgx-a100+infiniband.link_bandwidth=12.5GB/s"
COLUMNS = {
    "layers": "# layers",
    "dim": "hidden size",
    "heads": "attention heads",
    "seq": "sequence length",
    "batch": "global batch",
}
Row = dict[str, str]


@dataclass(frozen=True)
class Run:
    """A measured run and its prediction, in seconds."""

    plan: str
    measured: float
    predicted: float


def plan_of(row: Row) -> str:
    """A run's plan."""
    keys = {
        "dp": row["data parallelism"], "tp": row["tensor parallelism"], "pp": row["pipeline parallelism"],
        "mbs": row["micro batch"], "remat": "full",
    }  # fmt: skip
    return ",".join(f"{key}={value}" for key, value in keys.items())


def point_of(number: int, row: Row, stack: str) -> Point:
    """A run as a point: a GPT of its sizes under its plan."""
    sizes = {name: row[column] for name, column in COLUMNS.items()}
    asked = {
        "on": ON, "plan": plan_of(row), "devices": int(row["# GPUs"]), "fidelity": "analytical", "stack": stack,
        "settings": {**sizes, "vocab": "51200", "positions": sizes["seq"]},
    }  # fmt: skip
    return Point(number=number, target="gpt3-175b", asked=asked)


def group_of(row: Row) -> str:
    """What runs that differ in their plan only have in common."""
    sizes = f"{row['# layers']} layers of {row['hidden size']}"
    return f"{sizes} on {row['# GPUs']} GPUs, batch {row['global batch']}"


def read(files: list[Path], only: str | None, every: int) -> list[Row]:
    """The rows of the files; of the groups every so manieth."""
    rows: list[Row] = []
    for path in files:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows += [row for row in csv.DictReader(file) if only in (None, row.get("Parameters (billion)"))]
    names = list(dict.fromkeys(map(group_of, rows)))
    return [row for row in rows if names.index(group_of(row)) % every == 0]


def tell(name: str, runs: list[Run], *, each: bool) -> tuple[float, float | None]:
    """A line of a group; (regret, rank correlation)."""
    best, pick = min(run.measured for run in runs), min(runs, key=lambda run: run.predicted)
    regret = pick.measured / best - 1
    rank = spearman([run.measured for run in runs], [run.predicted for run in runs])
    ratio = sorted(run.predicted / run.measured for run in runs)[len(runs) // 2]
    told = f"{len(runs)} plans, Spearman {'-' if rank is None else f'{rank:.2f}'}, pick {regret:+.1%} off the fastest"
    print(f"{name}: {told}, predicted / measured {ratio:.2f}", flush=True)
    for run in sorted(runs, key=lambda run: run.measured) if each else ():
        print(f"    {run.plan}: measured {run.measured:.3f} s, predicted {run.predicted:.3f} s")
    return regret, rank


def class_of(row: Row) -> str:
    """The groups that are told of together: models of a width on so many GPUs."""
    return f"{row['hidden size']} wide on {row['# GPUs']} GPUs"


def work_of(number: int, row: Row, stack: str) -> SearchWork:
    """A run as a work of the family that has its programs."""
    point = point_of(number, row, stack)
    settings = json.dumps(point.asked["settings"])  # programs of other sizes are other ones
    return SearchWork(kind="point", point=point, family=settings + family_of("", parsed_plan(plan_of(row)), {}))


def predictions(
    rows: list[Row], kept: Path | None, most: int | None, jobs: int, stack: str
) -> Iterator[tuple[Row, Outcome]]:
    """The outcome of each row, those that are kept first; the others are kept as they come."""
    earlier: dict[str, Outcome] = {}
    if kept is not None and kept.exists():
        for line in kept.read_text().splitlines():
            data = json.loads(line)
            earlier[data["row"]] = Outcome.from_json(data["outcome"])
    names = [json.dumps(row) for row in rows]
    yield from ((row, earlier[name]) for row, name in zip(rows, names, strict=True) if name in earlier)
    open_rows = sorted(
        (n for n, name in enumerate(names) if name not in earlier), key=lambda n: work_of(n, rows[n], stack).family
    )
    engine = engine_named("processes", workers=jobs)
    works = [work_of(n, rows[n], stack) for n in itertools.islice(open_rows, most)]
    try:
        for number, outcome in engine.answers(works):
            assert isinstance(outcome, Outcome)
            place = works[number].point.number
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps({"row": names[place], "outcome": outcome.to_json()}) + "\n")
            yield rows[place], outcome
    finally:
        engine.close()


def told_together(title: str, told: list[tuple[float, float | None]], failed: int) -> None:
    """A line of some groups."""
    regrets, ranks = [regret for regret, _ in told], [rank for _, rank in told if rank is not None]
    good = sum(regret <= CLOSE for regret in regrets)
    middle = f"{statistics.median(ranks):.2f}" if ranks else "-"
    print(
        f"{title}: {good} of {len(told)} picks within {CLOSE:.0%} of the fastest ({good / len(told):.0%}), mean regret "
        f"{statistics.mean(regrets):.1%}, largest {max(regrets):.1%}, median Spearman {middle}; {failed} runs not predicted"
    )


def main() -> None:
    """Prints a line for each group, and how many picks are good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--only", help="groups of models of so many billion parameters")
    parser.add_argument("--every", type=int, default=1, help="every so manieth group")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", action="store_true", help="every run of each group too")
    parser.add_argument("--kept", type=Path, help="where predictions are noted as they come, and taken from")
    parser.add_argument("--most", type=int, help="new predictions at the most")
    parser.add_argument("--stack", default="megatron-2022", help="the software, or a file of it")
    asked = parser.parse_args()
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    classes: dict[str, str] = {}
    failed: defaultdict[str, int] = defaultdict(int)
    rows = read(asked.files, asked.only, asked.every)
    for row, outcome in predictions(rows, asked.kept, asked.most, asked.jobs, asked.stack):
        if outcome.step_time_s is None:
            failed[class_of(row)] += 1
            continue
        measured = float(row["iteration time (ms)"]) / 1e3
        classes[group_of(row)] = class_of(row)
        groups[group_of(row)].append(Run(plan=plan_of(row), measured=measured, predicted=outcome.step_time_s))
    told = {name: tell(name, runs, each=asked.rows) for name, runs in groups.items() if len(runs) > 1}
    for title in dict.fromkeys(classes[name] for name in told):
        told_together(title, [each for name, each in told.items() if classes[name] == title], failed[title])
    told_together("all", list(told.values()), sum(failed.values()))


if __name__ == "__main__":
    main()
