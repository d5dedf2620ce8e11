"""A run that does not say what it recomputes: its interval reaches as far as that may change the step.

Recomputing everything is a forward pass more, a third of a step's products: `ln(4/3)` in quadrature with the interval's own
width, above where something less is taken for granted and below where something more is.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.jobs.stated.recomputation import MORE
from meshcast.results import Prediction

FORWARD_AGAIN = math.log(4 / 3)


def with_unsaid(prediction: Prediction, remat: str) -> Prediction:
    """The prediction of a run that does not say what is recomputed, with its interval as much wider.

    Args:
        prediction: With one choice of recomputation.
        remat: Which, as a plan has it.
    """
    timed = prediction.timed
    if timed is None or timed.step_time_s <= 0 or min(timed.interval_s) <= 0:
        return prediction
    step, (low, high) = timed.step_time_s, timed.interval_s
    if remat != MORE[0]:
        low = step * math.exp(-math.hypot(math.log(step / low), FORWARD_AGAIN))
    if remat != MORE[-1]:
        high = step * math.exp(math.hypot(math.log(high / step), FORWARD_AGAIN))
    return replace(prediction, timed=replace(timed, interval_s=(low, high)))
