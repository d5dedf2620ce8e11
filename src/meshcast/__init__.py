"""meshcast predicts how a distributed ML program will run on hardware nobody has to own.

    import meshcast
    print(meshcast.predict("step.mlir", on="h200"))

`predict` answers for one target, `compare` for several devices and fidelities side by side, `compare_measured` puts a
prediction beside a profile, `trace` writes what is predicted as a file for other tools. The stages between can be called
one by one: `load(...)` or `capture(...)` gives a `Program`, and
`program.partition().workload().lower().on("h200").predict()` goes on from there.

docs/api.md has every name with an example. No name here is also a package's: importing a submodule would put the package in
its place.
"""

from meshcast.base.doors import door
from meshcast.base.version import VERSION as __version__

__getattr__, __dir__, __all__ = door(__name__)
__all__ += ["__version__"]
