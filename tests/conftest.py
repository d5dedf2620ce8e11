"""What all tests share: names that every worker collects alike, and rare garbage collection.

A worker is one process with gigabytes of live objects: collecting them again and again costs a tenth of its time.
"""

from __future__ import annotations

import gc
import os

# Allocations before the youngest objects are looked through, and how often older ones are; a program's graph is 10,000s.
THRESHOLDS = (50_000, 20, 20)


# NumPy's BLAS threads sleep between products; `meshcast` says so too, but tests load NumPy first.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# xdist tells its workers that a line has 80 columns; the tests see tables as a file or a pipe gets them.
os.environ.pop("COLUMNS", None)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are numbered, not spelled: compressed ones hold the second of their making, and workers must collect alike."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: nothing of them is garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
