"""A recorded step of torchrec's trainer beside the predicted one: `compare --measured` of a recommender with tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import format_time
from meshcast.hardware import Cluster
from meshcast.jobs.embedding_tables.kinds import gpu_of
from meshcast.jobs.embedding_tables.plan_files import placed_tables
from meshcast.jobs.embedding_tables.recorded_trainer import RecordedTrainer, read_trainer
from meshcast.jobs.embedding_tables.sharding import TrainerRanks
from meshcast.jobs.embedding_tables.table import EmbeddingTable
from meshcast.jobs.embedding_tables.trainer_launches import PROFILED_S, trainer_step

LARGEST = 5  # kinds of kernels whose order is told


@dataclass(frozen=True, kw_only=True)
class MeasuredTrainer:
    """A recorded step, and what is predicted of it without a profiler: seconds, and of its kernels by kind."""

    recorded: RecordedTrainer
    plan: tuple[dict[str, Any], ...]
    alone_s: float
    kinds_s: dict[str, float]

    @property
    def predicted_s(self) -> float:
        """With what the profiler took for the host's events."""
        return self.alone_s + self.recorded.events * PROFILED_S

    @property
    def in_order(self) -> bool:
        """Whether the largest kinds are predicted in the recorded order."""
        ours, theirs = (
            sorted(kinds, key=lambda kind: -kinds[kind])[:LARGEST] for kinds in (self.kinds_s, self.recorded.kinds_s)
        )
        return ours == theirs

    @property
    def kinds(self) -> list[tuple[str, float, float]]:
        """(kind, predicted, recorded) seconds, the longest recorded first."""
        ours, theirs = self.kinds_s, self.recorded.kinds_s
        found = [(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in {**theirs, **ours}]
        return sorted(found, key=lambda each: -each[2])

    def lines(self) -> Iterator[str]:
        """All of it for people."""
        truth = self.recorded.step_s
        both = f"predicted {format_time(self.predicted_s)}, recorded {format_time(truth)}"
        yield f"step: {both}, {self.predicted_s / truth - 1:+.1%}"
        without = f"without what a profiler takes for {self.recorded.events:,} events"
        yield f"{without}: {format_time(self.alone_s)}, {self.alone_s / truth - 1:+.1%}"
        for kind, ours, theirs in self.kinds:
            yield f"{kind:12} predicted {1e6 * ours:5.0f} us, recorded {1e6 * theirs:5.0f} us"
        yield f"the {LARGEST} largest are predicted in {'the same' if self.in_order else 'another'} order"

    def to_json(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "schema": "meshcast.measured-tables/1",
            "predicted_s": self.predicted_s,
            "measured_s": self.recorded.step_s,
            "without_profiler_s": self.alone_s,
            "kinds": [{"kind": kind, "predicted_s": a, "measured_s": b} for kind, a, b in self.kinds],
            "largest_in_order": self.in_order,
            "batch": self.recorded.batch,
            "bottom": list(self.recorded.layers.bottom),
            "top": list(self.recorded.layers.top),
            "plan": list(self.plan),
        }


def measured_trainer(
    folder: Path, tables: Sequence[EmbeddingTable], cluster: Cluster, *, host: str = "slow"
) -> MeasuredTrainer:
    """A folder of traces, one a rank, beside the prediction of the model, tables and plan that they tell.

    Raises:
        InputError: The traces are of something else.
        UnsupportedError: The cluster has no GPUs.
    """
    gpu_of(cluster.device)
    recorded = read_trainer(folder, tables)
    node = min(cluster.levels[0].size, len(recorded.held))
    ranks = TrainerRanks(devices=len(recorded.held), node=node, batch=recorded.batch)
    said = recorded.plan(tables)
    plan = placed_tables(said, tables, ranks, str(folder))
    seconds, kinds = trainer_step(tables, plan, recorded.layers, cluster, ranks, host=host, lists=recorded.lists)
    return MeasuredTrainer(recorded=recorded, plan=tuple(said), alone_s=seconds, kinds_s=kinds)
