"""JAX's profiles (`*.xplane.pb`), read by jaxlib itself.

GPUs have a line for each stream, whose events carry `hlo_op` and `hlo_module`; inside a CUDA graph `hlo_op` is the graph's and
the kernel's own name says which fusion it is. TPUs have a line "XLA Ops", in which loops lie around what they run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from meshcast.base import InputError
from meshcast.evidence.profiler.trace import MeasuredKernel, MeasuredTrace, by_start

_NANO = 1e-9
_GRAPH = re.compile(r"command_buffer")
_INSTRUCTION = re.compile(r"^%?([\w.\-]+) = ")
_GRID = re.compile(r"grid:([\d,]+) block:([\d,]+)")
TPU_LINES = ("XLA Ops", "Async XLA Ops")


def read_xplane(content: bytes, source: str) -> list[MeasuredTrace]:
    """The devices of a profile.

    Raises:
        InputError: It is cut off or no profile, or no device's kernels are in it.
    """
    # Imported here: traces of others are read without paying for jax.
    from jax.profiler import ProfileData

    try:
        planes = list(ProfileData.from_serialized_xspace(content).planes)
    except RuntimeError as error:
        raise InputError(
            f"not a whole XSpace message of {len(content)} bytes ({error})",
            where=source,
            fix="give the .xplane.pb that jax.profiler wrote, after stop_trace has returned",
        ) from None
    found = []
    for plane in planes:
        if not plane.name.startswith("/device:"):
            continue
        try:
            kernels = _kernels(plane)
        except ValueError as error:  # a time or a name that is none
            raise InputError(
                f"an event of {plane.name} cannot be read: {error}",
                where=source,
                fix="record again: events have a start and a duration of zero or more nanoseconds, and names in UTF-8",
            ) from None
        if kernels:
            stats = dict(plane.stats)
            name = str(stats.get("gpu_device_name") or stats.get("device_type_string") or "")
            device = plane.name.removeprefix("/device:")
            found.append(
                MeasuredTrace(
                    source=source, format="xplane", device=device, device_name=name, kernels=by_start(kernels)
                )
            )
    if not found:
        names = ", ".join(plane.name for plane in planes) or "none"
        raise InputError(
            f"no kernels of a GPU or TPU in this profile (planes: {names})",
            where=source,
            fix="profile a program that runs on a device; JAX on a CPU leaves no kernels",
        )
    return found


def _kernels(plane: Any) -> list[MeasuredKernel]:
    if "TPU" in plane.name:
        lines = [line for line in plane.lines if line.name in TPU_LINES]
        return [_tpu_kernel(event, line.name) for line in lines for event in _leaves(line.events)]
    lines = [line for line in plane.lines if line.name.startswith("Stream")]
    return [_gpu_kernel(event, line.name.partition("(")[0]) for line in lines for event in line.events]


def _gpu_kernel(event: Any, stream: str) -> MeasuredKernel:
    stats = dict(event.stats)
    op = str(stats.get("hlo_op", ""))
    details = str(stats.get("kernel_details") or stats.get("memcpy_details") or "")
    grid = _GRID.search(details)
    return MeasuredKernel(
        name=event.name,
        start=event.start_ns * _NANO,
        duration=event.duration_ns * _NANO,
        stream=stream,
        op="" if _GRAPH.match(op) else op,
        module=str(stats.get("hlo_module", "")),
        scope=str(stats.get("name", "")),
        shape=f"{grid[1]}x{grid[2]}" if grid else "",
    )


def _tpu_kernel(event: Any, stream: str) -> MeasuredKernel:
    stats = dict(event.stats)
    match = _INSTRUCTION.match(event.name)
    op = str(stats.get("hlo_op") or (match[1] if match else event.name))
    return MeasuredKernel(
        name=op,
        start=event.start_ns * _NANO,
        duration=event.duration_ns * _NANO,
        stream=stream,
        op=op,
        module=str(stats.get("hlo_module", "")),
        scope=str(stats.get("tf_op", "")),
    )


def _leaves(events: Iterable[Any]) -> list[Any]:
    """Events that no other lies inside: of a loop, what it runs."""
    ordered = sorted(events, key=lambda event: (event.start_ns, -event.duration_ns))
    return [
        event
        for event, after in zip(ordered, [*ordered[1:], None], strict=True)
        if after is None or after.start_ns >= event.start_ns + event.duration_ns or not after.duration_ns
    ]
