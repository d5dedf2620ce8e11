"""Collections of garbage, put off while something is computed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """No collection inside, whatever is allocated; outside it is as it was.

    Tracing makes a million objects that all stay (jaxprs, MLIR's values, kernels), and every full collection walks over them
    and over all of jax to find nothing: a fifth of the time that a plan takes to be predicted again with another
    microbatch (`benchmarks/plans.py`).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def kept_for_good() -> None:
    """Takes what there is now out of all later collections: of a process that works on for long, and has loaded what it needs."""
    gc.collect()
    gc.freeze()
