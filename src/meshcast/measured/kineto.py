"""PyTorch's profiles: Chrome's trace JSON as Kineto writes it.

Device work has category `kernel`, `gpu_memcpy` or `gpu_memset`. A launch on the host has the same `correlation`, the operator
that made it the same `External id`, and it lies inside a `ProfilerStep#N` where the loop calls `profiler.step()`. NCCL's kernels
say which collective they are (`Collective name`: an all-to-all runs as sends and receives) and whose (`Process Group Ranks`); the
file says which rank wrote it (`distributedInfo`).
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from typing import Any

from meshcast.errors import InputError
from meshcast.measured.trace import MeasuredKernel, MeasuredTrace, by_start

_MICRO = 1e-6
DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
STEP = "ProfilerStep#"


def read_kineto(content: bytes, source: str) -> list[MeasuredTrace]:
    """The devices of a trace.

    Raises:
        InputError: It is no JSON, cut off, or has no device's kernels.
    """
    try:
        document = json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not whole JSON: {error}", where=source, fix="export the trace again") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError("JSON without `traceEvents`", where=source, fix="give a trace of torch.profiler")
    complete = [e for e in events if isinstance(e, dict) and e.get("ph") == "X"]
    work = [e for e in complete if str(e.get("cat", "")).lower() in DEVICE_WORK]
    if not work:
        jax = any(isinstance(e, dict) and "hlo_op" in (e.get("args") or {}) for e in complete)
        raise InputError(
            f"none of {len(complete)} events is a device's kernel (category kernel, gpu_memcpy or gpu_memset)",
            where=source,
            fix="give the .xplane.pb beside it: this is JAX's trace for viewers"
            if jax
            else "record with torch.profiler.ProfilerActivity.CUDA",
        )
    names = {
        str(p.get("id")): str(p.get("name", ""))
        for p in (document.get("deviceProperties") or () if isinstance(document, dict) else ())
        if isinstance(p, dict)
    }
    rank = _rank(document)
    host = _Host(complete)
    devices: defaultdict[str, list[MeasuredKernel]] = defaultdict(list)
    for number, event in enumerate(work):
        args = event.get("args") or {}
        try:
            kernel = _kernel(event, args, host)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(
                f"kernel {number} ({str(event.get('name'))[:60]!r}) has no readable time: {error!r}", where=source,
                fix="export the trace again: ts and dur are microseconds",
            ) from None  # fmt: skip
        devices[str(args.get("device", event.get("pid", 0)))].append(kernel)
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


def _rank(document: object) -> int | None:
    """The rank that wrote a trace, if it says so."""
    told = document.get("distributedInfo") if isinstance(document, dict) else None
    rank = told.get("rank") if isinstance(told, dict) else None
    return rank if isinstance(rank, int) else None


def _kernel(event: dict[str, Any], args: dict[str, Any], host: _Host) -> MeasuredKernel:
    start, duration = float(event["ts"]), float(event["dur"])
    grid, collective = args.get("grid"), args.get("Collective name")
    return MeasuredKernel(
        name=str(event.get("name", "")),
        start=start * _MICRO,
        duration=duration * _MICRO,
        stream=str(args.get("stream", event.get("tid", ""))),
        scope=f"nccl:{collective}" if collective else host.operators.get(args.get("External id"), ""),
        group=str(args.get("Process Group Ranks") or args.get("Process Group Name") or "") if collective else "",
        shape=f"{grid}x{args.get('block')}" if grid else "",
        step=host.step_of(args.get("correlation")),
    )


class _Host:
    """What the host's events say about the device's."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.operators: dict[Any, str] = {}
        self._launched: dict[Any, float] = {}
        steps: dict[int, tuple[float, float]] = {}
        for event in events:
            category, args, name = event.get("cat"), event.get("args") or {}, str(event.get("name", ""))
            if category == "cpu_op" and "External id" in args:
                self.operators.setdefault(args["External id"], name)
            elif category in LAUNCHES and "correlation" in args:
                self._launched[args["correlation"]] = float(event.get("ts", 0.0))
            elif category == "user_annotation" and name.startswith(STEP) and name.removeprefix(STEP).isdigit():
                start = float(event.get("ts", 0.0))
                steps[int(name.removeprefix(STEP))] = (start, start + float(event.get("dur", 0.0)))
        self._steps = sorted((start, end, number) for number, (start, end) in steps.items())
        self._starts = [start for start, _, _ in self._steps]

    def step_of(self, correlation: Any) -> int | None:
        """The step inside of which something was launched."""
        launched = self._launched.get(correlation)
        if launched is None:
            return None
        place = bisect.bisect_right(self._starts, launched) - 1
        if place < 0 or launched > self._steps[place][1]:
            return None
        return self._steps[place][2]
