"""From event to event at many points of a sweep at once: points whose events come in one order go on together.

What `alone.events_alone` does for one point is done here for arrays with a place for each point, by the same operations in the
same order, so that each point's times are its own to the last bit (`tests/simulate/retiming/test_points_run.py`). What has been
started and what is under way is the *state* of a point. While all points are in one state they share every step of the way; where
one ends a kernel before a collective and another behind it, they part, and come together again in the state in which both have
ended: nobody goes alone for longer than the orders differ. A state is looked at once, when all points that come through it
have come: every event ends a step, so that states with fewer ended steps come first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.one_class import TOGETHER, BlocksAlone, parts_of

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
# The speeds of a compute step (None: none is under way) and of collectives beside it, by step: an array or a number of each.
Speeds = Callable[[int | None, tuple[int, ...]], tuple[Any, list[Any]]]

Under = tuple[
    tuple[int, int], ...
]  # what is under way, in the order in which it was started: the stream's number, and the step


class _StateKey(NamedTuple):
    """How far each stream's queue has been started, and what is under way."""

    started: tuple[int, ...]
    under: Under


@dataclass(frozen=True, slots=True)
class _Opening:
    """What happens in a state before time passes.

    Attributes:
        alone: Steps that follow each other on the compute stream, while nothing else can start.
        begun: Steps that are started then.
        started: How far each queue has been started by then.
        under: What is under way then.
        computing: The place in that of the step on the compute stream; None where there is none.
        sending: The places of the collectives.
    """

    alone: tuple[int, ...]
    begun: list[int]
    started: tuple[int, ...]
    under: Under
    computing: int | None
    sending: list[int]


class _Stretch:
    """Kernels between two steps that take all streams: queues of streams, and who waits for whom. No time is in it."""

    def __init__(self, queues: BlocksAlone) -> None:
        self.lanes = tuple(queues)
        self.steps = [tuple(index for index, _ in queue) for queue in queues.values()]
        self.count = sum(map(len, self.steps))
        where = {index: (number, place) for number, steps in enumerate(self.steps) for place, index in enumerate(steps)}
        # Of each step of each queue, those of this part that it waits for; all parts before have ended.
        self._waits = [
            [[where[each] for each in waits if each in where] for _, waits in queue] for queue in queues.values()
        ]
        self._compute = self.lanes.index(0) if 0 in self.lanes else None
        self._openings: dict[_StateKey, _Opening] = {}

    def opening(self, state: _StateKey) -> _Opening:
        """What happens in a state before time passes, worked out once."""
        found = self._openings.get(state)
        if found is None:
            found = self._openings[state] = self._opened(state)
        return found

    def _opened(self, state: _StateKey) -> _Opening:
        started, under = list(state.started), list(state.under)
        running = {number for number, _ in under}
        alone: list[int] = []
        compute = self._compute
        if not under and compute is not None and started[compute] < len(self.steps[compute]):
            others = [
                number for number in range(len(self.lanes)) if number != compute and self._waiting(number, started)
            ]
            while (
                self._waiting(compute, started)
                and self._ready(compute, started, running)
                and not any(self._ready(number, started, running) for number in others)
            ):
                alone.append(self.steps[compute][started[compute]])
                started[compute] += 1
        begun: list[tuple[int, int]] = []
        for number in range(len(self.lanes)):
            if (
                number not in running
                and self._waiting(number, started)
                and self._ready(number, started, running, frozenset(begun_number for begun_number, _ in begun))
            ):
                begun.append((number, self.steps[number][started[number]]))
                started[number] += 1
        whole = (*under, *begun)
        rows = [row for row, (number, _) in enumerate(whole) if number == compute]
        return _Opening(
            tuple(alone),
            [index for _, index in begun],
            tuple(started),
            whole,
            rows[0] if rows else None,
            [row for row, (number, _) in enumerate(whole) if number != compute],
        )

    def _waiting(self, number: int, started: Sequence[int]) -> bool:
        return started[number] < len(self.steps[number])

    def _ready(
        self, number: int, started: Sequence[int], running: set[int], begun: frozenset[int] = frozenset()
    ) -> bool:
        """Whether all that a queue's next step waits for has ended."""
        return all(
            place < started[other] - (other in running or other in begun)
            for other, place in self._waits[number][started[number]]
        )


_PARTS: KeptBeside[tuple[tuple[_Stretch | None, int | None], ...]] = KeptBeside(of_program=16)


def _parts(block: BlockPlan, order: tuple[int, ...]) -> tuple[tuple[_Stretch | None, int | None], ...]:
    """Kernels up to each step that takes all streams, with that step."""
    return _PARTS.of(
        block,
        order,
        lambda: tuple((_Stretch(queues) if queues else None, index) for queues, index in parts_of(block, order)),
    )


class _Bunch(NamedTuple):
    """Points in one state: which (None: all), when, and of what is under way what is left, since when, its speed, its end."""

    places: Places | None
    now: Floats
    left: Floats
    since: Floats
    speed: Floats
    end: Floats

    def at(self, chosen: Any, rows: Any) -> _Bunch:
        """Some of the points, with some of what is under way."""
        places = np.flatnonzero(chosen) if self.places is None else self.places[chosen]
        return _Bunch(places, self.now[chosen], *(each[rows][:, chosen] for each in self[2:]))


class EventsAtPoints:
    """A block's steps at many points.

    Attributes:
        starts: When each begins, by step and point.
        ends: When each ends, with the gap behind it.
        now: When all have ended.
    """

    def __init__(self, block: BlockPlan, seconds: Floats, speeds: Speeds) -> None:
        """Steps that take so long alone.

        Args:
            block: The block.
            seconds: By step and point, with the gap behind a kernel.
            speeds: How fast a compute step and collectives are beside each other.
        """
        self._block, self._seconds, self._speeds = block, seconds, speeds
        self._known: dict[tuple[int | None, tuple[int, ...]], tuple[Any, list[Any]]] = {}
        self.starts, self.ends = np.zeros_like(seconds), np.zeros_like(seconds)
        self.now = np.zeros(seconds.shape[1])

    def run(self, order: tuple[int, ...], places: Places | None = None) -> None:
        """Runs all steps in an order, at some points; then it is the block's end there."""
        here = _or_all(places)
        for part, index in _parts(self._block, order):
            if part is not None:
                self._run_part(part, places)
            if index is not None:
                self.starts[index, here] = now = self.now[here]
                self.ends[index, here] = self.now[here] = now + self._seconds[index, here]

    def _run_part(self, part: _Stretch, places: Places | None) -> None:
        points = len(self.now) if places is None else len(places)
        nothing = np.empty((0, points))
        first = _StateKey((0,) * len(part.lanes), ())
        waiting = {first: [_Bunch(places, self.now[_or_all(places)], nothing, nothing, nothing, nothing)]}
        numbers = itertools.count()
        queue = [(0, next(numbers), first)]
        ended = np.empty(len(self.now))

        def come(state: _StateKey, bunch: _Bunch) -> None:
            if state in waiting:
                waiting[state].append(bunch)
                return
            waiting[state] = [bunch]
            heapq.heappush(queue, (sum(state.started) - len(state.under), next(numbers), state))

        while queue:
            state = heapq.heappop(queue)[2]
            bunch = _together(waiting.pop(state), len(self.now))
            opening = part.opening(state)
            bunch = self._opened(opening, bunch)
            if not opening.under:
                assert sum(opening.started) == part.count, "a schedule's dependencies form a cycle"
                ended[_or_all(bunch.places)] = bunch.now
                continue
            for sending, some in self._by_left(opening, bunch):
                self._on(opening, self._at_speeds(opening, sending, some), come)
        self.now[_or_all(places)] = ended[_or_all(places)]

    def _opened(self, opening: _Opening, bunch: _Bunch) -> _Bunch:
        """What happens before time passes."""
        places, now = bunch.places, bunch.now
        for index in opening.alone:
            if places is None:
                self.starts[index] = now
                now = self.ends[index] = now + self._seconds[index]
            else:
                self.starts[index, places] = now
                now = now + self._seconds[index, places]
                self.ends[index, places] = now
        begun = opening.begun
        if not begun:
            return bunch._replace(now=now)
        if places is None:
            lasting = self._seconds[begun]
            self.starts[begun] = now
        else:
            here = np.ix_(np.array(begun), places)
            lasting = self._seconds[here]
            self.starts[here] = now
        since = np.empty_like(lasting)
        since[:] = now
        new = lasting, since, np.ones_like(lasting), since + lasting
        if len(bunch.left):
            new = tuple(np.concatenate(both) for both in zip(bunch[2:], new, strict=True))  # type: ignore[assignment]
        return _Bunch(places, now, *new)

    def _by_left(self, opening: _Opening, bunch: _Bunch) -> list[tuple[list[int], _Bunch]]:
        """Points apart by which of their collectives have something left: the others are waited for, and share nothing."""
        sending = opening.sending
        left = bunch.left[sending] > 0
        if left.all():
            return [(sending, bunch)]
        masks = _alike(left)
        parts = [bunch] if len(masks) == 1 else [bunch.at(mask, slice(None)) for mask in masks]
        return [([row for row in sending if some.left[row, 0] > 0], some) for some in parts]

    def _at_speeds(self, opening: _Opening, sending: list[int], bunch: _Bunch) -> _Bunch:
        """What is under way, at the speeds that it has beside each other."""
        under, computing = opening.under, opening.computing
        places, speeds = bunch.places, bunch.speed.copy()
        if computing is not None and len(under) == 1:
            speeds[0] = 1.0
        else:
            key = under[computing][1] if computing is not None else None, tuple([under[row][1] for row in sending])
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._speeds(*key)
            speed, shares = found
            for row, share in zip(sending, shares, strict=True):
                speeds[row] = share[places] if places is not None and isinstance(share, np.ndarray) else share
            if computing is not None:
                speeds[computing] = speed[places] if places is not None and isinstance(speed, np.ndarray) else speed
        changed = speeds != bunch.speed
        if not changed.any():
            return bunch
        # A step goes on with another speed; while it keeps its speed, its end stays what it is to the last bit.
        left = np.maximum(0.0, bunch.left - (bunch.now - bunch.since) * bunch.speed)
        end = bunch.now + left / speeds
        if changed.all():
            since = np.empty_like(left)
            since[:] = bunch.now
            return _Bunch(places, bunch.now, left, since, speeds, end)
        return _Bunch(
            places,
            bunch.now,
            np.where(changed, left, bunch.left),
            np.where(changed, bunch.now, bunch.since),
            speeds,
            np.where(changed, end, bunch.end),
        )

    def _on(self, opening: _Opening, bunch: _Bunch, come: Callable[[_StateKey, _Bunch], None]) -> None:
        """On to the next event, which some points have with other steps than others."""
        under = opening.under
        if len(under) == 1:
            now = bunch.end[0]
            self.ends[under[0][1], _or_all(bunch.places)] = now
            come(_StateKey(opening.started, ()), _Bunch(bunch.places, now, *(each[:0] for each in bunch[2:])))
            return
        now = bunch.end.min(axis=0)
        ending = bunch.end <= now * (1 + TOGETHER)
        bunch = bunch._replace(now=now)
        masks = _alike(ending)
        for mask in masks:
            row = ending[:, 0] if len(masks) == 1 else ending[:, int(np.argmax(mask))]
            staying = np.flatnonzero(~row)
            if len(masks) == 1:
                some = _Bunch(bunch.places, now, *(each[staying] for each in bunch[2:]))
            else:
                some = bunch.at(mask, staying)
            for (_, index), ends in zip(under, row.tolist(), strict=True):
                if ends:
                    self.ends[index, _or_all(some.places)] = some.now
            come(_StateKey(opening.started, tuple([under[each] for each in staying.tolist()])), some)


def _or_all(places: Places | None) -> Any:
    return slice(None) if places is None else places


def _alike(rows: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.bool_]]:
    """Masks of the points whose columns are the same."""
    if (rows == rows[:, :1]).all():
        return [np.ones(rows.shape[1], dtype=bool)]
    if len(rows) < 63:
        numbers = (1 << np.arange(len(rows))) @ rows
        return [numbers == number for number in dict.fromkeys(numbers.tolist())]
    codes = np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)
    return [codes == code for code in range(codes.max() + 1)]


def _together(bunches: Sequence[_Bunch], points: int) -> _Bunch:
    """Points that have come to one state, as one."""
    if len(bunches) == 1:
        return bunches[0]
    places = np.concatenate([each.places for each in bunches if each.places is not None])
    rest = [np.concatenate([each[number] for each in bunches], axis=-1) for number in range(1, 6)]
    if len(places) < points:
        return _Bunch(places, *rest)
    order = np.argsort(places)
    return _Bunch(None, *(each[..., order] for each in rest))
