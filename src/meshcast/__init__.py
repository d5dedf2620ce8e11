"""meshcast predicts how a distributed ML program will run on hardware nobody has to own.

    import meshcast
    print(meshcast.predict("step.mlir", on="h200"))

The stages can be called one by one: `load` or `capture_function`, `partition_program`, `read_workload`,
`lower_workload`, `prepare`, `predict`; `compare` puts targets, devices and fidelities side by side,
`compare_measured` a prediction beside a profile. No name here is also
a package's: importing a submodule would put the package in its place.
"""

from __future__ import annotations

import importlib

from meshcast.version import VERSION as __version__

# Not `typing`'s: `python -m meshcast` runs this before it has left the current folder, which may hold a file of that name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from meshcast.capture import Program as Program
    from meshcast.capture import TorchOptions as TorchOptions
    from meshcast.capture import capture as capture_function  # noqa: F401
    from meshcast.capture import capture_torch as capture_torch
    from meshcast.capture import load as load
    from meshcast.comparison import Comparison as Comparison
    from meshcast.comparison import compare as compare
    from meshcast.comparison.reality import compare_measured as compare_measured
    from meshcast.errors import MeshcastError as MeshcastError
    from meshcast.lower import lower as lower_workload  # noqa: F401
    from meshcast.mesh import Mesh as Mesh
    from meshcast.partition import partition as partition_program  # noqa: F401
    from meshcast.pipeline import Options as Options
    from meshcast.pipeline import Run as Run
    from meshcast.pipeline import predict as predict
    from meshcast.pipeline import prepare as prepare
    from meshcast.pipelined import Part as Part
    from meshcast.pipelined import Pipeline as Pipeline
    from meshcast.pipelined import pipeline_of as pipeline_of
    from meshcast.results import Prediction as Prediction
    from meshcast.workload import ReadOptions as ReadOptions
    from meshcast.workload import Workload as Workload
    from meshcast.workload import read_workload as read_workload

# Where each name lives: loaded on first use, because `import meshcast` must not pay for jaxlib.
_EXPORTS = {
    "Comparison": ("meshcast.comparison", "Comparison"),
    "MeshcastError": ("meshcast.errors", "MeshcastError"),
    "Mesh": ("meshcast.mesh", "Mesh"),
    "Options": ("meshcast.pipeline", "Options"),
    "Part": ("meshcast.pipelined", "Part"),
    "Pipeline": ("meshcast.pipelined", "Pipeline"),
    "Prediction": ("meshcast.results", "Prediction"),
    "Program": ("meshcast.capture", "Program"),
    "ReadOptions": ("meshcast.workload", "ReadOptions"),
    "Run": ("meshcast.pipeline", "Run"),
    "Workload": ("meshcast.workload", "Workload"),
    "TorchOptions": ("meshcast.capture", "TorchOptions"),
    "capture_function": ("meshcast.capture", "capture"),
    "capture_torch": ("meshcast.capture", "capture_torch"),
    "compare": ("meshcast.comparison", "compare"),
    "compare_measured": ("meshcast.comparison.reality", "compare_measured"),
    "load": ("meshcast.capture", "load"),
    "lower_workload": ("meshcast.lower", "lower"),
    "partition_program": ("meshcast.partition", "partition"),
    "pipeline_of": ("meshcast.pipelined", "pipeline_of"),
    "predict": ("meshcast.pipeline", "predict"),
    "prepare": ("meshcast.pipeline", "prepare"),
    "read_workload": ("meshcast.workload", "read_workload"),
}

__all__ = ["__version__", *_EXPORTS]


def __dir__() -> list[str]:
    """The public names, for completion; nothing is loaded for it."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'meshcast' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(importlib.import_module(module), attribute)
