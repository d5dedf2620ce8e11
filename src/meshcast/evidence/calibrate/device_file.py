"""A device file for a device that the catalogue does not have: measured rates, the rest from its nearest relative."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import write_whole
from meshcast.estimate import ProfileHeader
from meshcast.evidence.calibrate.backend import STREAMED, Backend, best_s
from meshcast.hardware import Device, catalogue

# Operand types of a device file, by those of a product; fp32 products of a GPU are made in tf32 unless told otherwise.
_PRODUCTS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "i8"}
_SIDE = {"cpu": 1024, "gpu": 8192, "tpu": 8192}
_CHAIN, _CHAINED = 64, 2**20  # multiply-adds an element, elements: arithmetic outweighs memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """The rates that were measured on a device, per second."""

    matrix: Mapping[str, float]  # FLOP/s by operand type
    vector: float  # FLOP/s in fp32
    bandwidth: float
    memory_bytes: float
    launch_s: float | None  # None where the host's dispatch hides it


def measure_rates(backend: Backend) -> MeasuredRates:
    """Times a large product of each type and a chain of multiply-adds."""
    side = _SIDE[backend.platform]
    matrix = {}
    for dtype, name in _PRODUCTS.items():
        square = jnp.ones((side, side), dtype)
        seconds = best_s(jax.jit(_product), square, runs=3) - backend.dispatch_s
        matrix["tf32" if name == "f32" and backend.platform == "gpu" else name] = 2.0 * side**3 / seconds
    elements = _CHAINED * (64 if backend.platform != "cpu" else 1)
    chain = best_s(jax.jit(_chain), jnp.ones((elements,), jnp.float32)) - backend.dispatch_s
    return MeasuredRates(
        matrix=matrix,
        vector=2.0 * _CHAIN * elements / chain,
        bandwidth=_bandwidth(backend),
        memory_bytes=backend.memory_bytes if backend.platform != "cpu" else backend.host_bytes,
        launch_s=backend.dispatch_s if backend.platform == "cpu" else None,
    )


def _bandwidth(backend: Backend) -> float:
    """Bytes a second of an array changed in place: a fresh result's first touch is the operating system's time."""
    change = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    line = change(jnp.ones((STREAMED[backend.platform],), jnp.float32))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        line = jax.block_until_ready(change(line))
        times.append(time.perf_counter() - start)
    return 8.0 * STREAMED[backend.platform] / (min(times) - backend.dispatch_s)


def _product(x: Any) -> Any:
    wide = jnp.int32 if x.dtype == jnp.int8 else x.dtype
    return jax.lax.dot_general(x, x, (((1,), (0,)), ((), ())), preferred_element_type=wide)


def _chain(x: Any) -> Any:
    total = x
    for _ in range(_CHAIN):
        total = total * x + 0.5
    return total


def relative(rates: MeasuredRates, kind: str) -> Device:
    """The device of the catalogue, of the same kind, that is nearest in products and bandwidth, by ratios."""

    def distance(device: Device) -> float:
        shared = [name for name in rates.matrix if name in device.matrix_flops]
        apart = [abs(math.log(device.matrix_flops[name] / rates.matrix[name])) for name in shared]
        peaks = sum(apart) / len(apart) if apart else math.inf
        return peaks + abs(math.log(device.memory_bandwidth / rates.bandwidth))

    return min((device for device in catalogue().devices if device.kind == kind), key=distance)


def device_toml(rates: MeasuredRates, header: ProfileHeader) -> str:
    """The file's text: every number that was measured, and the relative that the others come from."""
    base = relative(rates, header.backend)
    lines = [
        'schema = "meshcast.device/1"',
        f'name = "{header.device}"',
        f'base = "{base.name}"',
        f'title = "{header.kind}"',
        f'notes = "Rates were measured; cores, clocks, cache and power are those of {base.name}."',
        "",
        "[matrix]",
        *(_fact(name, f"{value / 1e9:.4g} GFLOP/s") for name, value in rates.matrix.items()),
        "",
        "[vector]",
        _fact("f32", f"{rates.vector / 1e9:.4g} GFLOP/s"),
        "",
        "[memory]",
        _fact("capacity", f"{rates.memory_bytes / 2**30:.4g} GiB"),
        _fact("bandwidth", f"{rates.bandwidth / 1e9:.4g} GB/s"),
    ]
    if rates.launch_s is not None:
        lines += ["", "[compute]", _fact("launch_latency", f"{rates.launch_s * 1e6:.3g} us")]
    lines += [
        "",
        "[sources.measured]",
        f'title = "Measured by meshcast calibrate on {header.date}"',
        f'note = "jax {header.jax}, jaxlib {header.jaxlib}: the shortest of some runs, less the time of an empty program."',
    ]
    return "\n".join(lines) + "\n"


def _fact(name: str, text: str) -> str:
    return f'{name} = {{ value = "{text}", source = "measured" }}'


def write_device_file(path: Path, backend: Backend, header: ProfileHeader) -> None:
    """Measures the rates and writes them.

    Raises:
        UsageError: The file cannot be written.
        OutputError: The disk is full.
    """
    write_whole(path, device_toml(measure_rates(backend), header))
