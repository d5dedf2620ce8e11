"""What chains of estimators have answered, kept for the next program: equal kernels on equal devices are asked about once.

A sweep over plans has the same kernels in many programs, one over networks has one device throughout. Answers are kept of
estimators that answer for each kernel by itself; the others (an interpolation by one matrix product, whose last bits depend
on what else it is asked) are asked for each program as a whole.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshcast.base import KeptBeside
from meshcast.estimate.estimator import Estimator
from meshcast.estimate.plug_ins import is_plug_in
from meshcast.estimate.power import PowerLaw
from meshcast.estimate.support import Arithmetic
from meshcast.hardware import Device
from meshcast.lower import CostKey

if TYPE_CHECKING:
    from meshcast.estimate.chain import EstimatedKernels, KernelEstimate

KEPT_DEVICES = 256  # a sweep over a grid comes back to each of them
KEPT_KERNELS = 50_000  # of a device
KEPT_ANSWERS = 200_000  # of all devices but the last
KEPT_PROGRAMS = 64  # of a device


@dataclass(slots=True)
class ChainAnswers:
    """What a chain has answered on a device.

    Attributes:
        places: Who answers for a kernel, as its place in the chain, and what is to be said about that.
        estimates: Answers by the estimator's place, then by kernel.
        rules: Seconds between kernels, and how power follows the clock, by the estimator's place.
        programs: Answers for all kernels of a program, by its schedule.
        by_arithmetic: Whether who answers is the same for all kernels of one kind and type.
        of_arithmetic: Then `places` by these.
    """

    places: dict[CostKey, tuple[int, str]] = field(default_factory=dict)
    estimates: dict[int, dict[CostKey, KernelEstimate]] = field(default_factory=dict)
    rules: dict[int, tuple[float, PowerLaw | None]] = field(default_factory=dict)
    by_arithmetic: bool = False
    of_arithmetic: dict[Arithmetic, tuple[int, str]] = field(default_factory=dict)
    programs: KeptBeside[EstimatedKernels] = field(default_factory=lambda: KeptBeside(KEPT_PROGRAMS))


_KNOWN: OrderedDict[tuple[tuple[Estimator, ...], Device, bool], ChainAnswers] = OrderedDict()


def is_by_kernel(estimator: Estimator) -> bool:
    """Whether an estimator's answer for a kernel does not depend, to the last bit, on the kernels that it is asked with."""
    return not is_plug_in(estimator) and getattr(estimator, "by_kernel", False)


def chain_answers(estimators: tuple[Estimator, ...], device: Device, *, first_named: bool) -> ChainAnswers:
    """What a chain has answered so far on a device; of chains with plug-ins, which may change their mind, nothing."""
    if any(map(is_plug_in, estimators)):
        return ChainAnswers()
    key = estimators, device, first_named
    found = _KNOWN.pop(key, None)
    if found is not None and len(found.places) <= KEPT_KERNELS:
        _KNOWN[key] = found
        return found
    # Answers are counted when another device comes, and not each time that one is asked: a sweep has hundreds of them.
    kept = sum([len(each.places) for each in _KNOWN.values()])
    while _KNOWN and (len(_KNOWN) >= KEPT_DEVICES or kept > KEPT_ANSWERS):
        kept -= len(_KNOWN.popitem(last=False)[1].places)
    found = _KNOWN[key] = ChainAnswers(by_arithmetic=all(getattr(each, "by_arithmetic", False) for each in estimators))
    return found


def forget_answers() -> None:
    """Leaves nothing kept, so that estimators are asked anew."""
    _KNOWN.clear()
