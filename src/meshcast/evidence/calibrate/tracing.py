"""Kernels by program, from JAX's profiler."""

from __future__ import annotations

import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from meshcast.evidence.calibrate.compiling import FILL_NAME, PROBE_NAME

_MODULE = re.compile(rf"(?:^|_)({PROBE_NAME}|{FILL_NAME})(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One launch: nanoseconds on the device's clock."""

    start: float
    end: float
    op: str
    kernel: str


@dataclass(slots=True)
class LaunchTrace:
    """Launches by the number of their probe, filled in when the session is over."""

    events: dict[int, list[Event]] = field(default_factory=dict)
    has_device: bool = False


@contextmanager
def traced() -> Iterator[LaunchTrace]:
    """A profiler session around a batch."""
    found = LaunchTrace()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            yield found
        finally:
            jax.profiler.stop_trace()
        for path in Path(folder).rglob("*.xplane.pb"):
            add_profile(jax.profiler.ProfileData.from_file(str(path)), found)


def add_profile(data: Any, found: LaunchTrace) -> None:
    """Adds the launches of a profile.

    A launch belongs to the module it names. Where a probe has no named ones, those without a name that follow the
    program that fills its arguments are taken: programs run one after the other.
    """
    raw: list[tuple[float, float, str, str, str]] = []
    for plane in data.planes:
        if not plane.name.startswith("/device:"):
            continue
        lines = [line for line in plane.lines if line.name.startswith("Stream")]
        found.has_device |= bool(lines)
        for line in lines:
            for event in line.events:
                stats = dict(event.stats)
                raw.append(
                    (
                        event.start_ns,
                        event.start_ns + event.duration_ns,
                        str(stats.get("hlo_module", "")),
                        str(stats.get("hlo_op", "")),
                        event.name,
                    )
                )
    named: defaultdict[int, list[Event]] = defaultdict(list)
    following: defaultdict[int, list[Event]] = defaultdict(list)
    current: int | None = None
    for start, end, module, op, kernel in sorted(raw):
        event = Event(start=start, end=end, op=op, kernel=kernel)
        match = _MODULE.search(module)
        if match and match[1] == PROBE_NAME:
            named[int(match[2])].append(event)
        elif module:
            current = int(match[2]) if match else None
        elif current is not None:
            following[current].append(event)
    found.events = {**following, **named}


def busy_us(events: list[Event]) -> float:
    """Microseconds with at least one launch running."""
    total, end = 0.0, 0.0
    for event in events:  # by start
        total += max(0.0, event.end - max(event.start, end))
        end = max(end, event.end)
    return total / 1e3


def summarise(events: list[Event], runs: int, kept: int) -> tuple[float, list[dict[str, Any]], bool]:
    """The median busy time of the last `kept` of `runs`, their kernels per run, and whether runs were told apart.

    Runs launch the same kernels; where the number of launches is no multiple of the runs, the mean of all is taken.
    """
    even = len(events) % runs == 0
    size = len(events) // runs
    each = [events[i * size : (i + 1) * size] for i in range(runs - kept, runs)] if even else [events]
    count = kept if even else runs
    busy = statistics.median(busy_us(run) for run in each) if even else busy_us(events) / runs
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for run in each:
        for event in run:
            times[event.op, event.kernel].append((event.end - event.start) / 1e3)
    rows = []
    for (op, kernel), values in times.items():
        launches = len(values) / count
        # A row's time is that of all its launches in a run; the median launch, so that one slow run does not count.
        us = statistics.median(values) * launches if launches <= 1 else sum(values) / count
        rows.append({"hlo_op": op, "kernel": kernel, "count": round(launches, 3), "us": round(us, 3)})
    return busy, sorted(rows, key=lambda row: -float(str(row["us"]))), even
