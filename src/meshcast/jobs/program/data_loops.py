"""What loops that end on data make of a step: the time of a turn of each, and the ends of ranges of turns.

The time of a turn is what `MORE` turns more add to the step, over their number; the fixed part is the step less all turns. So
the step is exactly `fixed + sum of turns x time of a turn` at the turns that are predicted, and nearly so at any other: what is
not linear is a host that is slower than the device at few turns and faster at many, and the clock that the power cap leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshcast.jobs.program.timed import energy_of, interval_of
from meshcast.lower import loop_entries, loops_around, with_more_turns
from meshcast.options import TurnRange
from meshcast.results import DataLoops, LoopShare, Prediction

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

MORE = 1000  # turns: enough for what happens once not to matter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """What a step takes."""

    seconds: float
    joules: float
    sent: float

    @classmethod
    def of(cls, run: Run) -> _Spent:
        sent = sum(n * k.collective.sent_bytes for k, n in run.executed if k.collective is not None)
        return cls(seconds=run.timeline.duration, joules=energy_of(run), sent=sent)

    def more(self, other: _Spent, turns: int) -> _Spent:
        """What one of some turns adds."""
        return _Spent(
            seconds=(other.seconds - self.seconds) / turns,
            joules=(other.joules - self.joules) / turns,
            sent=(other.sent - self.sent) / turns,
        )

    def less(self, other: _Spent, times: float) -> _Spent:
        return _Spent(
            seconds=self.seconds - times * other.seconds,
            joules=self.joules - times * other.joules,
            sent=self.sent - times * other.sent,
        )


def with_data_loops(prediction: Prediction, run: Run) -> Prediction:
    """A prediction that says what its loops that end on data do, with its interval over the ranges that are asked for."""
    shares = untimed_loops(run)
    if prediction.timed is None:
        return replace(prediction, loops=DataLoops(loops=shares))
    whole = _Spent.of(run)
    turns: dict[str, _Spent] = {}
    timed: list[LoopShare] = []
    for share in reversed(shares):  # what is inside comes later in the program, and is known first
        turn = _turn(run, share, whole) if share.entered else _Spent(seconds=0.0, joules=0.0, sent=0.0)
        for inner in timed:
            if share.name in inner.inside and share.all_turns:
                turn = turn.less(turns[inner.name], inner.all_turns / share.all_turns)
        turns[share.name] = turn
        timed.append(
            replace(
                share, per_turn_s=turn.seconds, per_turn_energy_j=turn.joules, per_turn_communication_bytes=turn.sent
            )
        )
    fixed = whole.seconds - sum(each.all_turns * turns[each.name].seconds for each in timed)
    found = DataLoops(loops=tuple(reversed(timed)), fixed_s=fixed)
    if not any(share.turns_range for share in shares):
        return replace(prediction, loops=found)
    low, high = (
        _with_turns(run, {share.name: share.turns_range[end] - share.turns for share in shares if share.turns_range})
        for end in (0, 1)
    )
    ends = _Spent.of(low), _Spent.of(high)
    found = replace(
        found,
        step_range_s=(ends[0].seconds, ends[1].seconds),
        energy_range_j=(ends[0].joules, ends[1].joules),
        communication_range_bytes=(ends[0].sent, ends[1].sent),
    )
    interval = (
        min(prediction.timed.interval_s[0], interval_of(low)[0]),
        max(prediction.timed.interval_s[1], interval_of(high)[1]),
    )
    return replace(prediction, loops=found, timed=replace(prediction.timed, interval_s=interval))


def untimed_loops(run: Run) -> tuple[LoopShare, ...]:
    """The loops of a run that end on data, without times."""
    entries, around = loop_entries(run.lowered.schedule), loops_around(run.lowered.schedule)
    asked = run.options.program.trip_counts
    known = {loop.label for loop in run.workload.data_loops}
    shares = []
    for loop in run.workload.data_loops:
        given = asked.get(loop.given)
        shares.append(
            LoopShare(
                name=loop.label,
                source=loop.source,
                turns=loop.turns,
                turns_assumed=loop.assumed,
                turns_at_most=loop.at_most,
                turns_range=(given.low, given.high) if isinstance(given, TurnRange) else None,
                inside=tuple(name for name in around.get(loop.label, ()) if name in known),
                entered=entries.get(loop.label, 0),  # a loop whose results nobody needs is not there
            )
        )
    return tuple(shares)


def _turn(run: Run, share: LoopShare, whole: _Spent) -> _Spent:
    return whole.more(_Spent.of(_with_turns(run, {share.name: MORE})), MORE * share.entered)


def _with_turns(run: Run, more: Mapping[str, int]) -> Run:
    """The same run with more turns of some loops: its kernels are estimated already."""
    return replace(run, lowered=with_more_turns(run.lowered, more), estimated=run.full_clock)
