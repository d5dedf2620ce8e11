"""Ranks that are not alike, as rows of a prediction."""

from __future__ import annotations

from meshcast.results.timed import RankShare
from meshcast.simulate import ClassRun


def rank_shares(run: ClassRun) -> tuple[RankShare, ...]:
    """A row for each class, the slowest first, then by how long they wait."""
    rows = [
        RankShare(
            first_device=int(run.classes.first[index]),
            devices=int(run.classes.sizes[index]),
            speed=float(run.speed[index]),
            busy_s=float(run.busy[index]),
            waiting_s=float(run.waiting[index]),
        )
        for index in range(run.classes.count)
    ]
    return tuple(sorted(rows, key=lambda row: (row.speed, row.waiting_s)))
