"""What `--simulator` can name, as estimators of fidelity `simulated`.

A simulator of layers is one line of `simulators.LAYER_SIMULATORS`; a model of kernels has its estimator here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

from meshcast.base import UnsupportedError, UsageError, nearest
from meshcast.estimate.estimator import Estimator
from meshcast.estimate.outside import (
    DEFAULT_SIMULATOR,
    GENERATION_MODELS,
    GPU_SIMULATORS,
    LAYER_SIMULATORS,
    SIMULATORS,
    layer_simulator,
)
from meshcast.hardware import Device

# Estimators of `simulators.GENERATION_MODELS`. Nothing is imported before it is asked for.
_MODELS = {"scalesim-tpu": "meshcast.estimate.scalesim_tpu:ScaleSimTpu"}


def load_simulator(name: str | None, device: Device, lines: Path | None = None) -> Estimator:
    """The estimator of a simulator; of the default without a name.

    Args:
        name: What `--simulator` names.
        device: What is simulated.
        lines: Lines that were fitted to the device's measured products, for a model that takes them.

    Raises:
        UsageError: There is no such simulator.
        UnsupportedError: It does not simulate the device.
    """
    chosen = name if name is not None else DEFAULT_SIMULATOR
    if chosen not in SIMULATORS:
        fix = "leave it out: a GPU's own is taken" if device.kind == "gpu" else nearest(chosen, SIMULATORS)
        raise UsageError(f"no simulator {chosen!r}", where="--simulator", fix=fix)
    if device.kind == "gpu" and device.core is not None:
        return _of_gpus(name, device)
    if device.tensor_cores is None:
        raise why_not_simulated(device)
    if chosen in GPU_SIMULATORS:
        raise UnsupportedError(
            f"{chosen} simulates GPUs, and {device.name} is none",
            where="--simulator",
            fix="leave --simulator out, or use a GPU",
        )
    if lines is not None:
        return _with_lines(chosen, lines, device)
    only = GENERATION_MODELS.get(chosen, device.tensor_cores.target)
    if device.tensor_cores.target != only:
        raise UnsupportedError(
            f"{chosen} is a model of TPU {only}, not of {device.name}",
            where="--simulator",
            fix=f"use --on tpu-{only}, another simulator, or lines fitted to {device.name}: meshcast calibrate --systolic",
        )
    if chosen in LAYER_SIMULATORS:
        from meshcast.estimate.simulated import Simulated

        return Simulated(chosen, layer_simulator(chosen))
    module, _, maker = _MODELS[chosen].partition(":")
    return cast(Estimator, getattr(importlib.import_module(module), maker)())


def takes_lines(name: str | None) -> bool:
    """Whether a simulator's cycles become seconds by lines that can be fitted to measured products (`--profile`)."""
    return name in GENERATION_MODELS


def _of_gpus(name: str | None, device: Device) -> Estimator:
    """The simulator of GPUs: our own, or one of others."""
    if name in GPU_SIMULATORS:
        module, _, maker = GPU_SIMULATORS[name].partition(":")
        return cast(Estimator, getattr(importlib.import_module(module), maker)())
    if name is not None:
        raise UnsupportedError(
            f"{name} simulates systolic arrays, and {device.name} has none",
            where="--simulator",
            fix=f"leave --simulator out, use {', '.join(GPU_SIMULATORS)}, or a TPU",
        )
    from meshcast.estimate.multiprocessors import GpuSimulated

    return GpuSimulated()


def _with_lines(name: str, path: Path, device: Device) -> Estimator:
    from meshcast.estimate.scalesim_tpu import ScaleSimTpu
    from meshcast.estimate.systolic_lines import read_fitted_lines

    if not takes_lines(name):
        raise UsageError(
            f"simulator {name!r} takes no lines from cycles to latency", where="--profile",
            fix="use --simulator scalesim-tpu with them, or leave --profile out",
        )  # fmt: skip
    found = read_fitted_lines(path)
    if found.device != device.name:
        raise UsageError(
            f"{path} has lines of {found.device}, not of {device.name}", where="--profile", fix=f"--on {found.device}"
        )
    return ScaleSimTpu(found)


def why_not_simulated(device: Device) -> UnsupportedError:
    """What to say about a device without systolic arrays or SMs."""
    return UnsupportedError(
        f"{device.name} has no systolic arrays and no SMs to simulate",
        where="--fidelity simulated",
        fix="choose a Cloud TPU or an NVIDIA GPU, add [tensor_cores] or [core] to the device's file, or --fidelity analytical",
    )
