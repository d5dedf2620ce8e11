"""What all tests share: modules compiled once, names that every worker collects alike, and rare garbage collection.

A worker is one process with gigabytes of live objects: collecting them again and again costs a tenth of its time.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.quick_compiling import flags

if TYPE_CHECKING:
    from tests.captured_programs import CapturedPrograms

ROOT = Path(__file__).parents[1]
# Allocations before the youngest objects are looked through, and how often older ones are; a program's graph is 10,000s.
THRESHOLDS = (50_000, 20, 20)


# NumPy's BLAS has one thread in each process: workers share the cores already, and threads that wait for one another on busy
# cores take longer than the small products of the tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Before jaxlib is loaded, which reads them once. An unset XLA_FLAGS alone: who sets some wants those.
os.environ.setdefault("XLA_FLAGS", flags())

# What `auto` answers must not depend on what is installed here. Tests of the real compiler look where it was before (workers of
# xdist inherit the first name).
os.environ.setdefault("MESHCAST_TESTED_GPU_COMPILER", os.environ.get("MESHCAST_GPU_COMPILER", ""))
os.environ["MESHCAST_GPU_COMPILER"] = "none"

# Half of the examples that are usual: the other half is tried when the tests are run again. How long one takes says nothing on a
# machine that others use.
hypothesis.settings.register_profile(
    "half", max_examples=50, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("half")

# Who starts the tests behind a shell's `&` or under `nohup` hands ignored signals on to them, and to the commands that they
# interrupt.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not in a thread beside the main one
            signal.signal(_number, _usual)

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


# Programs of models that a worker keeps, where a process of a user keeps sixteen: tests of a folder ask for the same ones. What
# gives programs, and not more, is kept on disk too.
KEPT = 96
CAPTURING = {
    "meshcast.programs.sources": ("_captured_model",),
    "meshcast.jobs.planned.target": ("_program", "inference_program"),
    "meshcast.jobs.planned.stages": ("_passes", "_update"),
}
PUT_TOGETHER = {"meshcast.jobs.planned.target": ("_pipeline",)}
PARTITIONING = {"meshcast.partition.shardy": ("_answer",)}


def keep_captured(programs: CapturedPrograms | None) -> None:
    """Has functions that capture models keep more of what they made, here and on disk."""
    for functions, kept, tested_by in (
        (CAPTURING, programs, ""),
        (PARTITIONING, programs, "tests/partition/"),
        (PUT_TOGETHER, None, ""),
    ):
        for name, each in functions.items():
            module = importlib.import_module(name)
            for function in each:
                captures = getattr(module, function).__wrapped__
                keeping = captures if kept is None else kept.keeping(captures, tested_by)
                setattr(module, function, lru_cache(maxsize=KEPT)(keeping))


def keep_command_lines() -> None:
    """Has the parser of a command line be made once in a process: of all verbs it takes as long as many a test of one."""
    import typer.testing

    from meshcast.cli import app

    made, with_verbs = lru_cache(maxsize=None)(typer.main.get_command), lru_cache(maxsize=None)(app.app_with)
    setattr(typer.main, "get_command", made)  # noqa: B010  # what `run` asks
    setattr(typer.testing, "_get_command", made)  # noqa: B010  # what typer's `CliRunner` asks
    setattr(app, "app_with", lambda verbs: with_verbs(frozenset(verbs)))  # noqa: B010


def captured_here(config: pytest.Config) -> CapturedPrograms | None:
    """The programs that tests of these sources have captured, None where pytest keeps nothing on disk."""
    from tests.captured_programs import CapturedPrograms, made_of  # loads jaxlib

    cache = getattr(config, "cache", None)
    return None if cache is None else CapturedPrograms(cache.mkdir("captured"), made_of(cache.mkdir("sources")))


def pytest_sessionstart(session: pytest.Session) -> None:
    """The programs that come with the sources are laid where all workers look for them."""
    if hasattr(session.config, "workerinput"):
        return
    from tests.captured_archive import ARCHIVE, unpack

    if (programs := captured_here(session.config)) is not None:
        unpack(ARCHIVE, programs.folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Whether programs of a whole run had to be captured that a fresh archive would have brought along."""
    if config.args != config.getini("testpaths"):
        return
    from tests.captured_archive import ARCHIVE, digest_of

    if (programs := captured_here(config)) is not None and digest_of(ARCHIVE) != programs.folder.name:
        said = "programs were captured that an archive of these sources would bring along (make captured-programs)"
        terminalreporter.write_line(said)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and tests stay until the end: nothing of them is garbage."""
    from tests.captured_programs import without_tracebacks

    without_tracebacks()
    keep_captured(captured_here(session.config))
    keep_command_lines()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, by Playwright, of which a process can run one at a time: so it ends with the module."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: no page is opened")
    found = os.environ.get("MESHCAST_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium (apt-get install chromium): no page is opened")
    with playwright.sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        running = started.chromium.launch(executable_path=found, args=flags)
        yield running
        running.close()
