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

import os

from meshcast.base.doors import door
from meshcast.base.version import VERSION as __version__

# Threads of NumPy's BLAS that have nothing to do sleep at once, instead of after 2^26 looks: our products take less time than
# these. Read when NumPy is loaded; how work is split over threads, and so every bit of a result, stays as it is.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

__getattr__, __dir__, __all__ = door(__name__)
__all__ += ["__version__"]
