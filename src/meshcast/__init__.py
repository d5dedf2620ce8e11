"""meshcast predicts how a distributed ML program will run on hardware nobody has to own.

    import meshcast
    print(meshcast.predict("step.mlir", on="h200"))

The stages can be called one by one: `load` or `capture_function`, `partition_program`, `read_workload`,
`lower_workload`, `prepare`, `predict`; `compare` puts targets, devices and fidelities side by side,
`compare_measured` a prediction beside a profile. No name here is also
a package's: importing a submodule would put the package in its place.
"""

from meshcast.base.doors import door
from meshcast.base.version import VERSION as __version__

__getattr__, __dir__, __all__ = door(__name__)
__all__ += ["__version__"]
