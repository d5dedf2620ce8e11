"""How one kind of kernel is answered for on one kind of machine: an entry of an estimator's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from meshcast.estimate.estimator import Origin
from meshcast.estimate.work import TimedWork
from meshcast.hardware import Device
from meshcast.lower import Kernel

MachineT = TypeVar("MachineT")
WorkT = TypeVar("WorkT", bound=TimedWork)


def nothing_to_say(device: Device) -> str:
    """No caveat: for kernel kinds whose times need none."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindModel(Generic[MachineT, WorkT]):
    """A kind's model, and what is known of its times.

    Attributes:
        work: What a kernel takes on a machine.
        interval: Factors around the time on a device, (low, high); None: those of the calibration.
        caveat: What users are told of such times on a device.
        origin: Where the times come from.
    """

    work: Callable[[Kernel, MachineT], WorkT]
    interval: Callable[[Device], tuple[float, float]] | None = None
    caveat: Callable[[Device], str] = nothing_to_say
    origin: Origin = Origin.ANALYTICAL

    @property
    def name(self) -> str:
        """The model's, as explanations print it."""
        return self.work.__name__.replace("_", " ")

    def origin_of(self, kernel: Kernel) -> Origin:
        """Where a kernel's time comes from: a guess where its work is one."""
        return Origin.GUESSED if kernel.guessed else self.origin
