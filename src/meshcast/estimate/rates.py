"""Which peak a kernel's arithmetic runs at: by the operands' type and the requested precision, per device kind."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from meshcast.base import UnsupportedError
from meshcast.hardware import Device
from meshcast.lower import Kernel
from meshcast.workload import Attention, Convolution, Gemm


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """FLOP/s, the catalogue's key it came from, and whether that is a stand-in for a type the engine lacks."""

    flops: float
    key: str
    stand_in: bool = False

    @property
    def on_tensor_cores(self) -> bool:
        """Whether units for matrices run it, and not those for vectors."""
        return not self.key.startswith("vector")

    @property
    def type(self) -> str:
        """The catalogue's key alone, of products in several passes too."""
        return self.key.partition("/")[0]


# Types an engine lacks are computed in the next wider one it has (a conversion on the way in).
_WIDENED = {
    "f4": "f8", "f6": "f8", "f8": "bf16", "bf16": "f16", "i2": "i4", "i4": "i8", "i8": "bf16", "tf32": "f32",
}  # fmt: skip
# XLA:TPU computes f32 products as 1, 3 or 6 passes of bf16, by requested precision, and f16 ones after the same conversion.
_TPU_PASSES = {"DEFAULT": 1, "HIGH": 3, "HIGHEST": 6}
_ALGORITHM = re.compile(r"(?P<operand>[A-Z0-9]+)_.*?(?:_X(?P<passes>\d+))?(?:_FAST_ACCUM)?$")


@functools.cache
def catalogue_key(dtype: str) -> str:
    """The catalogue's name of an MLIR element type: `f8E4M3FN` is f8, `ui8` is i8, a predicate counts as i32."""
    if dtype.startswith("complex<"):
        return dtype[8:-1]
    if dtype[:3].lower() in ("f8e", "f6e", "f4e"):  # and not f64
        return dtype[:2]
    if dtype.startswith(("ui", "si")):
        dtype = "i" + dtype[2:]
    return {"i1": "i32", "i16": "i32", "i64": "i32"}.get(dtype, dtype)


def matrix_rate(kernel: Kernel, device: Device) -> Rate:
    """The dense peak of a GEMM-like kernel: by its operands' type, not the accumulator's.

    f32 products at default precision run as one bf16 pass on TPUs and as TF32 on GPUs that have it: XLA lets the
    libraries use it unless the highest precision is asked for. A dot algorithm (`BF16_BF16_F32_X3`) says type and
    passes itself.
    """
    key = catalogue_key(kernel.dtype)
    precision = "DEFAULT"
    if isinstance(kernel.geometry, (Gemm, Convolution)):
        precision = kernel.geometry.precision
    passes = 1
    if "_" in precision:
        algorithm = _ALGORITHM.match(precision)
        if algorithm:
            key, passes = catalogue_key(algorithm["operand"].lower()), int(algorithm["passes"] or 1)
        precision = "HIGHEST"
    if device.kind == "tpu" and key in ("f32", "f16"):
        key, passes = "bf16", _TPU_PASSES[precision]
    elif key == "f32" and device.kind == "gpu" and precision != "HIGHEST" and "tf32" in device.matrix_flops:
        key = "f32" if isinstance(kernel.geometry, Attention) else "tf32"
    rate = _rate(key, device)
    return replace(rate, flops=rate.flops / passes, key=f"{rate.key}/{passes}") if passes > 1 else rate


def fastest_product(dtype: str, device: Device) -> float:
    """FLOP/s that no product of a type exceeds: one pass at the device's highest clock; a peak is quoted below it."""
    key = catalogue_key(dtype)
    if device.kind == "tpu" and key in ("f32", "f16"):
        key = "bf16"
    elif key == "f32" and "tf32" in device.matrix_flops:
        key = "tf32"
    return _rate(key, device).flops * max(1.0, device.clock_hz / device.peak_clock_hz)


def _rate(key: str, device: Device) -> Rate:
    wanted = key
    while key not in device.matrix_flops:
        if key in device.vector_flops and key not in _WIDENED:
            return Rate(flops=device.vector_flops[key], key=f"vector {key}", stand_in=key != wanted)
        if key not in _WIDENED:
            if key in ("f16", "f32", "i32") and "f32" in device.vector_flops:
                return Rate(flops=device.vector_flops["f32"], key="vector f32", stand_in=key != wanted)
            raise UnsupportedError(
                f"{device.name} has no rate for {wanted} arithmetic",
                where=device.name,
                fix="add it to the device's file",
            )
        key = _WIDENED[key]
    return Rate(flops=device.matrix_flops[key], key=key, stand_in=key != wanted)


def vector_rate(dtype: str, device: Device) -> float:
    """FLOP/s of the vector units; types without a rate of their own run at f32's (f64's for f64)."""
    key = catalogue_key(dtype) if dtype else "f32"
    if key in device.vector_flops:
        return device.vector_flops[key]
    if key == "f64":
        raise UnsupportedError(
            f"{device.name} has no f64 rate", where=device.name, fix="use f32, or add it to the device's file"
        )
    return device.vector_flops["f32"]


def transcendental_rate(device: Device) -> float:
    """exp, log, rsqrt ... per second; a quarter of the f32 rate where the file does not say."""
    return device.transcendental_rate or device.vector_flops["f32"] / 4
