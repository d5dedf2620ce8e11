"""What `--simulator` can name: estimators of fidelity `simulated`. A new one is one line here."""

from __future__ import annotations

import importlib
from typing import cast

from meshcast.errors import UnsupportedError, UsageError, nearest
from meshcast.estimate.estimator import Estimator
from meshcast.hardware import Device

# Where each one's estimator is made; the first is the default. Nothing is imported before it is asked for.
SIMULATORS = {
    "systolic": "meshcast.estimate.simulated:Simulated",
    "scalesim": "meshcast.estimate.simulated:by_scalesim",
    "zigzag": "meshcast.estimate.simulated:by_zigzag",
    "scalesim-tpu": "meshcast.estimate.scalesim_tpu:ScaleSimTpu",
}
# Models of one generation alone, by the name that the TPU compiler has for it.
ONLY_OF = {"scalesim-tpu": "v4"}


def load_simulator(name: str | None, device: Device) -> Estimator:
    """The estimator of a simulator; of the default without a name.

    Raises:
        UsageError: There is no such simulator.
        UnsupportedError: It does not simulate the device.
    """
    if device.tensor_cores is None:
        raise why_not_simulated(device)
    chosen = name if name is not None else next(iter(SIMULATORS))
    if chosen not in SIMULATORS:
        raise UsageError(f"no simulator {chosen!r}", where="--simulator", fix=nearest(chosen, SIMULATORS))
    only = ONLY_OF.get(chosen, device.tensor_cores.target)
    if device.tensor_cores.target != only:
        raise UnsupportedError(
            f"{chosen} is a model of TPU {only}, not of {device.name}",
            where="--simulator",
            fix=f"use --on tpu-{only}, or another simulator",
        )
    module, _, maker = SIMULATORS[chosen].partition(":")
    return cast(Estimator, getattr(importlib.import_module(module), maker)())


def why_not_simulated(device: Device) -> UnsupportedError:
    """What to say about a device without systolic arrays."""
    return UnsupportedError(
        f"{device.name} has no systolic arrays to simulate",
        where="--fidelity simulated",
        fix="choose a TPU, add [tensor_cores] to the device's file, or use --fidelity analytical",
    )
