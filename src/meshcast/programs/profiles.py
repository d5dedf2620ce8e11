"""Profilers' traces, which hold what a program did, and no program: known by how they begin, and refused with what takes them.

`torch.profiler` and JAX's profiler write Chrome's trace format: an object with `traceEvents`, or the bare list of events.
"""

from __future__ import annotations

import re
from pathlib import Path

from meshcast.base import InputError

HEAD = 1 << 20  # bytes that are looked at: what lies before the events says which devices and groups of ranks there are
_EVENT = re.compile(rb'\[\s*\{[^{}]*"ph"\s*:')


def refuse_profile(head: bytes, *, where: str) -> None:
    """Refuses what begins as a profiler's trace.

    Raises:
        InputError: It does.
    """
    start = head[:HEAD].removeprefix(b"\xef\xbb\xbf").lstrip()
    if (start.startswith(b"{") and b'"traceEvents"' in start) or _EVENT.match(start):
        raise InputError(
            "is a profiler's trace of a run, not a program",
            where=where,
            fix=f"name the program, and compare it with the trace: meshcast compare TARGET --measured {where}; or make a job of "
            f"the trace that predict replays: meshcast trace link --device {where} -o FOLDER",
        )


def refuse_profile_file(path: Path) -> None:
    """Refuses a file that begins as a profiler's trace; what cannot be read is left to whoever reads it.

    Raises:
        InputError: It does.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return
    refuse_profile(head, where=str(path))
