"""Points that differ in the numbers of their hardware alone, evaluated together: what is worked out of one is worked out of all.

The hardware of such points is put into one description with a column wherever a number is not the same (`hardware.many_points`),
and a prediction made of it once, by the code that makes it of one point: sums and products go over all points at once. Where a
decision does not come out alike (which algorithm a collective takes, which event comes first), points part and go on in
their groups; what cannot be asked of several points at once is asked of each, and each says why (`Outcome.alone`): searches count
them. Answers are those of each point alone, to the last bit (`tests/explore/test_together.py`).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Hashable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from meshcast.base import (
    MeshcastError,
    NotAlikeError,
    NumberColumn,
    OneByOneError,
    PartedError,
    collected_later,
    mapped,
    names_taken,
    room_for_nesting,
)
from meshcast.explore.evaluating import cluster_of, evaluate, options_key, options_of, outcome_of, resolved
from meshcast.explore.point import Outcome, Point
from meshcast.hardware import Cluster, alike_in_kind, hardware_at, several
from meshcast.jobs import Job, PipelineJob, ProgramJob, answered

FEWEST = 4  # points that are worth it
FEW_ALIKE = f"fewer than {FEWEST} points take its way"
# What says that points cannot be asked at once: they differ in more than numbers, a number is read otherwise than by arithmetic,
# a quotient has no value at some, or one of them cannot be answered at all (each is asked again, and told its own error).
ONE_BY_ONE = (NotAlikeError, OneByOneError, FloatingPointError, MeshcastError)


def evaluate_many(points: Sequence[Point]) -> list[Outcome]:
    """What comes of some points, in their order."""
    groups: dict[Hashable, list[int]] = {}
    for place, point in enumerate(points):
        key = options_key(point.asked)
        groups.setdefault((point.target, key) if key is not None else place, []).append(place)
    found: dict[int, Outcome] = {}
    for places in groups.values():
        asked = [points[place] for place in places]
        found |= zip(places, _together(asked) if len(asked) >= FEWEST else map(evaluate, asked), strict=True)
    return [found[place] for place in range(len(points))]


def _together(points: Sequence[Point]) -> list[Outcome]:
    """The outcomes of points of which hardware alone differs; those of which that cannot be asked together say why."""
    started = time.perf_counter()
    try:
        found = _at_once(points)
    except NotAlikeError as error:
        kinds = alike_in_kind([cluster_of(options_of(point.asked)) for point in points])
        return _by_kind(points, kinds) if len(kinds) > 1 else _each_alone(points, str(error))
    except ONE_BY_ONE as error:
        return _each_alone(points, str(error) or type(error).__name__)
    except Exception as error:  # a bug of ours: answers come all the same, slowly, and it is told
        return _each_alone(points, f"bug: {traceback.format_exception_only(error)[-1].strip()}")
    seconds = (time.perf_counter() - started) / len(points)
    return [
        replace(evaluate(point), alone=here) if isinstance(here, str) else replace(here, seconds=seconds)
        for point, here in ((point, found[place]) for place, point in enumerate(points))
    ]


def _by_kind(points: Sequence[Point], kinds: Sequence[Sequence[int]]) -> list[Outcome]:
    """The outcomes of points with hardware of several kinds (nodes of other sizes, other topologies): sets of their own."""
    found: dict[int, Outcome] = {}
    for places in kinds:
        asked = [points[place] for place in places]
        found |= zip(places, _together(asked) if len(asked) >= FEWEST else map(evaluate, asked), strict=True)
    return [found[place] for place in range(len(points))]


def _at_once(points: Sequence[Point]) -> dict[int, Outcome | str]:
    """The outcome of each point by its place; why it goes alone, of those that had better.

    Raises:
        NotAlikeError: They differ in more than numbers of their hardware.
    """
    clusters = [cluster_of(options_of(point.asked)) for point in points]
    first = resolved(points[0], clusters[0])
    if not isinstance(first, ProgramJob | PipelineJob):
        raise NotAlikeError("they are no programs")
    with collected_later(), names_taken(), room_for_nesting(), np.errstate(divide="raise", invalid="raise"):
        together = several(clusters)
        if not _all_alike(first, points, clusters, together):
            raise NotAlikeError("they have other programs or options")
        return _Batch(first, clusters).outcomes(together, np.arange(len(points)))


def _all_alike(
    first: ProgramJob | PipelineJob, points: Sequence[Point], clusters: Sequence[Cluster], together: Cluster
) -> bool:
    """Whether the jobs of all points are as the first one's.

    What is asked of them is the same, so one job that is made on the hardware of all of them at once says so; each point's own
    job is made where that cannot be done.
    """
    try:
        return _alike(first, resolved(points[0], together))
    except (PartedError, *ONE_BY_ONE):
        return all(_alike(first, resolved(*each)) for each in zip(points, clusters, strict=True))


def _each_alone(points: Sequence[Point], why: str) -> list[Outcome]:
    return [replace(evaluate(point), alone=why) for point in points]


def _alike(one: ProgramJob | PipelineJob, other: Job) -> bool:
    """Whether two jobs have the same programs, asked with the same options."""
    if not isinstance(other, ProgramJob | PipelineJob) or one.options.parts != other.options.parts:
        return False
    if isinstance(one, PipelineJob):
        return isinstance(other, PipelineJob) and one.pipeline is other.pipeline
    return isinstance(other, ProgramJob) and one.program is other.program


class _Batch:
    """Points of one job on hardware of different numbers."""

    def __init__(self, job: ProgramJob | PipelineJob, clusters: Sequence[Cluster]) -> None:
        self._job, self._clusters = job, clusters

    def outcomes(self, cluster: Cluster, places: Any) -> dict[int, Outcome | str]:
        """The outcome of each point that a cluster stands for; why it goes alone, of those that had better.

        Args:
            cluster: The hardware of some points.
            places: Which these are.
        """
        if len(places) < FEWEST:
            return dict.fromkeys(places.tolist(), FEW_ALIKE)
        try:
            row = outcome_of(answered(self._job.on(cluster)).prediction)
        except PartedError as parted:
            found: dict[int, Outcome | str] = {}
            for side in parted.sides():
                found |= self.outcomes(hardware_at(cluster, side), places[side])
            return found
        except OneByOneError as error:
            if len(places) == len(self._clusters):
                raise
            return dict.fromkeys(
                places.tolist(), str(error)
            )  # such as words for what does not fit, which others have none of
        return {place: self._of(row, number, place) for number, place in enumerate(places.tolist())}

    def _of(self, row: Outcome, number: int, place: int) -> Outcome:
        """One point's outcome."""

        def here(column: NumberColumn) -> float:
            return float(column.values[number])

        values = {each.name: mapped(getattr(row, each.name), here) for each in fields(row)}
        if values["capacity_bytes"] is not None:
            values["capacity_bytes"] = int(values["capacity_bytes"])  # bytes are whole ones
        return Outcome(**{**values, "device": self._clusters[place].device.name})
