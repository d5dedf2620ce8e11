"""PyTorch's profiles: Chrome's trace JSON as Kineto writes it.

Device work has category `kernel`, `gpu_memcpy` or `gpu_memset`. A launch on the host has the same `correlation`, the operator
that made it the same `External id`, and it lies inside a `ProfilerStep#N` where the loop calls `profiler.step()`. NCCL's kernels
say which collective they are (`Collective name`: an all-to-all runs as sends and receives) and whose (`Process Group Ranks`); the
file says which rank wrote it (`distributedInfo`).
"""

from __future__ import annotations

import bisect
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.base import InputError
from meshcast.evidence.profiler.trace import MeasuredKernel, MeasuredTrace, by_start

_MICRO = 1e-6
DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
STEP = "ProfilerStep#"
UNREADABLE = (TypeError, ValueError, KeyError, OverflowError)  # text or null for a number, a list for an id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A span of the trace, and its place among all events of the file."""

    number: int
    content: dict[str, Any] = field(repr=False)
    args: dict[str, Any] = field(repr=False)

    @property
    def category(self) -> str:
        return str(self.content.get("cat", "")).lower()

    @property
    def name(self) -> str:
        return str(self.content.get("name", ""))

    def microseconds(self, key: str) -> float:
        """A time of it.

        Raises:
            ValueError: It is none; or KeyError, TypeError, OverflowError.
        """
        found = float(self.content[key])
        if not math.isfinite(found):
            raise ValueError(f"{key} is {found}")
        return found

    def unreadable(self, error: Exception, source: str) -> InputError:
        """The error of an event without a time, or with an id that is no number."""
        return InputError(
            f"event {self.number} ({self.category or 'no category'}, {self.name[:60]!r}) cannot be read, it has no readable time "
            f"or id: {error!r}",
            where=source,
            fix="export the trace again: ts and dur are numbers of microseconds, correlation and External id numbers",
        )


def read_kineto(content: bytes, source: str) -> list[MeasuredTrace]:
    """The devices of a trace.

    Raises:
        InputError: It is no JSON, cut off, has no device's kernels, or an event that cannot be read.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not whole JSON: {error}", where=source, fix="export the trace again") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError("JSON without `traceEvents`", where=source, fix="give a trace of torch.profiler")
    complete = _spans(events, source)
    work = [event for event in complete if event.category in DEVICE_WORK]
    if not work:
        jax = any("hlo_op" in event.args for event in complete)
        raise InputError(
            f"none of {len(complete)} events is a device's kernel (category kernel, gpu_memcpy or gpu_memset)",
            where=source,
            fix="give the .xplane.pb beside it: this is JAX's trace for viewers"
            if jax
            else "record with torch.profiler.ProfilerActivity.CUDA",
        )
    rank = _rank(document)
    names = _device_names(document)
    host = _Host(complete, source)
    devices: defaultdict[str, list[MeasuredKernel]] = defaultdict(list)
    for event in work:
        try:
            kernel = _kernel(event, host)
        except UNREADABLE as error:
            raise event.unreadable(error, source) from None
        devices[str(event.args.get("device", event.content.get("pid", 0)))].append(kernel)
    return [
        MeasuredTrace(
            source=source,
            format="kineto",
            device=f"GPU:{device}",
            rank=rank if len(devices) == 1 else None,
            device_name=names.get(device, ""),
            kernels=by_start(kernels),
        )
        for device, kernels in sorted(devices.items())
    ]


def _spans(events: Sequence[object], source: str) -> list[_Event]:
    """The complete events: those with a start and a length."""
    found = []
    for number, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        args = event.get("args")
        if args is not None and not isinstance(args, dict):
            raise InputError(
                f"event {number} ({str(event.get('name'))[:60]!r}) has args that are no object but {type(args).__name__}",
                where=source,
                fix="export the trace again: args are names with values",
            )
        found.append(_Event(number=number, content=event, args=args or {}))
    return found


def _device_names(document: object) -> dict[str, str]:
    """What the driver calls each device, by its number, if the trace says so."""
    told = document.get("deviceProperties") if isinstance(document, dict) else None
    properties = told if isinstance(told, list) else []
    return {str(each.get("id")): str(each.get("name", "")) for each in properties if isinstance(each, dict)}


def _rank(document: object) -> int | None:
    """The rank that wrote a trace, if it says so."""
    told = document.get("distributedInfo") if isinstance(document, dict) else None
    rank = told.get("rank") if isinstance(told, dict) else None
    return rank if isinstance(rank, int) else None


def _kernel(event: _Event, host: _Host) -> MeasuredKernel:
    args = event.args
    grid, collective = args.get("grid"), args.get("Collective name")
    return MeasuredKernel(
        name=event.name,
        start=event.microseconds("ts") * _MICRO,
        duration=event.microseconds("dur") * _MICRO,
        stream=str(args.get("stream", event.content.get("tid", ""))),
        scope=f"nccl:{collective}" if collective else host.operators.get(args.get("External id"), ""),
        group=str(args.get("Process Group Ranks") or args.get("Process Group Name") or "") if collective else "",
        shape=f"{grid}x{args.get('block')}" if grid else "",
        step=host.step_of(args.get("correlation")),
    )


class _Host:
    """What the host's events say about the device's."""

    def __init__(self, events: Sequence[_Event], source: str) -> None:
        self.operators: dict[Any, str] = {}
        self._launched: dict[Any, float] = {}
        self._numbered: dict[int, tuple[float, float]] = {}
        for event in events:
            try:
                self._hear(event)
            except UNREADABLE as error:
                raise event.unreadable(error, source) from None
        self._steps = sorted((start, end, number) for number, (start, end) in self._numbered.items())
        self._starts = [start for start, _, _ in self._steps]

    def _hear(self, event: _Event) -> None:
        category, number = event.category, event.name.removeprefix(STEP)
        if category == "cpu_op" and "External id" in event.args:
            self.operators.setdefault(event.args["External id"], event.name)
        elif category in LAUNCHES and "correlation" in event.args:
            self._launched[event.args["correlation"]] = event.microseconds("ts")
        elif category == "user_annotation" and event.name.startswith(STEP) and number.isdecimal():
            start = event.microseconds("ts")
            self._numbered[int(number)] = (start, start + event.microseconds("dur"))

    def step_of(self, correlation: Any) -> int | None:
        """The step inside of which something was launched."""
        launched = self._launched.get(correlation)
        if launched is None:
            return None
        place = bisect.bisect_right(self._starts, launched) - 1
        if place < 0 or launched > self._steps[place][1]:
            return None
        return self._steps[place][2]
