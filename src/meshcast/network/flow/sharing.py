"""Max-min fair shares: how fast phases progress that use the links of a fabric at the same time.

The flows of a phase progress together, at the pace of the slowest, so a phase has one pace x_j (phases per second) and
puts x_j b_jl bytes/s on link l, as n_jl flows. Progressive filling (Bertsekas and Gallager, "Data Networks", 2nd ed.,
section 6.5.2): an equal rate theta_l = (c_l - what fixed phases take) / sum of n_jl over the others is open to every
flow of a link; a phase could have

    x_j = min(1 / wire_j, min over l of theta_l n_jl / b_jl)

Phases that their own plan bounds are fixed first, then those on links that bound all phases on them. Fixing a phase
never lowers theta of any link, so every phase ends with at least its first fair share.

A phase waits L_j between its bytes, and others can have the links meanwhile. So there are two fillings: one in which every
phase sends all the time, and one in which each asks for no more than its average, 1 / (L_j + wire_j); while it sends, it
finds the links as the averages of the others leave them. The larger pace is taken, and a phase takes L_j + 1 / x_j.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.network.fabric.links import Flags, Floats, Ints
from meshcast.network.flow.phase import FlowPhase

_CLOSE = 1 + 1e-12


def shared_paces(phases: Sequence[FlowPhase], capacity: Floats) -> Floats:
    """Phases per second of each of these, when all of them are under way at once."""
    seconds = np.array([phase.seconds for phase in phases])
    wire = np.array([phase.wire_s for phase in phases])
    if len(phases) == 1:
        return 1 / seconds
    sending = [index for index, phase in enumerate(phases) if phase.wire_s > 0]
    if not sending:
        return 1 / seconds
    busy = [phases[index] for index in sending]
    number = np.repeat(np.arange(len(busy)), [len(phase.links) for phase in busy])
    used, link = np.unique(np.concatenate([phase.links for phase in busy]), return_inverse=True)
    flows = np.concatenate([phase.flows for phase in busy])
    sent = np.concatenate([phase.sent for phase in busy])
    rates = capacity[used]
    most = 1 / wire[sending]
    eager = _filled(number, link, flows, sent, rates, most)
    average = _filled(number, link, flows, sent, rates, 1 / seconds[sending])
    left = rates - np.bincount(link, weights=average[number] * sent, minlength=len(used))
    patient = average + _least(number, np.maximum(left, 0.0)[link] / sent, len(sending))
    pace = np.minimum(most, np.maximum(eager, patient))
    total = seconds.copy()
    total[sending] = np.array([phase.latency_s for phase in busy]) + 1 / pace
    return 1 / total


def _least(number: Ints, values: Floats, count: int) -> Floats:
    least = np.full(count, np.inf)
    np.minimum.at(least, number, values)
    return least


def _filled(number: Ints, link: Ints, flows: Floats, sent: Floats, rates: Floats, most: Floats) -> Floats:
    """Progressive filling; rows say that phase `number` puts `sent` bytes as `flows` flows on `link`."""
    left, pace = rates.copy(), np.zeros(len(most))
    open_ = np.ones(len(most), bool)
    while open_.any():
        rows = open_[number]
        sharing = np.bincount(link[rows], weights=flows[rows], minlength=len(left))
        fair = np.full(len(left), np.inf)
        np.divide(left, sharing, out=fair, where=sharing > 0)
        bound = np.where(rows, fair[link] * flows / sent, np.inf)
        reach = _least(number, bound, len(most))
        chosen = open_ & (most <= reach * _CLOSE)
        if not chosen.any():
            chosen = _bottlenecked(number, link, rows, bound, reach, fair, len(left))
        pace[chosen] = np.minimum(most, reach)[chosen]
        fixed = chosen[number]
        left -= np.bincount(link[fixed], weights=(pace[number] * sent)[fixed], minlength=len(left))
        np.maximum(left, 0.0, out=left)
        open_ &= ~chosen
    return pace


def _bottlenecked(
    number: Ints, link: Ints, rows: Flags, bound: Floats, reach: Floats, fair: Floats, links: int
) -> Flags:
    """Phases on links that bound everyone on them; where there is no such link, those with the least fair rate."""
    limiting = rows & (bound <= reach[number] * _CLOSE)
    everyone = np.bincount(link[rows], minlength=links) == np.bincount(link[limiting], minlength=links)
    decisive = limiting & everyone[link]
    if not decisive.any():
        # Phases whose flows differ in size from link to link can each be bound by a link that does not bind the other.
        decisive = limiting & (fair[link] <= fair[link[limiting]].min() * _CLOSE)
    chosen = np.zeros(len(reach), bool)
    chosen[number[decisive]] = True
    return chosen
