"""The device that JAX found: its name in the catalogue, what it does in a second, how much it holds."""

from __future__ import annotations

import datetime
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import VERSION as MESHCAST
from meshcast.base import UnsupportedError
from meshcast.estimate import ProfileHeader
from meshcast.evidence.calibrate.suite import VERSION
from meshcast.hardware import DRIVER_NAMES

_PRODUCT = {"gpu": (4096, "bfloat16"), "tpu": (4096, "bfloat16"), "cpu": (1024, "float32")}
STREAMED = {"gpu": 2**28, "tpu": 2**27, "cpu": 2**24}  # elements of fp32: well beyond the caches
_HOST_SHARE = 0.1  # of a machine's memory, where the backend does not say what it may use


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What to measure on, and how fast it is, roughly: to leave out what would take too long."""

    platform: str  # cpu, gpu or tpu
    kind: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: float  # what probes may use of it
    host_bytes: float  # of the machine's own memory
    dispatch_s: float  # of an empty program, until its result is there

    @property
    def slowest_s(self) -> float:
        """How long one run of a probe may take.

        It bounds a session: so long a probe runs five times (`measuring`), so that the suite's 2,600 take nine minutes of
        an accelerator's time at most and the 600 of a CPU two and a half. Larger kernels are left to extrapolation.
        """
        return 0.05 if self.platform == "cpu" else 0.04

    def guess_s(self, flops: float, moved: float) -> float:
        """A run's time at the measured rates: the sum, as this is to be an upper bound."""
        return flops / self.flops_per_s + moved / self.bytes_per_s


def find_backend() -> Backend:
    """Asks JAX, and times a product and a sum of arrays.

    Raises:
        UnsupportedError: There is no backend here that probes run on.
    """
    device = jax.devices()[0]
    name = {"cuda": "gpu", "rocm": "gpu"}.get(device.platform, device.platform)
    if name not in _PRODUCT:
        raise UnsupportedError(f"no probes for the backend {device.platform!r}", fix="a CPU, a GPU or a TPU is needed")
    size, dtype = _PRODUCT[name]
    square = jnp.full((size, size), 0.01, dtype)
    line = jnp.ones((STREAMED[name],), jnp.float32)
    empty = best_s(jax.jit(lambda x: x + 1), jnp.zeros((), jnp.float32), runs=50)
    product = best_s(jax.jit(lambda x: x @ x), square) - empty
    stream = best_s(jax.jit(lambda x: x * 2 + 1), line) - empty
    stats = device.memory_stats() or {}
    host = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = float(stats.get("bytes_limit", 0)) or host * _HOST_SHARE
    return Backend(
        platform=name,
        kind=device.device_kind if name != "cpu" else _processor(),
        flops_per_s=2.0 * size**3 / product,
        bytes_per_s=8.0 * STREAMED[name] / stream,
        memory_bytes=limit,
        host_bytes=host,
        dispatch_s=empty,
    )


def best_s(function: Callable[..., Any], *args: Any, runs: int = 5) -> float:
    """The shortest of some runs, after one that compiles."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def is_alive() -> bool:
    """Whether the device still runs programs: after some failures none does any more."""
    try:
        jax.block_until_ready(jnp.zeros((8,), jnp.float32) + 1)
    except Exception:  # whatever the backend raises
        return False
    return True


def _processor() -> str:
    """What a CPU calls itself, with its cores: JAX says no more than `cpu`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _driver() -> str:
    """The version of NVIDIA's kernel driver; empty where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return found[0] if found else ""


def device_name(kind: str) -> str:
    """A name for a device: the catalogue's, or one made of what the backend calls it."""
    plain = re.sub(r"\((?:R|TM|C)\)", "", kind, flags=re.IGNORECASE)
    return DRIVER_NAMES.get(kind) or re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def describe(backend: Backend, *, name: str | None) -> ProfileHeader:
    """A profile's header for this device; `name` says what to call it where the catalogue does not know it."""
    from jaxlib.version import __version__ as jaxlib_version

    return ProfileHeader(
        device=name or device_name(backend.kind),
        kind=backend.kind,
        backend=backend.platform,
        suite=VERSION,
        jax=jax.__version__,
        jaxlib=jaxlib_version,
        platform=" ".join(jax.devices()[0].client.platform_version.split()),
        driver=_driver() if backend.platform == "gpu" else "",
        meshcast=MESHCAST,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        limits={
            "flops_per_s": backend.flops_per_s,
            "bytes_per_s": backend.bytes_per_s,
            "memory_bytes": backend.memory_bytes,
            "dispatch_s": backend.dispatch_s,
        },
    )
