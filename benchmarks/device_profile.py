"""What a GPU ran, launch by launch, from JAX's profiler: what the scripts beside this one measure kernels by."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax


class DeviceLaunch(NamedTuple):
    """A launch on a stream of a GPU."""

    kernel: str
    op: str  # the instruction of the compiled program that it is of; empty where the profile does not say
    start_ns: float
    end_ns: float

    @property
    def us(self) -> float:
        """Microseconds that it ran."""
        return (self.end_ns - self.start_ns) / 1e3


def profiled(run: Callable[[], object]) -> list[DeviceLaunch]:
    """Launches of what `run` starts and waits for, stream by stream; none where the profile shows no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        return [launch for file in files for launch in launches(jax.profiler.ProfileData.from_file(str(file)))]


def launches(data: jax.profiler.ProfileData) -> list[DeviceLaunch]:
    """Launches on the streams of a profile's GPUs."""
    lines = [line for plane in data.planes if plane.name.startswith("/device:GPU") for line in plane.lines]
    return [
        DeviceLaunch(
            kernel=event.name,
            op=str(dict(event.stats).get("hlo_op", "")),
            start_ns=event.start_ns,
            end_ns=event.start_ns + event.duration_ns,
        )
        for line in lines
        if line.name.startswith("Stream")
        for event in line.events
    ]


def by_kernel(found: list[DeviceLaunch]) -> dict[str, list[float]]:
    """Microseconds of each kernel's launches."""
    times: dict[str, list[float]] = {}
    for launch in found:
        times.setdefault(launch.kernel, []).append(launch.us)
    return times
