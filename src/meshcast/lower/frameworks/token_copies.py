"""Tokens that reach a host once, however many of its experts they chose.

A program that gives every expert its own rows sends a token once for each of the experts it chose. Libraries for exactly this
exchange (DeepSeek's DeepEP, NVIDIA's HybridEP) send one copy to each host that has any of them and hand it on there; on the
way back a host adds up its experts' results and sends the sum. What is computed is the same. Here such exchanges are marked
with the number of copies, which the models leave in their location; `network/algorithms/exchanges.py` has what that saves.
"""

from __future__ import annotations

import re
from dataclasses import replace

from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.zoo import COPIES_SCOPE

_NUMBER = re.compile(rf"{COPIES_SCOPE}(\d+)")


def with_single_copies(schedule: Schedule) -> Schedule:
    """The schedule with every all-to-all of copies marked as such."""
    return replace(schedule, steps=tuple(_marked(step) for step in schedule.steps))


def _marked(step: Step) -> Step:
    if not isinstance(step, Kernel):
        return with_inner_blocks(step, with_single_copies)
    found = _NUMBER.search(step.location)
    collective = step.collective
    if collective is None or collective.kind != "all_to_all" or found is None:
        return step
    return replace(step, geometry=replace(collective, copies=int(found[1])))
