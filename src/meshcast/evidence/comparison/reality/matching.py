"""Which measured kernels are which predicted ones.

1. By name: XLA's instructions, where the prediction has them (a compiled program) and the trace does. All launches of an
   instruction are one pair: a library call may take several kernels. Inside CUDA graphs only the kernels' own names are known,
   and equal fusions share one: then launches are paired in order, as far as both sides go. Names of another compilation
   (`Matching.one_compilation`) count only where durations agree.
2. By order inside a class: what is left of each class, aligned (`alignment.py`).
3. By duration inside a class: compilers launch in other orders than the program has. What is left, sorted and aligned again.
4. By order across products and convolutions, and across the classes that memory limits: a fusion may be called a reduction by one
   side and a copy by the other.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.evidence.comparison.reality.alignment import Agreement, aligned
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch
from meshcast.evidence.profiler.classes import (
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    INDEXED,
    MATMUL,
    OTHER,
    REDUCTION,
    SORT,
    class_of,
)
from meshcast.evidence.profiler.trace import MeasuredKernel

How = Literal["name", "order", "duration", "missing", "extra"]
# Limited by memory, and told apart by names that both sides choose freely.
LOOSE_CLASSES = (ELEMENTWISE, REDUCTION, COPY, INDEXED, SORT, OTHER)
INTERCHANGEABLE = (
    MATMUL,
    CONVOLUTION,
)  # a convolution of single pixels may run as a product, by whose name nobody can tell
STRANGERS = 9.0  # a factor between the durations of one fusion
STRANGE_SHARE = 0.01  # of fusions that may exceed it in one compilation; one of them always may
DOUBTFUL = 3.0  # what is believed of names from another compilation
MOST_CELLS = 10**9  # of the table that aligns them: a minute
_MARKS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Predicted launches and the measured ones that they are, by their places; one side is empty where it has no partner."""

    how: How
    predicted: tuple[int, ...] = ()
    measured: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The pairs of predicted and measured kernels, and those without a partner.

    Attributes:
        matches: Every launch of both sides in exactly one of them.
        one_compilation: Whether instructions of one name are one instruction on both sides.
    """

    matches: tuple[Match, ...] = field(repr=False)
    one_compilation: bool


def matched(
    predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], *, ordered: bool = True
) -> Matching:
    """The matching of predicted and measured launches; by duration alone where the measured order is not known."""
    named = _by_instruction(predicted, measured)
    one_compilation = _one_compilation(predicted, measured, named)
    if not one_compilation:
        named = [match for match in named if _misfit(match, predicted, measured) < DOUBTFUL]
    found = [*named, *_by_kernel(predicted, measured)]
    left_p = set(range(len(predicted))) - {i for match in found for i in match.predicted}
    left_m = set(range(len(measured))) - {j for match in found for j in match.measured}
    kinds = [class_of(kernel) for kernel in measured]
    rounds: list[tuple[How, tuple[str, ...]]] = []
    for kind in sorted({predicted[i].kind for i in left_p}):
        rounds += [("order", (kind,)), ("duration", (kind,))]
    rounds += [("order", INTERCHANGEABLE), ("order", LOOSE_CLASSES)]
    if not ordered:
        rounds = [("duration", classes) for how, classes in rounds if how == "order"]
    for how, classes in rounds:
        own = [i for i in sorted(left_p) if predicted[i].kind in classes]
        others = [j for j in sorted(left_m) if kinds[j] in classes]
        if how == "duration":
            own.sort(key=lambda i: predicted[i].seconds)
            others.sort(key=lambda j: measured[j].duration)
        for i, j in _in_order(predicted, measured, own, others):
            found.append(Match(how=how, predicted=(i,), measured=(j,)))
            left_p.discard(i)
            left_m.discard(j)
    found += [Match(how="missing", predicted=(i,)) for i in sorted(left_p)]
    found += [Match(how="extra", measured=(j,)) for j in sorted(left_m)]
    return Matching(matches=tuple(found), one_compilation=one_compilation)


def plain_name(name: str) -> str:
    """A name as a kernel's may be written: `loop_add_fusion.3` is `loop_add_fusion_3` there."""
    return _MARKS.sub("_", name)


def _by_kernel(predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel]) -> list[Match]:
    """Launches in order, where a trace has kernels' names alone: inside CUDA graphs."""
    expected = _places((plain_name(launch.kernel.name), i) for i, launch in enumerate(predicted))
    by_kernel = _places((plain_name(kernel.name), j) for j, kernel in enumerate(measured) if not kernel.op)
    return [
        Match(how="name", predicted=(i,), measured=(j,))
        for name, own in expected.items()
        for i, j in zip(own, by_kernel.get(name, ()), strict=False)
    ]


def _by_instruction(predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel]) -> list[Match]:
    expected = _places((plain_name(launch.kernel.name), i) for i, launch in enumerate(predicted))
    by_op = _places((plain_name(kernel.op), j) for j, kernel in enumerate(measured) if kernel.op)
    return [
        Match(how="name", predicted=tuple(own), measured=tuple(by_op[name]))
        for name, own in expected.items()
        if name in by_op
    ]


def _one_compilation(
    predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], found: Sequence[Match]
) -> bool:
    """Whether instructions of one name are one instruction on both sides.

    XLA numbers its fusions, and another release or setting numbers them otherwise: then some of one name run differently often
    or have nothing to do with each other's durations. Library calls are not asked: a prediction may be that wrong about them.
    """
    fusions = [match for match in found if _is_fusion(match, predicted)]
    strange = sum(_misfit(match, predicted, measured) > STRANGERS for match in fusions)
    return strange <= max(1.0, STRANGE_SHARE * len(fusions))


def _is_fusion(match: Match, predicted: Sequence[PredictedLaunch]) -> bool:
    return "fusion" in predicted[match.predicted[0]].kernel.name


def _misfit(match: Match, predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel]) -> float:
    """By which factor durations differ; infinite where a fusion, which is one kernel, runs more or less often."""
    own, others = sum(predicted[i].seconds for i in match.predicted), sum(measured[j].duration for j in match.measured)
    if (_is_fusion(match, predicted) and len(match.predicted) != len(match.measured)) or not own or not others:
        return math.inf
    return max(own / others, others / own)


def _places(named: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for name, place in named:
        found[name].append(place)
    return found


def _in_order(
    predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], own: Sequence[int], others: Sequence[int]
) -> list[tuple[int, int]]:
    if not own or not others:
        return []
    if len(own) * len(others) > MOST_CELLS:
        raise UnsupportedError(
            f"{len(own):,} predicted and {len(others):,} measured kernels of one class have no names in common: too many "
            "to be aligned by order",
            where=measured[others[0]].name,
            fix="compare with the compiled program (--fidelity compiled, or its .hlo as target), or with fewer layers",
        )
    scopes = [_last_part(measured[j].scope) for j in others]
    known: dict[str, Agreement] = {}

    def agrees(place: int) -> Agreement:
        location = predicted[own[place]].kernel.location
        if location not in known:
            known[location] = np.array([not scope or scope in location for scope in scopes])
        return known[location]

    pairs = aligned(
        np.array([predicted[i].seconds for i in own]), np.array([measured[j].duration for j in others]), agrees
    )
    return [(own[i], others[j]) for i, j in pairs]


def _last_part(scope: str) -> str:
    """The last part of JAX's name scope, which the profiler may cut at a comma; PyTorch's operators say nothing to XLA."""
    return "" if scope.startswith(("aten::", "nccl:")) else scope.rpartition("/")[2]
