"""`DeviceTrace`: what a Kineto trace says about the host's calls and the device's work, as little of it as linking needs.

Events of the profiler's file (Chrome's trace format, https://github.com/pytorch/kineto): `cpu_op` and `user_annotation` are
what the host runs, `cuda_runtime` and `cuda_driver` its calls, with the `correlation` of the work that they launch; `kernel`,
`gpu_memcpy` and `gpu_memset` are that work; `cuda_sync` says which stream waits for which. Everything else (Python frames,
arrows, counters) is passed over while the file is read.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from meshcast.base import InputError, tell
from meshcast.traces.recorded.columns import FLAG, LONG, SHORT, ColumnTable, Words
from meshcast.traces.recorded.json_stream import Passed, stream_json

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
OPERATIONS = frozenset({"cpu_op", "user_annotation"})
SYNCHRONISATION = "cuda_sync"
STEP = "ProfilerStep#"
# What NCCL's kernels and `record_param_comms` say of a collective; newer profilers write all of it.
COLLECTIVE_ARGUMENTS = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size", "Out split size",
    "Process Group Name", "Process Group Description", "Process Group Ranks", "Rank", "Src Rank", "Dst Rank", "Seq",
)  # fmt: skip
# Calls that launch work or wait for it; all others (queries of attributes, allocations) are a part of the operator around them.
_TELLING = re.compile(r"launch|memcpy|memset|synchronize|waitevent|graph", re.IGNORECASE)
_LAST = 1 << 62  # calls are inside operators
TOLD_EVERY = 200_000  # events, to whoever is waiting


class HostEvents(ColumnTable):
    """What threads of the host ran; times are nanoseconds of the profiler's clock.

    Columns:
        name: The number of its name; so `thread` of where it ran.
        is_op: 1 of an operator or annotation, 0 of a call of the runtime.
        external: The profiler's number of an operator; -1 where it has none.
        record: The number that the execution trace knows it by (`Record function id`); -1 where it has none.
        correlation: Of a call, the number that its work has, too; -1 where it has none.

    `said` has the arguments of collectives.
    """

    CODES: ClassVar[Mapping[str, str]] = {
        "name": SHORT, "thread": SHORT, "is_op": FLAG, "start": LONG, "end": LONG, "external": LONG, "record": LONG,
        "correlation": LONG,
    }  # fmt: skip
    name: array[int]
    thread: array[int]
    is_op: array[int]
    start: array[int]
    end: array[int]
    external: array[int]
    record: array[int]
    correlation: array[int]

    def __init__(self) -> None:
        super().__init__()
        self.names, self.threads = Words(), Words()

    def name_of(self, place: int) -> str:
        """The name of an event."""
        return str(self.names.all[self.name[place]])

    def sort(self) -> None:
        """By start. Of what begins in one microsecond the operator that was numbered first began first; calls are inside."""
        numbered = np.where(self.numbers("is_op") > 0, self.numbers("external"), _LAST)
        self.put_in_order(-self.numbers("end"), numbered, self.numbers("start"))


class DeviceWork(ColumnTable):
    """Kernels, copies and fills on streams; `kind` is the place of its category among `WORK`, `bytes` of a copy what it moves."""

    CODES: ClassVar[Mapping[str, str]] = {
        "name": SHORT, "kind": FLAG, "stream": LONG, "start": LONG, "end": LONG, "correlation": LONG, "external": LONG,
        "bytes": LONG,
    }  # fmt: skip
    name: array[int]
    kind: array[int]
    stream: array[int]
    start: array[int]
    end: array[int]
    correlation: array[int]
    external: array[int]
    bytes: array[int]

    def __init__(self) -> None:
        super().__init__()
        self.names = Words()

    def name_of(self, place: int) -> str:
        """The name of a piece of work."""
        return str(self.names.all[self.name[place]])

    def sort(self) -> None:
        """By start, then by end."""
        self.put_in_order(self.numbers("end"), self.numbers("start"))


@dataclass(slots=True, kw_only=True)
class StreamWait:
    """That a stream, or the host where `stream` is -1, waits for what another has been given so far (`cuda_sync`)."""

    stream: int
    on_stream: int
    correlation: int


@dataclass(slots=True, kw_only=True)
class DeviceTrace:
    """What one Kineto file says.

    Attributes:
        where: The file.
        host: What threads ran, by start; so `work`, what the device ran.
        waits: Waits of streams for streams, by the number of the call that made them.
        rank: The rank that wrote it, and how many there are, where it says so.
        device_name: What the driver calls the device.
        steps: Spans of the profiler's steps, by number.
        read: Events in the file.
    """

    where: str
    host: HostEvents
    work: DeviceWork
    waits: dict[int, StreamWait]
    rank: int | None = None
    world: int | None = None
    device_name: str = ""
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    read: int = 0


def read_device_trace(path: Path) -> DeviceTrace:
    """The trace in a Kineto file, packed or not, read event by event.

    Raises:
        InputError: It is no such file, or an event has no readable time or number.
    """
    found = DeviceTrace(where=str(path), host=HostEvents(), work=DeviceWork(), waits={})
    passed = Passed()
    for key, value in stream_json(path, "traceEvents", passed):
        if key == "distributedInfo" and isinstance(value, dict):
            found.rank, found.world = (_whole_or_none(value.get(each)) for each in ("rank", "world_size"))
        elif key == "deviceProperties" and isinstance(value, list) and value and isinstance(value[0], dict):
            found.device_name = str(value[0].get("name", ""))
        elif key is None and isinstance(value, dict):
            if found.read % TOLD_EVERY == 0:
                tell(f"{found.read:,} events of {path.name}", done=passed.share, total=1)
            try:
                _take(found, value)
            except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
                raise InputError(
                    f"event {found.read} ({value.get('cat', 'no category')}, {str(value.get('name'))[:60]!r}) has no readable "
                    f"time or number: {error!r}", where=str(path),
                    fix="export the trace again: ts and dur are microseconds, correlation and External id numbers",
                ) from None  # fmt: skip
            found.read += 1
    if not found.host and not found.work:
        raise InputError(
            f"none of {found.read} events is an operator of the host or work of a device", where=str(path),
            fix="give a trace of torch.profiler (traceEvents with categories cpu_op and kernel)",
        )  # fmt: skip
    found.host.sort()
    found.work.sort()
    return found


def _take(found: DeviceTrace, event: dict[str, Any]) -> None:
    """Keeps of an event what linking needs."""
    category = event.get("cat")
    if event.get("ph") != "X" or not isinstance(category, str):
        return
    category = category.lower()
    if category not in WORK and category not in CALLS and category not in OPERATIONS and category != SYNCHRONISATION:
        return
    arguments = event.get("args") or {}
    name = str(event.get("name", ""))
    start = _nanoseconds(event["ts"])
    end = start + max(0, _nanoseconds(event.get("dur", 0)))
    correlation = int(arguments.get("correlation", -1))
    if category in WORK:
        work = found.work
        place = work.add(
            work.names.number(name), WORK.index(category), int(arguments.get("stream", event.get("tid", 0))), start, end,
            correlation, int(arguments.get("External id", -1)), int(arguments.get("bytes", 0)),
        )  # fmt: skip
        if "Collective name" in arguments:
            work.said[place] = _of_collective(arguments)
    elif category == SYNCHRONISATION:
        if "wait_on_stream" in arguments and int(arguments["wait_on_stream"]) >= 0:
            stream = int(arguments.get("stream", -1)) if "Wait" in name else -1
            found.waits[correlation] = StreamWait(
                stream=stream, on_stream=int(arguments["wait_on_stream"]), correlation=correlation
            )
        elif "Stream Sync" in name:
            found.waits[correlation] = StreamWait(
                stream=-1, on_stream=int(arguments.get("stream", -1)), correlation=correlation
            )
    elif name.startswith(STEP) and name[len(STEP) :].isdecimal():
        found.steps[int(name[len(STEP) :])] = (start, end)
    elif category in OPERATIONS or _TELLING.search(name):
        host = found.host
        place = host.add(
            host.names.number(name), host.threads.number(_thread(event)), int(category in OPERATIONS), start, end,
            int(arguments.get("External id", -1)), int(arguments.get("Record function id", -1)), correlation,
        )  # fmt: skip
        if "Collective name" in arguments:
            host.said[place] = _of_collective(arguments)


def _thread(event: Mapping[str, Any]) -> int | str:
    thread = event.get("tid", 0)
    is_number = isinstance(thread, int) and abs(thread) < 1 << 31  # what a trace's number of a thread holds
    return thread if is_number else str(thread)


def _of_collective(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: arguments[key] for key in COLLECTIVE_ARGUMENTS if key in arguments}


def _nanoseconds(microseconds: object) -> int:
    """Whole nanoseconds; whole microseconds keep every digit, however far the clock has gone."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    value = float(str(microseconds))
    if not math.isfinite(value):
        raise ValueError(f"a time is {value}")
    return round(value * 1000)


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
