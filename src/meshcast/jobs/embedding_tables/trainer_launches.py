"""A step of torchrec's trainer as its host issues it, launch by launch: seconds, and those of its kernels by kind.

A collective's kernel is its steps and bytes beside a launch, and not what a call takes before the first step (`start` of a
link's file: the call itself, and ranks that are not there at once), as a trace has the rank that comes to it last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from meshcast.hardware import Cluster
from meshcast.jobs.embedding_tables.issued import EAGER_GAP, eager_dense, eager_step
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.placing import PlacedTable
from meshcast.jobs.embedding_tables.recorded_trainer import kind_of
from meshcast.jobs.embedding_tables.sharding import TrainerRanks
from meshcast.jobs.embedding_tables.table import EmbeddingTable
from meshcast.jobs.embedding_tables.torchrec import torchrec_launches
from meshcast.jobs.embedding_tables.traffic import LookUps
from meshcast.jobs.embedding_tables.wires import TableWires
from meshcast.simulate import call_costs
from meshcast.zoo import DenseLayers

PROFILED_S = (
    0.5e-6  # that torch's profiler takes for an event with its shapes: 954 events of a step on a CPU, torch 2.13
)


def trainer_step(
    tables: Sequence[EmbeddingTable], plan: Sequence[PlacedTable], layers: DenseLayers, cluster: Cluster, ranks: TrainerRanks,
    *, host: str, lists: bool,
) -> tuple[float, dict[str, float]]:  # fmt: skip
    """Seconds of the step, and of its kernels by kind; tables are whole, a rank's or everybody's."""
    wires, batch, dim = TableWires(cluster, ranks), ranks.batch, layers.dim
    shared = [table for table, placed in zip(tables, plan, strict=True) if placed.sharding.way == "data"]
    busiest = max(
        (
            [t for t, placed in zip(tables, plan, strict=True) if placed.places == (rank,)]
            for rank in range(ranks.devices)
        ),
        key=len,
    )
    most = len(busiest)
    dense = eager_dense(layers, cluster.device.name, batch, "float32", lists=lists)
    weights = sum(n * m + m for n, m in pairwise((layers.dense, *layers.bottom)))
    weights += sum(n * m + m for n, m in pairwise((layers.read, *layers.top)))
    pooled = 4.0 * ranks.global_batch * dim * most
    # Sizes (two counts for every rank), lengths, indices; pooled rows and their gradients.
    indices = batch * sum(table.pooling for table in tables)
    exchanged = [16.0 * ranks.devices, 4.0 * batch * len(tables), 8.0 * indices, pooled, pooled]
    reduced = [4.0 * weights / 2] * 2 + [4.0 * dim * sum(table.rows for table in shared)]
    gap = EAGER_GAP * cluster.device.launch_latency_s
    # Kernels with next to nothing to do, timed as those of the dense part are.
    launch, summed = (min(e.seconds for e in dense.launches if e.name == name) - gap for name in ("relu", "mean"))

    def seen(seconds: float) -> float:
        return seconds - cluster.levels[0].link.start_s + cluster.device.launch_latency_s

    kernels = EmbeddingKernels(device=cluster.device)
    looked_up = [
        LookUps(
            picked=t.picked, dim=dim, element_bytes=4, look_ups=ranks.global_batch * t.pooling, bags=ranks.global_batch
        )
        for t in busiest
    ]
    moved = [kernels.traffic(each) for each in looked_up]
    look_up = kernels.forward_call(sum(map(kernels.forward, moved)), max(map(kernels.forward_block, moved)))
    update = kernels.backward_call(sum(map(kernels.backward, moved)), max(map(kernels.backward_chain, moved)), 0)
    launches = torchrec_launches(
        tables=len(tables), ranks=ranks.devices, shared=len(shared), parameters=2 * (len(layers.bottom) + len(layers.top)),
        kinds=len({placed.sharding.way for placed in plan}), launch_s=launch, sum_s=summed, look_up_s=float(look_up),
        update_s=float(update), exchange_s=fmean(seen(float(wires.all_to_all(size))) for size in exchanged),
        reduce_s=fmean(seen(float(wires.all_reduce(size))) for size in reduced),
    )  # fmt: skip
    issued = dense.with_tables(list(launches))
    found: dict[str, float] = defaultdict(float)
    own = {id(each) for each in dense.launches}
    for each in issued:
        found[kind_of(each.name)] += each.seconds - (gap if id(each) in own else 0.0)
    return eager_step(issued, call_costs(host)).step_s, dict(found)
