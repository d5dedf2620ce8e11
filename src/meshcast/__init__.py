"""meshcast predicts how a distributed ML program will run on hardware nobody has to own.

    import meshcast
    print(meshcast.predict("step.mlir", on="h200"))

The stages can be called one by one: `capture` or `load`, `partition`, `read_workload`, `lower`, `prepare`, `predict`.
"""

from __future__ import annotations

import importlib
from typing import Any

from meshcast.version import VERSION as __version__

_EXPORTS = {
    "predict": "meshcast.pipeline", "prepare": "meshcast.pipeline", "Options": "meshcast.pipeline",
    "Run": "meshcast.pipeline",
    "capture": "meshcast.capture", "load": "meshcast.capture", "read_program": "meshcast.capture",
    "Program": "meshcast.capture", "partition": "meshcast.partition", "read_workload": "meshcast.workload",
    "ReadOptions": "meshcast.workload", "Workload": "meshcast.workload", "lower": "meshcast.lower",
    "Mesh": "meshcast.mesh", "Prediction": "meshcast.results", "MeshcastError": "meshcast.errors",
}  # fmt: skip

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    # Lazy: `import meshcast` must not pay for jaxlib. A stage's package may share its function's name (capture,
    # partition, lower): importing the package must not hide the function.
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'meshcast' has no attribute {name!r}")
