"""Simulators by name; those of others are called as processes, each in a Python environment of its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from meshcast.base import UsageError, nearest

if TYPE_CHECKING:
    from meshcast.estimate.systolic import Layer, LayerResult, SystolicArray

# Simulators of layers on one systolic array, and where the function of each is; the first, ours, is the default. Nothing
# is imported before it is asked for.
LAYER_SIMULATORS = {
    "systolic": "meshcast.estimate.systolic:simulate",
    "scalesim": "meshcast.estimate.outside.scalesim:simulate_by_scalesim",
    "zigzag": "meshcast.estimate.outside.zigzag:simulate_by_zigzag",
}
DEFAULT_SIMULATOR = next(iter(LAYER_SIMULATORS))
# Models of whole kernels on one generation alone, and the TPU compiler's name for it.
GENERATION_MODELS = {"scalesim-tpu": "v4"}
# Simulators of others for GPUs, beside our own, which has no name to be asked for by.
GPU_SIMULATORS = {"llmcompass": "meshcast.estimate.outside.llmcompass:LlmCompass"}
# What `--simulator` can name at fidelity `simulated`.
SIMULATORS = (*LAYER_SIMULATORS, *GENERATION_MODELS, *GPU_SIMULATORS)


class LayerSimulator(Protocol):
    """Layers on an array in, their cycles out."""

    def __call__(self, layers: Sequence[Layer], array: SystolicArray, /) -> list[LayerResult]:
        """Every layer's cycles."""
        ...


def layer_simulator(name: str) -> LayerSimulator:
    """The simulator of layers of a name.

    Raises:
        UsageError: There is none.
    """
    if name not in LAYER_SIMULATORS:
        raise UsageError(f"no simulator {name!r} of layers", where="--simulator", fix=nearest(name, LAYER_SIMULATORS))
    module, _, function = LAYER_SIMULATORS[name].partition(":")
    return cast(LayerSimulator, getattr(importlib.import_module(module), function))
