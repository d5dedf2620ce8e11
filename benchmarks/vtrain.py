"""Would we have picked the fastest plan of vTrain's measured runs? Rank correlation and regret by group; their files are not
shipped.

    python benchmarks/vtrain.py ground_truth_multi.csv [--only 18.4] [--jobs 2]

vTrain (Bang et al., MICRO 2024; https://github.com/VIA-Research/vTrain, `data/ground_truth_*.csv`) trained GPTs with
Megatron-LM on nodes of eight A100 80GB under many plans. A group is a model on as many GPUs with the same batch.
Recomputation of whole layers and a vocabulary of 51,200, which the files do not state, are Megatron-LM's defaults of the time.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.evidence.rank_correlation import spearman  # noqa: E402
from meshcast.explore.engines import engine_named  # noqa: E402
from meshcast.explore.point import Outcome, Point  # noqa: E402
from meshcast.explore.work import SearchWork  # noqa: E402

CLOSE = 0.03


def point_of(number: int, row: dict[str, str]) -> Point:
    """A run as a point: a GPT of its sizes under its plan."""
    sizes = {
        "layers": row["# layers"], "dim": row["hidden size"], "heads": row["attention heads"], "vocab": "51200",
        "positions": row["sequence length"], "seq": row["sequence length"], "batch": row["global batch"],
    }  # fmt: skip
    pp, dp = int(row["pipeline parallelism"]), int(row["data parallelism"])
    keys = {"dp": dp, "tp": int(row["tensor parallelism"]), "pp": pp, "mbs": int(row["micro batch"]), "remat": "full"}
    plan = ",".join(f"{key}={value}" for key, value in keys.items())
    asked = {
        "on": "dgx-a100", "plan": plan, "devices": int(row["# GPUs"]), "settings": sizes, "fidelity": "analytical",
        "stack": "megatron",
    }  # fmt: skip
    return Point(number=number, target="gpt3-175b", asked=asked)


def main() -> None:
    """Prints a line for each group, and how many picks are good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", help="groups of models of so many billion parameters")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    with asked.file.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file) if asked.only in (None, row["Parameters (billion)"])]
    engine = engine_named("processes", workers=asked.jobs)
    groups: defaultdict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    failed = 0
    for number, outcome in engine.answers(SearchWork(kind="point", point=point_of(n, r)) for n, r in enumerate(rows)):
        assert isinstance(outcome, Outcome)
        if outcome.step_time_s is None:
            failed += 1
            continue
        row = rows[number]
        group = row["Parameters (billion)"], row["# GPUs"], row["global batch"]
        groups[group].append((float(row["iteration time (ms)"]) / 1e3, outcome.step_time_s))
    engine.close()
    good = 0
    for (billions, gpus, batch), pairs in groups.items():
        if len(pairs) < 2:
            continue
        best, picked = min(pairs)[0], min(pairs, key=lambda pair: pair[1])[0]
        rank = spearman([measured for measured, _ in pairs], [predicted for _, predicted in pairs])
        good += picked <= best * (1 + CLOSE)
        ratio = sorted(predicted / measured for measured, predicted in pairs)[len(pairs) // 2]
        told = f"{len(pairs)} plans, Spearman {rank or 0:.2f}, pick {picked / best - 1:+.1%} off the fastest"
        print(f"{billions} B on {gpus} GPUs, batch {batch}: {told}, predicted / measured {ratio:.2f}", flush=True)
    print(
        f"{good} of {sum(len(pairs) > 1 for pairs in groups.values())} picks within {CLOSE:.0%}; {failed} rows not predicted"
    )


if __name__ == "__main__":
    main()
