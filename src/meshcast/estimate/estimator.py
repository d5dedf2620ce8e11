"""The estimator seam: kernels and a device in, seconds with their origin out, a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from meshcast.base import UsageError
from meshcast.hardware import Device
from meshcast.lower import Kernel

if TYPE_CHECKING:
    from meshcast.estimate.power import PowerDraw

Array = npt.NDArray[np.float64]


class Origin(StrEnum):
    """Where a time comes from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    ANALYTICAL = "analytical"
    SIMULATED = "simulated"
    GUESSED = "guessed"


SupportLevel = Literal["yes", "approximate", "no"]
_LEVELS: tuple[str, ...] = get_args(SupportLevel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Whether an estimator answers for a kernel on a device, and why not; beside a yes, what users should be warned of."""

    level: SupportLevel
    reason: str = ""

    def __post_init__(self) -> None:
        if self.level not in _LEVELS:
            raise UsageError(
                f"no level of support {self.level!r}", where="Support.level", fix="one of " + ", ".join(_LEVELS)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Times of a batch of kernels, in seconds, one entry each.

    `time` is the prediction, `[low, high]` its interval. `compute_time` and `memory_time` are what arithmetic and the
    memory alone would need. `core_time` is what the cores alone would need: arithmetic, or whatever carries data through
    them where that takes longer (starting the threads that load and store, updates that take turns, slices that are
    addressed one by one); by default it is `compute_time`. `overhead` is what of `time` does not grow with the kernel:
    launches and latencies. The rest of `time` goes to what limits the kernel. `energy` is joules above idle. `origin` may be
    given by the texts of `Origin`.
    """

    time: Array
    low: Array
    high: Array
    compute_time: Array
    memory_time: Array
    overhead: Array
    energy: Array
    origin: tuple[Origin, ...]
    gap: float = 0.0  # seconds between the end of one kernel and the start of the next on the same stream
    draw: PowerDraw | None = None  # what the power cap makes of them, for models that know it
    core_time: Array | None = None

    def __post_init__(self) -> None:
        if isinstance(self.origin, tuple) and all(type(each) is Origin for each in self.origin):
            return  # as the models here give them
        object.__setattr__(self, "origin", _origins(self.origin))

    @property
    def cores(self) -> Array:
        """`core_time`, or what stands for it."""
        return self.compute_time if self.core_time is None else self.core_time


def _origins(given: object) -> tuple[Origin, ...]:
    """Origins by their texts.

    Raises:
        UsageError: It is no sequence of them.
    """
    fix = "one for each kernel, of " + ", ".join(Origin)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"origins are a tuple, not {given!r}", where="Estimates.origin", fix=fix)
    for each in given:
        if each not in tuple(Origin):
            raise UsageError(f"no origin of a time {each!r}", where="Estimates.origin", fix=fix)
    return tuple(Origin(each) for each in given)


def limiting(compute: float, memory: float, overhead: float, cores: float = 0.0) -> str:
    """What bounds a kernel: compute, memory or latency.

    Compute is what limits where arithmetic alone would take longest. Cores that are busy longer than their arithmetic
    carry data: then memory is what limits, as it is where the bytes take longest.
    """
    moving = max(memory, cores if cores > compute else 0.0)
    if overhead > max(compute, moving):
        return "latency"
    return "compute" if compute >= moving else "memory"


Clocks = Literal["sustained", "burst"]
# What of an answer for a product alone, without a byte to move, no kernel with that product falls below (`estimate.least`).
ProductFloor = Literal["time", "core_time"]


class Estimator(Protocol):
    """A performance model of single kernels. Built-ins and outsiders register under `meshcast.estimators`.

    Times hold at the full clock; a model that knows how power follows the clock says so in `Estimates.draw`, and the
    cap is applied to the whole program (`estimate.power`). A model that can say why also has
    `explain(kernel, device) -> Explanation`, of the time that `estimate` gives. Answers of built-ins that have
    `by_kernel = True` do not depend on the kernels that are asked about together: they are kept for other programs
    (`estimate.known_answers`). Built-ins with `by_arithmetic = True` look at no more of a kernel than
    `estimate.support.arithmetic_of` has when they are asked whether they support it.
    """

    name: str
    fidelity: str

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Whether this model answers for a kernel; cheap."""
        ...

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times of kernels that it supports; collectives are never among them."""
        ...
