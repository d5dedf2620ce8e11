"""Small traces, written as each profiler writes them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax.profiler import ProfileData

from meshcast.evidence.profiler import MeasuredKernel, MeasuredTrace

Event = tuple[str, float, float, Mapping[str, str]]  # name, start and duration in nanoseconds, stats
Plane = Mapping[str, Sequence[Event]]  # events by line


def xspace(planes: Mapping[str, Plane]) -> bytes:
    """A JAX profile: events by line by plane."""
    texts = []
    for plane, lines in planes.items():
        events = [event for line in lines.values() for event in line]
        names = sorted({event[0] for event in events})
        stats = sorted({key for event in events for key in event[3]})
        body = "".join(
            f"lines {{ id: {number} name: {json.dumps(line)} timestamp_ns: 0 "
            + "".join(_xevent(event, names, stats) for event in content)
            + "}\n"
            for number, (line, content) in enumerate(lines.items())
        )
        body += "".join(
            f"event_metadata {{ key: {i + 1} value {{ id: {i + 1} name: {json.dumps(name)} }} }}\n"
            for i, name in enumerate(names)
        )
        body += "".join(
            f"stat_metadata {{ key: {i + 1} value {{ id: {i + 1} name: {json.dumps(name)} }} }}\n"
            for i, name in enumerate(stats)
        )
        texts.append(f"planes {{ name: {json.dumps(plane)}\n{body} }}\n")
    return bytes(ProfileData.text_proto_to_serialized_xspace("".join(texts)))


def _xevent(event: Event, names: list[str], stats: list[str]) -> str:
    name, start, duration, values = event
    own = "".join(
        f"stats {{ metadata_id: {stats.index(key) + 1} str_value: {json.dumps(value)} }} "
        for key, value in values.items()
    )
    return (
        f"events {{ metadata_id: {names.index(name) + 1} offset_ps: {round(start * 1e3)} "
        f"duration_ps: {round(duration * 1e3)} {own} }} "
    )


def kineto(events: Iterable[dict[str, Any]], *, compressed: bool = False) -> bytes:
    """A PyTorch trace."""
    properties = [{"id": 0, "name": "NVIDIA H200"}]
    content = json.dumps({"deviceProperties": properties, "traceEvents": list(events)}).encode()
    return gzip.compress(content) if compressed else content


def kernel_event(name: str, start: float, duration: float, **args: Any) -> dict[str, Any]:
    """A kernel of a PyTorch trace, in microseconds."""
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    device = args.setdefault("device", 0)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": device,
        "tid": 7,
        "ts": start,
        "dur": duration,
        "args": {"stream": 7, **args},
    }


def trace(names: Iterable[str], *, seconds: float = 1.0, gap: float = 0.0) -> MeasuredTrace:
    """Kernels of equal length, one after the other."""
    kernels = tuple(
        MeasuredKernel(name=name, start=i * (seconds + gap), duration=seconds) for i, name in enumerate(names)
    )
    return MeasuredTrace(source="trace", format="kineto", device="GPU:0", kernels=kernels)
