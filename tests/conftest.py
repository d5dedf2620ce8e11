"""What all tests share: modules compiled once, names that every worker collects alike, and rare garbage collection.

A worker is one process with gigabytes of live objects: collecting them again and again costs a tenth of its time.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest

from tests.quick_compiling import flags

ROOT = Path(__file__).parents[1]
# Allocations before the youngest objects are looked through, and how often older ones are; a program's graph is 10,000s.
THRESHOLDS = (50_000, 20, 20)


# NumPy's BLAS threads sleep between products; `meshcast` says so too, but tests load NumPy first.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Before jaxlib is loaded, which reads them once. An unset XLA_FLAGS alone: who sets some wants those.
os.environ.setdefault("XLA_FLAGS", flags())

# What `auto` answers must not depend on what is installed here. Tests of the real compiler look where it was before (workers of
# xdist inherit the first name).
os.environ.setdefault("MESHCAST_TESTED_GPU_COMPILER", os.environ.get("MESHCAST_GPU_COMPILER", ""))
os.environ["MESHCAST_GPU_COMPILER"] = "none"

# Half of the examples that are usual: the other half is tried when the tests are run again.
hypothesis.settings.register_profile("half", max_examples=50)
hypothesis.settings.load_profile("half")

# xdist tells its workers that a line has 80 columns; the tests see tables as a file or a pipe gets them.
os.environ.pop("COLUMNS", None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Has every second worker load the modules of the whole suite from the other end.

    pytest rewrites the asserts of each module and keeps what it compiled beside it: workers that begin at both ends meet in the
    middle, where each finds kept what the other has done, and half of that work is done by each.
    """
    config = session.config
    second = os.environ.get("PYTEST_XDIST_WORKER", "gw0").endswith(("1", "3", "5", "7", "9"))
    if not second or sys.dont_write_bytecode or config.args != config.getini("testpaths"):
        return
    for path in sorted(ROOT.glob("tests/**/test_*.py"), reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong with it
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are numbered, not spelled: compressed ones hold the second of their making, and workers must collect alike."""
    return argname if isinstance(val, bytes) else None


# Programs of models that a worker keeps, where a process of a user keeps sixteen: tests of a folder ask for the same ones.
KEPT = 96
CAPTURING = {
    "meshcast.programs.sources": ("_captured_model",),
    "meshcast.jobs.planned.target": ("_program", "_pipeline", "inference_program"),
    "meshcast.jobs.planned.stages": ("_passes", "_update"),
}


def keep_captured() -> None:
    """Has functions that capture models keep more of what they made."""
    for name, functions in CAPTURING.items():
        module = importlib.import_module(name)
        for function in functions:
            setattr(module, function, lru_cache(maxsize=KEPT)(getattr(module, function).__wrapped__))


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: nothing of them is garbage."""
    keep_captured()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
