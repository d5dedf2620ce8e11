"""What a user asks of a calibration, and how it went."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import UsageError
from meshcast.estimate import ProfileHeader, ProfileJournal
from meshcast.evidence.calibrate.backend import Backend, describe, find_backend
from meshcast.evidence.calibrate.kept_hlo import KeptHlo, hlo_folder
from meshcast.evidence.calibrate.session import Listener, measure, selected
from meshcast.evidence.calibrate.suite import probe_suite


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """A measurement to take."""

    out: Path | None = None  # NAME.profile.jsonl.gz by default
    minutes: float = 9.0
    families: tuple[str, ...] = ()
    limit: int | None = None
    name: str | None = None
    keep_hlo: Path | None = None  # beside the result by default


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOutcome:
    """A measurement that was taken."""

    path: Path
    header: ProfileHeader
    rows: int
    failed: int
    by_clock: int  # rows without device times: the profiler shows no device
    left: int
    backend: Backend

    def text(self) -> str:
        """For people."""
        more = f"; {self.left} are left: the same command goes on" if self.left else ""
        clock = f", {self.by_clock} timed by the host's clock" if self.by_clock else ""
        return f"{self.path}: {self.rows} probes of {self.header.device}{clock}, {self.failed} failed{more}"


def run_request(request: CalibrationRequest, listen: Listener) -> CalibrationOutcome:
    """Measures the device that JAX finds."""
    if request.minutes <= 0:
        raise UsageError(
            f"no time to measure in: {request.minutes} minutes", where="--minutes", fix="give it some: --minutes 10"
        )
    probes = probe_suite(request.families)
    _name_every_launch()
    backend = find_backend()
    header = describe(backend, name=request.name)
    path = request.out or Path(f"{header.device}.profile.jsonl.gz")
    journal = ProfileJournal(path, header)
    chosen = selected(probes, backend, limit=request.limit)
    # Where the profiler shows no kernels there are none to tell apart.
    keep = KeptHlo(request.keep_hlo or hlo_folder(path)).add if backend.platform != "cpu" else None
    left = measure(chosen, backend, journal, seconds=request.minutes * 60, listen=listen, keep=keep)
    journal.finish()
    return CalibrationOutcome(
        path=path,
        header=header,
        rows=len(journal.rows),
        failed=sum("error" in row for row in journal.rows),
        by_clock=sum(row.get("method") == "wall" for row in journal.rows),
        left=left,
        backend=backend,
    )


def _name_every_launch() -> None:
    """Turns XLA's CUDA graphs off, before it starts: inside one the profiler does not name a launch's instruction."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_enable_command_buffer" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_enable_command_buffer=".strip()
