"""What `points_run` adds up and chooses by: sums in their order, groups of devices, and the places of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import Group, column_of
from meshcast.lower import Kernel
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.retiming.points_events import Floats, Places
from meshcast.simulate.timeline import GroupTime


class GroupsAtPoints:
    """Seconds of groups of devices, in the order in which they are met."""

    def __init__(self) -> None:
        self._found: dict[Group, tuple[Any, Any]] = {}

    def add(self, group: Group, busy: Any, exposed: Any) -> None:
        """More of a group."""
        before = self._found.get(group)
        self._found[group] = (busy, exposed) if before is None else (before[0] + busy, before[1] + exposed)

    def told(self) -> tuple[GroupTime, ...]:
        """All of them."""
        return tuple(
            GroupTime(group=group, busy=_number(busy), exposed=_number(exposed))
            for group, (busy, exposed) in self._found.items()
        )


def _number(seconds: Any) -> Any:
    """A column of an array, or one number where all points have the same."""
    return column_of(seconds) if np.ndim(seconds) else float(seconds)


def group_of(block: BlockPlan, index: int) -> Group:
    """The group that a collective is among."""
    kernel = block.steps[index]
    assert isinstance(kernel, Kernel)
    assert kernel.collective is not None
    return kernel.collective.group


def sum_in_order(rows: Floats, points: int) -> Floats:
    """The sum of rows, one after the other, as `+=` adds them: `sum` may add in another order."""
    found: Floats = np.add.accumulate(rows)[-1] if len(rows) else np.zeros(points)
    return found


def last_end(seconds: Floats, ends: Floats) -> Floats:
    """When the last of the steps ends that take time."""
    found: Floats = np.maximum.reduce(np.where(seconds != 0.0, ends, 0.0), axis=0, initial=0.0)
    return found


def latest_of(one: Any, others: Sequence[Any]) -> Any:
    """The latest of some times, at each point."""
    for other in others:
        one = np.maximum(one, other)
    return one


def chosen_rows(rows: Sequence[Floats], taken: npt.NDArray[np.int64]) -> Floats:
    """At each point what the order has that it takes."""
    found = rows[0].copy()
    for number, each in enumerate(rows[1:], 1):
        found[..., taken == number] = each[..., taken == number]
    return found


def in_both(one: Places | None, other: Places | None) -> Places | None:
    """The points that are in both; None: all."""
    if one is None or other is None:
        return other if one is None else one
    return np.intersect1d(one, other, assume_unique=True)


def last_there(there: npt.NDArray[np.bool_], rows: Floats) -> Floats:
    """At each point the last row that is there; 0 where none is."""
    points = there.shape[1]
    if not len(there):
        return np.zeros(points)
    place = len(there) - 1 - np.argmax(there[::-1], axis=0)
    return np.where(there.any(axis=0), rows[place, np.arange(points)], 0.0)
