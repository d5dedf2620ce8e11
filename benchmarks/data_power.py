"""Measures what data do to the power and the clock of the GPU that JAX finds: the same kernels on random numbers, zeros and ones.

    python benchmarks/data_power.py OUT.jsonl [--seconds 3] [--only f8]

A line a kernel and kind of data: the time of a run, the mean power while it ran again and again (from the counter of energy), and
the clock at the end. Nothing but jax and the library of NVML is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("random", "zeros", "ones", "half_zeros")
SM_CLOCK = 1  # NVML_CLOCK_SM
WARM_S = 0.5


class Meter:
    """NVML's counters of the first GPU."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._nvml.nvmlInit_v2()
        self._device = ctypes.c_void_p()
        self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device))

    def joules(self) -> float:
        """Energy since the driver was loaded."""
        millijoules = ctypes.c_ulonglong()
        self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(millijoules))
        return millijoules.value / 1e3

    def clock_mhz(self) -> int:
        """The clock of the SMs now."""
        mhz = ctypes.c_uint()
        self._nvml.nvmlDeviceGetClockInfo(self._device, SM_CLOCK, ctypes.byref(mhz))
        return mhz.value


def data(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """An array of a kind of data."""
    import jax
    import jax.numpy as jnp

    random = jax.random.normal(jax.random.key(seed, impl="rbg"), shape, jnp.float32)
    made = {"random": random, "zeros": random * 0, "ones": random * 0 + 1, "half_zeros": jnp.maximum(random, 0)}[kind]
    return jax.block_until_ready((made * 100).astype(dtype) if dtype == "int8" else made.astype(dtype))


def kernels() -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]]:
    """Functions with the shapes and the type of their arguments."""
    import jax.numpy as jnp

    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, preferred_element_type=jnp.int32 if a.dtype == jnp.int8 else None)

    def scaled_product(a: Any, b: Any) -> Any:
        return (a.astype(jnp.bfloat16) * jnp.bfloat16(0.5)) @ (
            b.astype(jnp.bfloat16) * jnp.bfloat16(0.5)
        )  # as fp8 is asked for

    square = ((8192, 8192), (8192, 8192))
    return {
        "product bf16 8192": (product, square, "bfloat16"),
        "product bf16 16384x1024x16384": (product, ((16384, 1024), (1024, 16384)), "bfloat16"),
        "product f32 8192": (product, square, "float32"),
        "product int8 8192": (product, square, "int8"),
        "product f8 4096": (scaled_product, ((4096, 4096), (4096, 4096)), "float8_e4m3fn"),
        "product f8 8192": (scaled_product, square, "float8_e4m3fn"),
        "product f8 16384": (scaled_product, ((16384, 16384), (16384, 16384)), "float8_e4m3fn"),
        "add bf16 2^29": (lambda a, b: a + b, ((1 << 29,), (1 << 29,)), "bfloat16"),
        "sum f32 2^28": (lambda a: a.sum(axis=-1), ((1 << 14, 1 << 14),), "float32"),
    }


def main() -> None:
    """Measures all and writes the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    asked = parser.parse_args()
    import jax

    meter = Meter()
    with asked.out.open("w") as file:
        for name, (function, shapes, dtype) in kernels().items():
            if asked.only not in name:
                continue
            run = jax.jit(function)
            for kind in KINDS:
                args = [data(kind, shape, dtype, seed) for seed, shape in enumerate(shapes)]

                def ran(seconds: float, run: Any = run, args: list[Any] = args) -> tuple[int, float]:
                    count, start = 0, time.perf_counter()
                    while time.perf_counter() - start < seconds:
                        for _ in range(20):
                            result = run(*args)
                        jax.block_until_ready(result)
                        count += 20
                    return count, time.perf_counter() - start

                ran(WARM_S)
                joules = meter.joules()
                count, seconds = ran(asked.seconds)
                watts = (meter.joules() - joules) / seconds
                row = {
                    "kernel": name,
                    "data": kind,
                    "us": seconds / count * 1e6,
                    "watts": watts,
                    "clock_mhz": meter.clock_mhz(),
                }
                print(row, flush=True)
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
