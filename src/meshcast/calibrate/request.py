"""What a user asks of a calibration, and how it went."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.calibrate.backend import Backend, describe, find_backend
from meshcast.calibrate.compiling import Ready
from meshcast.calibrate.session import Listener, measure, selected
from meshcast.calibrate.suite import suite
from meshcast.errors import InputError, UsageError
from meshcast.profiles.file import Header, Journal

HLO_FILE = "optimized.jsonl.gz"  # in the folder of `--keep-hlo`: a line a probe, {"id": ..., "hlo": ...}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A measurement to take."""

    out: Path | None = None  # NAME.profile.jsonl.gz by default
    minutes: float = 9.0
    families: tuple[str, ...] = ()
    limit: int | None = None
    name: str | None = None
    keep_hlo: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A measurement that was taken."""

    path: Path
    header: Header
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


def run_request(request: Request, listen: Listener) -> Outcome:
    """Measures the device that JAX finds."""
    if request.minutes <= 0:
        raise UsageError(f"no time to measure in: {request.minutes} minutes", where="--minutes")
    probes = suite(request.families)
    backend = find_backend()
    header = describe(backend, name=request.name)
    path = request.out or Path(f"{header.device}.profile.jsonl.gz")
    journal = Journal(path, header)
    chosen = selected(probes, backend, limit=request.limit)
    keeper = KeptHlo(request.keep_hlo) if request.keep_hlo else None
    left = measure(
        chosen, backend, journal, seconds=request.minutes * 60, listen=listen, keep=keeper.add if keeper else None
    )
    journal.finish()
    return Outcome(
        path=path,
        header=header,
        rows=len(journal.rows),
        failed=sum("error" in row for row in journal.rows),
        by_clock=sum(row.get("method") == "wall" for row in journal.rows),
        left=left,
        backend=backend,
    )


class KeptHlo:
    """The optimized HLO of probes with several kernels: fused ones are told apart by their instructions' names."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be written: {error}", where=str(folder)) from error
        self._path = folder / HLO_FILE

    def add(self, item: Ready, row: dict[str, Any]) -> None:
        """Keeps a probe's text: another member of the packed file."""
        if len(row.get("kernels", ())) < 2:
            return
        line = json.dumps({"id": item.probe.id, "hlo": item.run.as_text()}) + "\n"
        with self._path.open("ab") as file:
            file.write(gzip.compress(line.encode(), mtime=0))
