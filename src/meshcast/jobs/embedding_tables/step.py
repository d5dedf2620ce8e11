"""A training step over sharded tables: what every rank does, which collectives join them, and what hides behind what.

The order is that of torchrec's pipelined trainer (`TrainPipelineSparseDist`): indices of the next batch travel while this
one is trained; tables are looked up and pooled rows sent while the bottom layers run; the rest of the dense part goes
forwards and backwards; gradients of pooled rows travel while the bottom layers go backwards; then tables are updated. Dense
gradients are all-reduced from when the first of them are there, on the same links. With `F`, `U` look-ups and updates of
the slowest rank, `P` the pooled rows' collectives, `A` the all-reduce, `I` the indices' all-to-all, `f`, `b` the dense
passes with `f0`, `b0` of the bottom layers, `o` the optimizer:

    forward  = F + max(P, f0) + f
    tables   = max(P, b0) + U                    (after b)
    reduced  = max(b + b0 + A / buckets, A + P)  (from the beginning of b)
    step     = max(forward + max(b + tables, reduced) + o, I + P + P + A)

The last alternative: links that are never idle. Without the pipeline `I` comes first, and is added. A step lasts at least as
long as the host takes to issue it; plans are compared without it.

This formula guides a search, which asks for thousands of steps; the step that is told, and by which the plans that it ends
with are compared, is followed rank by rank (`simulated`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.jobs.embedding_tables.dense import DensePart
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.kinds import RankKinds
from meshcast.jobs.embedding_tables.simulated import MOST_BUCKETS, SimulatedStep, StepWork, dense_of_ranks
from meshcast.jobs.embedding_tables.wires import TableWires

Floats = npt.NDArray[np.float64]
BUCKET_BYTES = 25 * 2**20  # DistributedDataParallel's bucket_cap_mb


class Load(IntEnum):
    """What a rank has of everything: the rows of a matrix with a column a rank."""

    FORWARD = 0
    BACKWARD = 1
    INPUT = 2
    TABLE = 3  # bytes of pooled rows, by the collectives that carry them
    COLUMN = 4
    ROW = 5
    NODE = 6
    MEMORY = 7


LOADS = len(Load)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a step and of its parts, and the rank that each waits for."""

    step_s: float
    parts_s: dict[str, float]
    slowest: dict[str, int]
    bound: str
    device_s: float

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "step_s": self.step_s,
            "device_s": self.device_s,
            "parts_s": self.parts_s,
            "slowest_rank": self.slowest,
            "bound_by": self.bound,
        }


@dataclass(frozen=True, kw_only=True)
class StepModel:
    """Times steps on given wires with a given dense part, and the longest parts of any table's kernels."""

    wires: TableWires
    dense: DensePart
    kernels: EmbeddingKernels
    block_s: float = 0.0
    chain_s: float = 0.0
    pipelined: bool = True

    def seconds(self, most: Floats, reduced: float) -> Floats:
        """Seconds of steps whose ranks have at most so much of each load; one column a step."""
        return self._chain(most, reduced)[0]

    def told(self, load: Floats, reduced: float, kinds: RankKinds) -> StepTime:
        """The step of one plan, every rank by itself, taken apart as the rank has it that computes longest."""
        most = load.max(axis=1, keepdims=True)
        _, _, _, pooled, indices, reducing = (float(each[0]) for each in self._chain(most, reduced)[:6])
        work = StepWork(
            look_ups=np.where(load[Load.FORWARD] > 0, self.kernels.forward_call(load[Load.FORWARD], self.block_s), 0.0),
            updates=np.where(load[Load.BACKWARD] > 0, self.kernels.backward_call(load[Load.BACKWARD], self.chain_s), 0.0),
            pooled=pooled, indices=indices, reduced=reducing, buckets=self._buckets(reduced), pipelined=self.pipelined,
            dense=dense_of_ranks(tuple(kind.dense for kind in kinds.kinds), kinds.of_rank),
        )  # fmt: skip
        done = SimulatedStep(work).run()
        dense = np.sum(list(work.dense.values()), axis=0)
        longest = int((work.look_ups + work.updates + dense).argmax())
        waited = {name: float(each[longest]) for name, each in done.waited.items()}
        parts = {
            "look_ups": float(work.look_ups[longest]),
            "updates": float(work.updates[longest]),
            "pooled": 2 * pooled,
            "exposed_pooled": waited["pooled"],
            "indices": indices,
            "exposed_indices": waited["indices"],
            "dense": float(dense[longest]),
            "reduced": reducing,
            "exposed_reduced": waited["reduced"],
            "waiting": waited["ranks"],
        }
        own = {
            "look-ups and updates": parts["look_ups"] + parts["updates"],
            "pooled rows": parts["exposed_pooled"],
            "dense layers": parts["dense"],
            "dense all-reduce": parts["exposed_reduced"],
            "indices": parts["exposed_indices"],
            "waiting for other ranks": parts["waiting"],
        }
        slowest = {
            "look_ups": int(work.look_ups.argmax()),
            "updates": int(work.updates.argmax()),
            "pooled": int(load[Load.TABLE : Load.MEMORY].sum(axis=0).argmax()),
            "indices": int(load[Load.INPUT].argmax()),
            "computing": longest,
        }
        bound = "host" if self.dense.host_s > done.step_s else max(own, key=lambda name: own[name])
        return StepTime(
            step_s=max(done.step_s, self.dense.host_s),
            parts_s=parts,
            slowest=slowest,
            bound=bound,
            device_s=done.step_s,
        )

    def _buckets(self, reduced: float) -> int:
        return min(MOST_BUCKETS, max(1, math.ceil((self.dense.gradient_bytes + reduced) / BUCKET_BYTES)))

    def _chain(self, most: Floats, reduced: float) -> tuple[Floats, ...]:
        """The step; look-ups, updates, pooled rows one way, indices, the all-reduce."""
        dense, wires = self.dense, self.wires
        look_ups = self.kernels.forward_call(most[Load.FORWARD], self.block_s)
        updates = self.kernels.backward_call(most[Load.BACKWARD], self.chain_s)
        pooled = wires.all_to_all(most[Load.TABLE]) + wires.all_to_all(most[Load.COLUMN])
        pooled = pooled + wires.reduce_scatter(most[Load.ROW])
        if most[Load.NODE].any():
            pooled = pooled + wires.in_node(most[Load.NODE]) + wires.across(most[Load.NODE] / wires.ranks.node)
        indices = wires.all_to_all(most[Load.INPUT])
        size = dense.gradient_bytes + reduced if wires.ranks.devices > 1 else 0.0
        reducing = float(wires.all_reduce(size))
        last = reducing / max(1.0, size / BUCKET_BYTES)
        forward = look_ups + np.maximum(pooled, dense.bottom_forward_s) + dense.forward_s
        tables = dense.backward_s + np.maximum(pooled, dense.bottom_backward_s) + updates
        wired = np.maximum(dense.backward_s + dense.bottom_backward_s + last, reducing + pooled)
        alone = forward + np.maximum(tables, wired) + dense.optimizer_s
        step = np.maximum(alone, indices + 2 * pooled + reducing) if self.pipelined else alone + indices
        return step, look_ups, updates, pooled, indices, np.full_like(step, reducing)
