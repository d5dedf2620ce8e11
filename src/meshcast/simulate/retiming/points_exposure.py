"""Which waiting is exposed communication, at many points of a sweep at once: `exposure` with arrays in the place of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshcast.base import Group

Floats = npt.NDArray[np.float64]


class ExposedAtPoints(NamedTuple):
    """Seconds in which nothing is computed: with collectives under way, without, and each group's part of the first."""

    exposed: Floats
    idle: Floats
    by_group: dict[Group, Any]


def exposed_at_points(
    duration: Floats, begun: Floats, ended: Floats, sent: Floats, arrived: Floats, over: Sequence[Group]
) -> ExposedAtPoints:
    """What waits for what in a block.

    Args:
        duration: How long it takes.
        begun: When each step that computes begins, by step and point; in order, and none before the one before has ended.
        ended: When each ends.
        sent: When each collective begins.
        arrived: When each ends.
        over: Its group.
    """
    points = len(duration)
    exposed, idle = np.zeros(points), np.zeros(points)
    by_group: dict[Group, Any] = {}
    for start, end in _gaps(duration, begun, ended):
        under = np.flatnonzero(((sent < end) & (arrived > start)).any(axis=1)).tolist()
        cuts = np.stack([start, *(np.clip(each[k], start, end) for k in under for each in (sent, arrived)), end])
        if under:
            cuts.sort(axis=0)
        for position, until in pairwise(cuts):
            seconds = until - position
            active = [(sent[k] <= position) & (arrived[k] > position) for k in under]
            count = sum((each.astype(np.float64) for each in active), np.zeros(points))
            exposed += np.where(count > 0, seconds, 0.0)
            idle += np.where(count > 0, 0.0, seconds)
            for k, here in zip(under, active, strict=True):
                part = np.where(here, seconds / np.maximum(count, 1.0), 0.0)
                by_group[over[k]] = by_group.get(over[k], 0.0) + part
    return ExposedAtPoints(exposed, idle, by_group)


def _gaps(duration: Floats, begun: Floats, ended: Floats) -> list[tuple[Floats, Floats]]:
    """Stretches of time in which nothing computes, in order; some are empty at some points."""
    there = ended > begun  # what takes no time covers none
    reached = np.maximum.accumulate(np.where(there, ended, 0.0)) if len(ended) else ended
    nothing = np.zeros((1, len(duration)))
    starts = np.concatenate((nothing, reached))
    ends = np.concatenate((np.where(there, begun, starts[:-1]), duration[None]))
    open_ones = np.flatnonzero((ends > starts).any(axis=1)).tolist()
    return [(starts[k], np.maximum(starts[k], ends[k])) for k in open_ones]
