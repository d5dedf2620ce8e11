"""Loops that end on data, which host and device take turns with: neither runs ahead of the other inside of them.

Before every turn, and behind the last one, the host waits for the answer of the loop's condition. So a turn takes the longer of
what the device computes and what the host issues, and the waiting besides:

    turn = max(device + pauses, host) + predicate + loops of the same kind inside it

and a step is `max(device, host)` of everything else (`simulate.host`), with the turns of all such loops added to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from meshcast.lower import BranchStep, LoopStep, Schedule
from meshcast.simulate.host import HostCosts, issued_seconds, loose_launches
from meshcast.simulate.timeline import Repeat, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingLoops:
    """Loops that the host asks whether they go on.

    Attributes:
        labels: Their labels.
        costs: The host's.
        pause: Seconds that the device pauses before a launch on its own.
    """

    labels: Collection[str]
    costs: HostCosts
    pause: float

    def seconds(self, schedule: Schedule, timeline: Timeline) -> tuple[float, float]:
        """What all of these loops take, and what the device alone takes in them.

        Args:
            schedule: What runs.
            timeline: When, as the device alone has it.
        """
        whole = device = 0.0
        durations = dict(_durations(timeline))
        for step, count in self._outermost(schedule, 1):
            entry, computing = self._loop(step, durations)
            whole += count * entry
            device += count * computing
        return whole, device

    def _loop(self, loop: LoopStep, durations: dict[str, float]) -> tuple[float, float]:
        """The same of one entry of a loop."""
        inner_whole = inner_device = 0.0
        for step, count in self._outermost(loop.body, 1):
            entry, computing = self._loop(step, durations)
            inner_whole += count * entry
            inner_device += count * computing
        device = durations.get(loop.label, 0.0)
        loose = loose_launches(loop.body, graphs=self.costs.graphs, without=self.labels, looped=True)
        issuing = self.costs.iteration + issued_seconds(loop.body, self.costs, without=self.labels, again=True)
        turn = max(device - inner_device + loose * self.pause, issuing) + self.costs.predicate + inner_whole
        return loop.trips * turn + self.costs.predicate, loop.trips * device

    def _outermost(self, schedule: Schedule, count: int) -> Iterator[tuple[LoopStep, int]]:
        """These loops of a schedule that are in no other of them, each with how often it is entered."""
        for step in schedule.steps:
            if isinstance(step, LoopStep):
                if step.label in self.labels:
                    yield step, count
                else:
                    yield from self._outermost(step.body, count * step.trips)
            elif isinstance(step, BranchStep):
                # Which branch runs is decided by its time, and few have loops: the one with more of them counts.
                yield from max((list(self._outermost(body, count)) for body in step.bodies), key=len, default=[])


def _durations(timeline: Timeline) -> Iterator[tuple[str, float]]:
    """How long a turn of every loop takes, by label."""
    for span in timeline.spans:
        if isinstance(span, Repeat):
            yield span.label, span.body.duration
            yield from _durations(span.body)
