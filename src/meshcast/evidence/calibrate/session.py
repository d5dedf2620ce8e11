"""A whole measurement: what is left to do, batches of it until the time is up, the file beside them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax

from meshcast.base import UnsupportedError
from meshcast.estimate import ProfileJournal, ProfileRow
from meshcast.evidence.calibrate.agenda import Agenda
from meshcast.evidence.calibrate.backend import Backend, is_alive
from meshcast.evidence.calibrate.compiling import Failed, Ready, compile_batch
from meshcast.evidence.calibrate.measuring import measure_batch
from meshcast.evidence.calibrate.probe import Probe, ProbeBody
from meshcast.evidence.calibrate.suite import build

MEMORY_SHARE = 0.3  # of the device's, for a probe's arguments and results: temporaries and tuning need more
CPU_PROBES = 600  # what a CPU takes some minutes for
THREADS_PER_CORE = {"gpu": 2}  # tuning waits for the device


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationProgress:
    """The progress of a session: probes done, failed and in all, the seconds so far, and the stage."""

    done: int
    total: int
    failed: int
    seconds: float
    stage: str


Listener = Callable[[CalibrationProgress], None]
Keeper = Callable[[Ready, ProfileRow], None]


def selected(probes: Sequence[Probe], backend: Backend, *, limit: int | None) -> list[Probe]:
    """The probes that this backend can run in reasonable time, in the suite's order."""
    most = limit or (CPU_PROBES if backend.platform == "cpu" else len(probes))
    chosen: list[Probe] = []
    for item in probes:
        if len(chosen) >= most:
            break
        if _suits(item, backend):
            chosen.append(item)
    return chosen


def _suits(item: Probe, backend: Backend) -> bool:
    """Whether it is neither too long nor too large, nor another backend's."""
    if ("impl", "cudnn") in item.settings and backend.platform != "gpu":
        return False
    body = build(item)
    moved = _bytes(body)
    return moved <= MEMORY_SHARE * backend.memory_bytes and backend.guess_s(body.flops, moved) <= backend.slowest_s


def _bytes(body: ProbeBody) -> float:
    """Bytes of the arguments, three times: results and temporaries are about as large."""
    return 3.0 * float(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(body.args)))


def measure(
    probes: Sequence[Probe],
    backend: Backend,
    journal: ProfileJournal,
    *,
    seconds: float,
    listen: Listener,
    keep: Keeper | None = None,
) -> int:
    """Measures what the journal does not have yet; returns how many are left when the time is up.

    A batch begins only if one like those before would end in time: the limit is kept to within a batch.

    Raises:
        UnsupportedError: The device stopped working; what was measured before is in the journal.
    """
    start = time.perf_counter()
    known = {row["id"] for row in journal.rows}
    todo = [item for item in probes if item.id not in known]
    agenda = Agenda(todo, backend.platform, journal.suspects)
    done, failed, number = len(probes) - len(todo), 0, 0

    def tell(stage: str) -> None:
        elapsed = time.perf_counter() - start
        listen(CalibrationProgress(done=done, total=len(probes), failed=failed, seconds=elapsed, stage=stage))

    threads = THREADS_PER_CORE.get(backend.platform, 1) * (os.cpu_count() or 1)
    pool = ThreadPoolExecutor(max_workers=threads)
    try:
        while batch := agenda.take(seconds - (time.perf_counter() - start)):
            began = time.perf_counter()
            journal.attempt(item.id for item in batch)
            tell("compiling")
            ready = compile_batch(list(enumerate(batch, number)), pool, backend=backend.platform)
            number += len(batch)
            tell("measuring")
            rows = measure_batch(ready, backend)
            if not is_alive():
                _give_up(journal, rows)
            if keep:
                for item, row in zip(ready, rows, strict=True):
                    if not isinstance(item, Failed) and "error" not in row:
                        keep(item, row)
            journal.append(rows)
            done += len(rows)
            failed += sum("error" in row for row in rows)
            now = time.perf_counter()
            agenda.took(now - began, seconds - (now - start))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for what was to be compiled
        journal.attempt(())  # no process died: whatever is raised here is known
    tell("done")
    return len(probes) - done


def _give_up(journal: ProfileJournal, rows: Sequence[ProfileRow]) -> None:
    """Keeps what was measured before the device failed, and the first that failed: it may be the cause."""
    first = next((row for row in rows if "error" in row), None)
    journal.append([row for row in rows if "error" not in row or row is first])
    raise UnsupportedError(
        f"the device stopped working: {first['error'] if first else 'it no longer runs an empty program'}",
        where=str(first["id"]) if first else None,
        fix="run the same command again: it goes on after this probe",
    )
