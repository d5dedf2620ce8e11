"""`JobTrace`: what every rank of a job does, ranks that are equal once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from meshcast.chakra import DEVICE_KIND, Attribute
from meshcast.jobs.nodes.job_groups import Ints, JobGroups
from meshcast.jobs.nodes.pieces import RankBody
from meshcast.jobs.program.run import Run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankClass:
    """Ranks that do the same, but for the numbers of their groups and neighbours."""

    ranks: Ints
    body: RankBody


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTrace:
    """A job's trace before it is bytes.

    Attributes:
        name: The name of the job.
        groups: The groups of its ranks.
        classes: All ranks, equal ones together.
        step_s: Seconds that were predicted, from one step to the next.
        makespan_s: Seconds of one step replayed by itself, all ranks beginning at once: more than `step_s` where
            ranks go on to the next step before all are done with this one, which the metadata then says.
        metadata: What all files say about themselves.
    """

    name: str
    groups: JobGroups
    classes: tuple[RankClass, ...]
    step_s: float
    makespan_s: float
    metadata: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """The number of ranks of the class."""
        return self.groups.ranks

    @property
    def folded(self) -> bool:
        """Whether a turn of some loop stands for all."""
        return any("repeat" in piece.attributes for each in self.classes for piece in each.body.pieces)

    def turns(self) -> int:
        """How many nodes all ranks have with every turn of every loop."""
        return sum(each.ranks.size * each.body.turns() for each in self.classes)


def facts_of(run: Run, ranks: int) -> dict[str, Attribute]:
    """What all files of a job say about themselves, of which a program ran like this."""
    return {
        "device": run.device.name, DEVICE_KIND: run.device.kind, "network": run.options.network.model, "ranks": ranks,
    }  # fmt: skip


def classes_of(body: RankBody, ranks: Ints, groups: JobGroups) -> list[RankClass]:
    """Ranks with one body, those apart that take no part in some of its collectives or messages: they do without these."""
    used = body.rank_values()
    absent = (
        np.stack([groups.values[v].missing(ranks) for v in used]) if used else np.zeros((0, len(ranks)), dtype=bool)
    )
    if not absent.any():
        return [RankClass(ranks=ranks, body=body)]
    patterns, of_rank = np.unique(absent, axis=1, return_inverse=True)
    found = []
    for number in range(patterns.shape[1]):
        missing = {value for value, gone in zip(used, patterns[:, number], strict=True) if gone}
        left_out = {index for index, piece in enumerate(body.pieces) if piece.rank_value in missing}
        found.append(RankClass(ranks=ranks[of_rank.reshape(-1) == number], body=body.without(left_out)))
    return found
