"""Holds the planner's plans against the greedy ones and against all plans there are, on sets of tables drawn at random.

    python benchmarks/table_plans.py [--sets 200] [--small 30] [--first 0]

Every step is followed rank by rank (`jobs/embedding_tables/simulated.py`). Sizes are drawn as the public lists have them: rows
over six decades,
most tables with one look-up a sample and few with many, uniform or skewed; 3 to 40 tables on 2 to 32 devices, with and without
dense layers. Small sets have four tables on three devices, whose plans are all tried (table-, column- and row-wise).
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from dataclasses import replace

from meshcast.hardware import resolve
from meshcast.jobs import (
    DensePart,
    EmbeddingKernels,
    EmbeddingTable,
    PlacedTable,
    ShardingProblem,
    StepModel,
    TableWires,
    TrainerRanks,
    parse_distribution,
    search,
)  # fmt: skip

CLUSTER = resolve("dgx-h100")
KERNELS = EmbeddingKernels(device=CLUSTER.device)
DENSE = DensePart(
    bottom_forward_s=3e-5,
    forward_s=3e-4,
    backward_s=6e-4,
    bottom_backward_s=6e-5,
    optimizer_s=3e-5,
    gradient_bytes=9.5e6,
)  # about MLPerf's DLRM with 1,024 samples in TF32


def drawn(draw: random.Random, count: int) -> tuple[EmbeddingTable, ...]:
    """So many tables."""
    return tuple(
        EmbeddingTable(
            name=f"t{number}", rows=int(10 ** draw.uniform(1, 7.3)), dim=draw.choice([32, 64, 128]),
            pooling=draw.choice([1, 1, 1, 2, 5, 20, 80]), indices=parse_distribution(draw.choice(["uniform", "zipf:1.05"])),
        )
        for number in range(count)
    )  # fmt: skip


def problem(tables: tuple[EmbeddingTable, ...], devices: int, batch: int, dense: DensePart) -> ShardingProblem:
    """Tables on so many devices."""
    ranks = TrainerRanks(devices=devices, node=min(devices, 8), batch=batch)
    model = StepModel(wires=TableWires(CLUSTER, ranks), dense=dense, kernels=KERNELS)
    return ShardingProblem(tables=tables, ranks=ranks, kernels=KERNELS, model=model, memory_bytes=70e9)


def of_all(asked: ShardingProblem) -> tuple[float, int]:
    """The shortest step of all plans, and how many there are."""
    spots = []
    for ways in asked.options:
        placed = [PlacedTable(sharding=way) for way in ways if way.way in ("row", "data")]
        placed += [
            PlacedTable(sharding=way, places=places)
            for way in ways if way.way in ("table", "column")
            for places in itertools.combinations(range(asked.ranks.devices), way.columns)
        ]  # fmt: skip
        spots.append(placed)
    plans = list(itertools.product(*spots))
    return min(map(asked.simulated, plans)), len(plans)


def main() -> None:
    """Draws, plans, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--small", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first set's number, so that parts can be run apart")
    given = parser.parse_args()
    begun = time.process_time()
    gains, slower = [], []
    for number in range(given.first, given.first + given.sets):
        draw = random.Random(number)
        dense = DENSE if number % 2 else DensePart()
        asked = problem(
            drawn(draw, draw.randint(3, 40)), draw.choice([2, 4, 8, 16, 32]), draw.choice([256, 1024]), dense
        )
        found = search(asked)
        best = min(seconds for _, seconds in found.baselines.values())
        gains.append(best / found.seconds - 1)
        if found.seconds > best * (1 + 1e-9):
            slower.append(number)
    if gains:
        told = f"gain {statistics.median(gains):.1%} in the median, {max(gains):.1%} at most"
        print(f"{len(gains)} sets: slower than the best baseline in {len(slower)} {slower or ''}; {told}")
    behind, counts = [], []
    for number in range(given.first, given.first + given.small):
        tables = drawn(random.Random(10_000 + number), 4)
        asked = problem(
            tuple(replace(each, ways=("table", "column", "row")) for each in tables),
            3,
            2048,
            DENSE if number % 2 else DensePart(),
        )
        shortest, plans = of_all(asked)
        behind.append(search(asked).seconds / shortest - 1)
        counts.append(plans)
    if behind:
        told = f"median {statistics.median(behind):.2%}, most {max(behind):.2%}"
        print(f"{len(behind)} small sets of {min(counts):,} to {max(counts):,} plans: behind the best of all by {told}")
    print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
