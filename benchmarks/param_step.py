"""Holds a predicted step of torchrec's DLRM on eight V100s against the recorded one of facebookresearch/param.

    python benchmarks/param_step.py DIR [--host slow]

DIR has `worker0_*.json` to `worker7_*.json` of et_replay/tests/inputs/dlrm_kineto.tar.gz. Tables and plan are worked out of
them and compared with the list `param-dlrm` and `data/measured/param-dlrm/plan.json`. Ranks began to be profiled up to 7 ms
apart, and all wait for the last in the first exchange: the recorded step is the last one's. For the same reason a
collective's kernel is counted as the rank sees it that comes to it last. Of a predicted one that is its steps and bytes beside
a launch, and not what a call takes before the first step (`start` of a link's file: the call itself, and ranks that are not
there at once).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from meshcast.hardware import resolve
from meshcast.simulate import call_costs
from meshcast.tables import (
    EAGER_GAP,
    EmbeddingKernels,
    EmbeddingTable,
    LookUps,
    TableWires,
    TrainerRanks,
    eager_dense,
    eager_step,
    read_plan,
    read_tables,
    torchrec_launches,
)  # fmt: skip
from meshcast.zoo import DenseLayers

ON, RANKS, BATCH, DIM = "dgx-v100", 8, 16, 16
PLAN = Path(__file__).parents[1] / "data/measured/param-dlrm/plan.json"
LAYERS = DenseLayers(features=26, dim=DIM, bottom=(256, 128, DIM), top=(512, 512, 256, 1))
LOOK_UP = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
PROFILED_S = (
    0.5e-6  # that torch's profiler takes for an event with its shapes: 954 events of a step on a CPU, torch 2.13
)
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def events(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What one rank's trace has."""
    found = sorted(folder.glob(f"worker{rank}_*.json"))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files worker{rank}_*.json, and one is wanted")
    traced: list[dict[str, Any]] = json.loads(found[0].read_text())["traceEvents"]
    return traced


def tables_of(traced: list[dict[str, Any]], tables: tuple[EmbeddingTable, ...]) -> tuple[str, ...]:
    """The tables that a rank's fused look-up has: those whose rows and indices add up to its own, in one way alone."""
    (call,) = [e for e in traced if e.get("cat") == "cpu_op" and e["name"] == LOOK_UP]
    shapes = call["args"]["Input Dims"]
    elements, count, indices = shapes[1][0], shapes[4][0], shapes[11][0]
    fits = [
        each
        for each in itertools.combinations(tables, count)
        if sum(table.rows * DIM for table in each) == elements
        and round(sum(table.pooling for table in each) * BATCH * RANKS) == indices
    ]
    if len(fits) != 1:
        raise SystemExit(f"{len(fits)} choices of tables have {elements:,} elements and {indices:,} indices")
    return tuple(table.name for table in fits[0])


def kind(name: str) -> str:
    """What a kernel is, by its own name or that of a predicted launch."""
    tellers = {
        "all-reduce": ("AllReduce", "all-reduce"), "all-to-all": ("SendRecv", "all-to-all"),
        "copies": ("emcpy", "emset", "copies"),
        "tables": ("embedding", "linearize", "cub::", "bounds_check", "permute_2D", "asynchronous", "tables", "radix_sort"),
        "products": ("gemm", "gemv", "mm", "splitKreduce", "dot_kernel", "reduce_1Block"),  # of cuBLAS
        "sums": ("reduce_kernel", "sum", "mean"),
    }  # fmt: skip
    return next((each for each, words in tellers.items() if any(word in name for word in words)), "elementwise")


def recorded(ranks: list[list[dict[str, Any]]]) -> tuple[float, Counter[str], int]:
    """Seconds of the step of the rank that began last, of its kernels by kind, and how many events of the host it has."""
    begun = [next(e for e in traced if e["name"].startswith("ProfilerStep")) for traced in ranks]
    last = max(range(RANKS), key=lambda rank: begun[rank]["ts"])
    found: Counter[str] = Counter()
    for event in ranks[last]:
        if event.get("cat") in WORK and "nccl" not in event["name"]:
            found[kind(event["name"])] += 1e-6 * event["dur"]
    joint = [
        sorted((e for e in t if "nccl" in e["name"] and e.get("cat") == "kernel"), key=lambda e: e["ts"]) for t in ranks
    ]
    for each in zip(*joint, strict=True):
        found[kind(each[0]["name"])] += 1e-6 * min(event["dur"] for event in each)
    traced = sum(event.get("cat") in ("cpu_op", "cuda_runtime") for event in ranks[last])
    return 1e-6 * begun[last]["dur"], found, traced


def predicted(host: str) -> tuple[float, Counter[str]]:
    """Seconds of the step, and of its kernels by kind."""
    cluster = resolve(ON)
    wires = TableWires(cluster, TrainerRanks(devices=RANKS, node=RANKS, batch=BATCH))
    tables = read_tables("param-dlrm")
    plan = read_plan(PLAN, tables, wires.ranks)
    shared = [table for table, placed in zip(tables, plan, strict=True) if placed.sharding.way == "data"]
    most = max(sum(placed.places == (rank,) for placed in plan) for rank in range(RANKS))
    dense = eager_dense(LAYERS, cluster.device.name, BATCH, "float32", lists=False)
    weights = sum(n * m + m for n, m in itertools.pairwise((13, *LAYERS.bottom)))
    weights += sum(n * m + m for n, m in itertools.pairwise((LAYERS.read, *LAYERS.top)))
    pooled = 4.0 * BATCH * RANKS * DIM * most
    # Sizes (two counts for every rank), lengths, indices; pooled rows and their gradients.
    indices = BATCH * sum(table.pooling for table in tables)
    exchanged = [16.0 * RANKS, 4.0 * BATCH * len(tables), 8.0 * indices, pooled, pooled]
    reduced = [4.0 * weights / 2] * 2 + [4.0 * DIM * sum(table.rows for table in shared)]
    gap = EAGER_GAP * cluster.device.launch_latency_s
    # A kernel with next to nothing to do, timed as those of the dense part are.
    launch = min(each.seconds for each in dense.launches if each.name == "relu") - gap
    summed = min(each.seconds for each in dense.launches if each.name == "mean") - gap

    def seen(seconds: float) -> float:
        return seconds - cluster.levels[0].link.start_s + cluster.device.launch_latency_s

    kernels = EmbeddingKernels(device=cluster.device)
    alike = [
        LookUps(picked=t.picked, dim=DIM, element_bytes=4, look_ups=BATCH * RANKS * t.pooling, bags=BATCH * RANKS)
        for t in tables
    ]
    moved = [kernels.traffic(each) for each in alike[:most]]
    look_up = kernels.forward_call(sum(map(kernels.forward, moved)), max(map(kernels.forward_block, moved)))
    update = kernels.backward_call(sum(map(kernels.backward, moved)), max(map(kernels.backward_chain, moved)), 0)
    launches = torchrec_launches(
        tables=len(tables), ranks=RANKS, shared=len(shared), parameters=2 * (len(LAYERS.bottom) + len(LAYERS.top)),
        kinds=len({placed.sharding.way for placed in plan}), launch_s=launch,
        sum_s=summed,
        look_up_s=float(look_up),
        update_s=float(update),

        exchange_s=statistics.fmean(seen(float(wires.all_to_all(size))) for size in exchanged),
        reduce_s=statistics.fmean(seen(float(wires.all_reduce(size))) for size in reduced),
    )  # fmt: skip
    issued = dense.with_tables(list(launches))
    found: Counter[str] = Counter()
    own = {id(each) for each in dense.launches}
    for each in issued:
        found[kind(each.name)] += each.seconds - (gap if id(each) in own else 0.0)
    return eager_step(issued, call_costs(host)).step_s, found


def main() -> None:
    """Reads, rebuilds, predicts, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="slow")
    given = parser.parse_args()
    ranks = [events(given.folder, rank) for rank in range(RANKS)]
    tables = read_tables("param-dlrm")
    shipped = {each["table"]: each for each in json.loads(PLAN.read_text())}
    for rank, traced in enumerate(ranks):
        rebuilt = tables_of(traced, tables)
        same = rebuilt == tuple(t.name for t in tables if shipped[t.name]["ranks"] == [rank])
        print(f"rank {rank}: {', '.join(rebuilt)}{'' if same else '  which plan.json has elsewhere'}")
    (truth, real, traced), (alone, model) = recorded(ranks), predicted(given.host)
    ours = alone + traced * PROFILED_S
    print(f"step: predicted {1e3 * ours:.2f} ms, recorded {1e3 * truth:.2f} ms, {ours / truth - 1:+.1%}")
    print(f"without what a profiler adds to {traced:,} events: {1e3 * alone:.2f} ms, {alone / truth - 1:+.1%}")
    for name, found in (("predicted", model), ("recorded", real)):
        print(f"{name}:", ", ".join(f"{each} {1e6 * seconds:.0f} us" for each, seconds in found.most_common()))
    order = [[each for each, _ in found.most_common(5)] for found in (model, real)]
    print("five largest:", "in the same order" if order[0] == order[1] else "in another order")


if __name__ == "__main__":
    main()
