"""`plan_tables`: tables, devices and memory become the fastest sharding that was found, told beside those in use."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshcast.base import InfeasibleError, UsageError, format_bytes
from meshcast.hardware import HEALTHY, Cluster, Conditions, resolve
from meshcast.jobs.embedding_tables.dense import DensePart, dense_part
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels, rows_from_host
from meshcast.jobs.embedding_tables.kinds import devices_of, gpu_of, rank_kinds
from meshcast.jobs.embedding_tables.placing import PlacedTable, ShardingProblem
from meshcast.jobs.embedding_tables.plan_files import read_plan
from meshcast.jobs.embedding_tables.planner import NO_FIT, search, timed
from meshcast.jobs.embedding_tables.sharding import TrainerRanks, longest_parts
from meshcast.jobs.embedding_tables.step import Load, StepModel, StepTime
from meshcast.jobs.embedding_tables.table import EmbeddingTable
from meshcast.jobs.embedding_tables.traffic import LookUps
from meshcast.jobs.embedding_tables.wires import TableWires
from meshcast.jobs.embedding_tables.words import element_named
from meshcast.simulate import call_costs
from meshcast.zoo import DenseLayers, SequenceLayers

WIRES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "f8": 1.0}
MEMORY_SHARE = 0.9  # of a device's: what allocators, communicators and the runtime leave


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesQuestion:
    """What is asked of a planner.

    Attributes:
        batch: Samples of a step, over all devices.
        layers: The dense layers; None where tables alone are asked for.
        wire: Precision of pooled rows that are sent.
        dtype: Precision of the dense layers: `float32` as PyTorch's default has it, `tf32`, or `bfloat16` by autocast.
        host: How fast the host is, as `--host` says it; `off` where it is not to count.
        pipelined: Whether indices of the next batch travel meanwhile.
        memory_share: Share of a device's memory that tables and the dense part may take.
        against: The file of a plan that somebody else made, to be timed beside ours.
        given: The file of a plan to be timed instead of searching for one.
        conditions: Devices of another kind or speed, and links that are not at their full rate.
    """

    tables: tuple[EmbeddingTable, ...]
    on: str
    devices: int | None = None
    batch: int = 65536
    layers: DenseLayers | SequenceLayers | None = None
    dtype: str = "float32"
    stack: str = "pytorch-eager"
    host: str = "slow"
    wire: str = "f32"
    network: str = "alpha-beta"
    pipelined: bool = True
    memory_share: float = MEMORY_SHARE
    against: Path | None = None
    given: Path | None = None
    conditions: Conditions = HEALTHY


@dataclass(frozen=True, kw_only=True)
class TablesAnswer:
    """The plan that was found, its step, and those of the baselines."""

    question: TablesQuestion
    problem: ShardingProblem
    plan: tuple[PlacedTable, ...]
    step: StepTime
    baselines: dict[str, float | None]
    memory_bytes: tuple[float, float]
    seconds: float
    against: StepTime | None = None

    @property
    def bound(self) -> str:
        """In a sentence, what the step waits for."""
        told = {
            "look-ups and updates": f"look-ups and updates of rank {self.step.slowest['updates']}",
            "pooled rows": f"pooled rows of rank {self.step.slowest['pooled']}",
        }
        return told.get(self.step.bound, self.step.bound)

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        ranks, dense = self.problem.ranks, self.problem.model.dense
        return {
            "schema": "meshcast.tables-plan/1",
            "on": self.question.on,
            "devices": ranks.devices,
            "batch": ranks.global_batch,
            "tables": len(self.problem.tables),
            "step_time_s": self.step.step_s,
            "device_s": self.step.device_s,
            "parts_s": self.step.parts_s,
            "host_s": dense.host_s,
            "slowest_rank": self.step.slowest,
            "bound_by": self.bound,
            "baselines_s": self.baselines,
            "memory_bytes": {"most": self.memory_bytes[0], "mean": self.memory_bytes[1], "capacity": self._capacity},
            "against": self.against.to_json() if self.against else None,
            "samples_per_s": ranks.global_batch / self.step.step_s,
            "plan": [
                {
                    "table": table.name, "rows": table.rows, "dim": table.dim, "sharding": placed.sharding.way,
                    "columns": placed.sharding.columns, "places": list(placed.places),
                }
                for table, placed in zip(self.problem.tables, self.plan, strict=True)
            ],
            "tool": {"seconds": self.seconds},
        }  # fmt: skip

    @property
    def _capacity(self) -> float:
        return self.problem.memory_bytes + self.problem.model.dense.memory_bytes


def plan_tables(question: TablesQuestion) -> TablesAnswer:
    """The fastest sharding that was found.

    Raises:
        UsageError: The devices do not divide the batch, or there are none.
        UnsupportedError: The device is no GPU.
        InfeasibleError: No plan fits.
    """
    started = time.perf_counter()
    call_costs(question.host)  # refuses what is no host, also where no dense layer has one
    problem = problem_of(question)
    other = read_plan(question.against, question.tables, problem.ranks) if question.against is not None else None
    found = (
        search(problem) if question.given is None
        else timed(problem, read_plan(question.given, question.tables, problem.ranks))
    )  # fmt: skip
    load, _ = problem.loaded(found.plan)
    held = problem.bytes_held(load)
    if not found.fits:
        fullest = int(load[Load.MEMORY].argmax())
        has = problem.kinds.kinds[problem.kinds.of_rank[fullest]].memory_bytes
        raise InfeasibleError(
            f"the tables take {format_bytes(float(held[fullest]))} on the fullest of {problem.ranks.devices} devices "
            f"at least, of {format_bytes(has)} that they have",
            where="--devices",
            fix="take more devices, a smaller batch, 2-byte tables, or `cached` to keep a share of the rows on the device",
        )
    dense = problem.model.dense.memory_bytes
    host = problem.model.dense.host_s
    baselines = {
        name: max(seconds, host) if seconds < NO_FIT else None for name, (_, seconds) in found.baselines.items()
    }
    return TablesAnswer(
        question=question,
        problem=problem,
        plan=found.plan,
        step=problem.told(found.plan),
        baselines=baselines,
        memory_bytes=(float(held.max()) + dense, float(np.mean(held)) + dense),
        seconds=time.perf_counter() - started,
        against=problem.told(other) if other is not None else None,
    )


def table_rows(tables: tuple[EmbeddingTable, ...], on: str, batch: int) -> list[dict[str, Any]]:
    """What a batch does with every table, each alone on one device: one JSON object a table."""
    kernels = EmbeddingKernels(device=gpu_of(resolve(on).device))
    found = []
    for table in tables:
        work = LookUps(
            picked=table.picked, dim=table.dim, element_bytes=table.element_bytes, look_ups=batch * table.pooling,
            bags=table.bags(batch), spread=table.spread if table.pooled else 0.0,
            state_bytes=table.row_state_bytes, cached=table.cached, hits=table.hits,
        )  # fmt: skip
        moved, host = kernels.traffic(work), kernels.from_host(work)
        forward = kernels.forward_call(kernels.forward(moved), kernels.forward_block(moved))
        backward = kernels.backward_call(kernels.backward(moved), kernels.backward_chain(moved), moved.look_ups)
        found.append({
            "table": table.name, "rows": table.rows, "dim": table.dim, "bytes": table.bytes, "indices": str(table.indices),
            "pooling": table.pooling,
            "look_ups": moved.look_ups, "different": moved.different, "missed": moved.missed, "hottest": moved.hottest,
            "in_long_runs": moved.in_long_runs,
            "hits": None if table.cached is None else 1 - rows_from_host(work) / max(1e-9, float(moved.different)),
            "forward_s": float(forward) + host, "backward_s": float(backward) + host,
        })  # fmt: skip
    return found


def problem_of(question: TablesQuestion) -> ShardingProblem:
    """What a planner works on."""
    cluster = resolve(question.on)
    kernels = EmbeddingKernels(device=gpu_of(cluster.device))
    ranks = _ranks(question, cluster)
    if (wire := element_named(question.wire)) not in WIRES:
        raise UsageError(f"no wire precision {question.wire!r}", where="--wire", fix="one of " + ", ".join(WIRES))
    each = devices_of(cluster, ranks.devices, question.conditions)
    parts = {
        name: DensePart() if question.layers is None
        else dense_part(
            question.layers, name, ranks.batch, dtype=question.dtype, stack=question.stack, host=question.host
        )
        for name in dict.fromkeys(device.name for device, _ in each)
    }  # fmt: skip
    kinds = rank_kinds(each, parts, question.memory_share)
    block, chain = longest_parts(question.tables, ranks, kernels)
    model = StepModel(
        wires=TableWires(cluster, ranks, question.network, question.conditions), dense=kinds.slowest_dense, kernels=kernels,
        block_s=block, chain_s=chain, pipelined=question.pipelined,
    )  # fmt: skip
    return ShardingProblem(
        tables=question.tables,
        ranks=ranks,
        kernels=kernels,
        model=model,
        memory_bytes=kinds.kinds[0].memory_bytes,
        wire=WIRES[wire],
        unlike=kinds,
    )


def _ranks(question: TablesQuestion, cluster: Cluster) -> TrainerRanks:
    found = cluster.levels[0].size if cluster.levels else 1
    devices = found if question.devices is None else question.devices
    if devices < 1:
        raise UsageError(f"{devices} devices", where="--devices", fix="give 1 or more")
    if question.batch < 1 or question.batch % devices:
        raise UsageError(
            f"a batch of {question.batch:,} on {devices:,} devices",
            where="--batch",
            fix="give a multiple of the devices",
        )
    if devices > 1:
        if not cluster.levels:
            raise UsageError(
                f"{question.on} is a single device without a network", where="--on",
                fix="name a cluster of `meshcast devices`, e.g. dgx-h100",
            )  # fmt: skip
        cluster.for_devices(devices)  # refuses more than there are
    node = min(devices, cluster.levels[0].size) if cluster.levels else 1
    return TrainerRanks(devices=devices, node=node, batch=question.batch // devices)
