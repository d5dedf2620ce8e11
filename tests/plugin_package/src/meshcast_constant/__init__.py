"""The smallest estimator there can be: every kernel takes one microsecond, give or take a half."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.estimate import Estimates, Origin, Support
from meshcast.hardware import Device
from meshcast.lower import Kernel

SECONDS = 1e-6


class Constant:
    """Fidelity `constant`: `time = 1 us`, all of it overhead."""

    name = "constant"
    fidelity = "constant"

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Every kernel but collectives, which the network model times."""
        if kernel.collective is not None:
            return Support(level="no", reason="collectives are timed by the network model")
        return Support(level="yes")

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """The same answer for all."""
        time = np.full(len(kernels), SECONDS)
        none = np.zeros(len(kernels))
        return Estimates(
            time=time,
            low=0.5 * time,
            high=1.5 * time,
            compute_time=none,
            memory_time=none,
            overhead=time,
            energy=none,
            origin=(Origin.GUESSED,) * len(kernels),
        )
