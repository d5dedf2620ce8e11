"""Whether a trace is one of the predicted program at all.

Order and durations alone find partners between any two programs: transformers are much alike, and small kernels all take
microseconds. Three things tell them apart (`benchmarks/reality.py` tries them on every program against every other's trace):

- Products, convolutions and fused attention are the same launches in a prediction and a run, whoever fuses what around them. Of
  their time, the share whose pairs agree within a factor of `TIGHT`, on both sides, times the ratio of their numbers. Pairs agree
  beside the ratio that most of them have: a device that is slower throughout runs the same program.
- Names: of all fusions on both sides, those that are on both, equally often. XLA numbers what it fuses, and two programs
  share few numbers.
- Coverage (`reality.py`): how much of both sides has a partner at all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from meshcast.evidence.comparison.reality.matching import Match, plain_name
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch
from meshcast.evidence.profiler.classes import ATTENTION, CONVOLUTION, MATMUL, class_of
from meshcast.evidence.profiler.trace import MeasuredKernel

Verdict = Literal["same", "doubtful", "other"]
PRODUCTS = (MATMUL, CONVOLUTION, ATTENTION)
# The thresholds were chosen on the pairs of `benchmarks/reality.py` (docs/measured.md has them), apart from ENOUGH and FARTHEST.
TIGHT = 1.5  # a factor within which the durations of one product agree, beside the common ratio
COVERED = 0.4  # of kernel time with a partner, on both sides: less is another program's trace
OTHER_BELOW, SAME_FROM = 0.2, 0.5  # products that agree: fewer is another program's trace, more is this one's
SAME_FROM_BESIDE_NAMES = 0.75  # likewise, where there are names, and they differ
NAMED = 1 / 3  # of names that are on both sides: one compilation
# Of kernel time on either side that products must take to be asked alone; else all kernels are. A few products in a step of
# element-wise work say little: of a tenth of the time, an agreement of SAME_FROM is a twentieth of the step.
ENOUGH = 0.1
# Of the common ratio from one, either way, in a trace that is surely this program's: a device or a clock may be that much slower,
# a program with twice the batch or the layers is so everywhere, and is another one.
FARTHEST = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The measures by which a trace is judged to be of the predicted program, or of another.

    Attributes:
        covered: The share of kernel time with a partner, on the side where it is less.
        products: The share of the time of products that agrees, on the side where it is less.
        launches: The number of products on the side with fewer over that with more; 1 where all kernels are asked.
        ratio: Predicted over measured, of most of their time.
        names: The share of fusions' names that both sides have; None where one side has none.
    """

    covered: float
    products: float
    launches: float
    ratio: float
    names: float | None

    @property
    def agreement(self) -> float:
        """How much of the products agrees, in time and number."""
        return self.products * self.launches

    @property
    def verdict(self) -> Verdict:
        """The verdict on the evidence: `same`, `doubtful` or `other`."""
        if self.names is not None and self.names >= NAMED:
            return "same"
        if self.covered < COVERED or self.agreement < OTHER_BELOW:
            return "other"
        needed = SAME_FROM if self.names is None else SAME_FROM_BESIDE_NAMES
        near = 1 / FARTHEST <= self.ratio <= FARTHEST
        return "same" if self.agreement >= needed and near else "doubtful"

    @property
    def why(self) -> str:
        """The numbers, in words."""
        named = f", {self.names:.0%} of the fusions' names are on both sides" if self.names is not None else ""
        return (
            f"{self.covered:.0%} of kernel time has a partner, {self.products:.0%} of that of products agrees within a factor of "
            f"{TIGHT:g} beside a common ratio of {self.ratio:.2f}, their numbers are as {self.launches:.2f} to 1{named}"
        )

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "verdict": self.verdict,
            "covered": self.covered,
            "products": self.products,
            "launches": self.launches,
            "ratio": self.ratio,
            "names": self.names,
        }


def evidence_of(
    matches: Sequence[Match], predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], covered: float
) -> Evidence:
    """The evidence that two steps are of one program, from how their kernels were matched."""
    kinds = [class_of(kernel) for kernel in measured]
    own = [launch.seconds for launch in predicted if launch.kind in PRODUCTS]
    others = [kernel.duration for kernel, kind in zip(measured, kinds, strict=True) if kind in PRODUCTS]
    all_own, all_others = sum(x.seconds for x in predicted), sum(x.duration for x in measured)
    alone = sum(own) > ENOUGH * all_own or sum(others) > ENOUGH * all_others
    pairs = []
    for match in matches:
        if match.predicted and match.measured and (not alone or predicted[match.predicted[0]].kind in PRODUCTS):
            # Of an instruction's launches, what belongs to its class: rearrangements beside a convolution do not.
            mine = sum(predicted[i].seconds for i in match.predicted)
            theirs = sum(measured[j].duration for j in match.measured if not alone or kinds[j] in PRODUCTS)
            if mine and theirs:
                pairs.append((mine, theirs))
    ratio, mine, theirs = _agreeing(pairs)
    total_own, total_others = (sum(own), sum(others)) if alone else (all_own, all_others)
    return Evidence(
        covered=covered,
        products=min(mine / total_own, theirs / total_others) if pairs else 0.0,
        launches=min(len(own), len(others)) / max(len(own), len(others)) if alone else 1.0,
        ratio=ratio,
        names=_shared_names(predicted, measured),
    )


def _agreeing(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The ratio of most pairs (their weighted median), and the seconds of both sides in those near it."""
    if not pairs:
        return 1.0, 0.0, 0.0
    ordered = sorted((math.log(p / m), math.sqrt(p * m)) for p, m in pairs)
    weights = list(accumulate(weight for _, weight in ordered))
    ratio = ordered[bisect_left(weights, weights[-1] / 2)][0]
    near = [(p, m) for p, m in pairs if abs(math.log(p / m) - ratio) <= math.log(TIGHT)]
    return math.exp(ratio), sum(p for p, _ in near), sum(m for _, m in near)


def _shared_names(predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel]) -> float | None:
    """The share of fusions' names that both sides launch equally often; None unless both sides name instructions.

    A trace with CUDA graphs names only what runs outside of them: it says nothing.
    """
    own = _fusions(launch.kernel.name for launch in predicted)
    others = _fusions(kernel.op for kernel in measured)
    if not own or not others or 2 * sum(bool(kernel.op) for kernel in measured) < len(measured):
        return None
    return sum(others.get(name) == times for name, times in own.items()) / len({*own, *others})


def _fusions(names: Iterable[str]) -> Counter[str]:
    return Counter(plain_name(name) for name in names if "fusion" in name and ":" not in name)
