"""Fourier transforms: complex, of reals and back, one to three dimensions; powers of two, small factors, primes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 110
MOST_ELEMENTS = 2**25
_LENGTHS = (
    16,
    33,
    64,
    100,
    128,
    200,
    256,
    360,
    384,
    400,
    512,
    720,
    768,
    1000,
    1024,
    1536,
    2048,
    2187,
    4096,
    6000,
    8192,
)
_LONG = (16384, 20000, 32768, 44100, 65536, 131072, 262144, 1048576)
_ODD = (31, 97, 127, 251, 509, 1009, 4099, 22051)
OPS: dict[str, Callable[..., Any]] = {
    "fft": jnp.fft.fftn,
    "ifft": jnp.fft.ifftn,
    "rfft": jnp.fft.rfftn,
    "irfft": jnp.fft.irfftn,
}
Spec = jax.ShapeDtypeStruct


def build(op: str, batch: int, n: int, dims: int = 1) -> ProbeBody:
    """`batch` transforms of side `n` in f32 or complex64."""
    sides = (n,) * dims
    axes = tuple(range(1, dims + 1))
    if op == "rfft":
        x = Spec((batch, *sides), jnp.float32)
        return ProbeBody(function=lambda a: jnp.fft.rfftn(a, axes=axes), args=(x,))
    # Complex arguments are made of two real ones: numbers that a probe is given are real.
    last = n // 2 + 1 if op == "irfft" else n
    part = Spec((batch, *sides[:-1], last), jnp.float32)

    def transform(real: Any, imaginary: Any) -> Any:
        given = jax.lax.complex(real, imaginary)
        return jnp.fft.irfftn(given, s=sides, axes=axes) if op == "irfft" else OPS[op](given, axes=axes)

    return ProbeBody(function=transform, args=(part, part))


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("fourier/1")
    names = list(OPS)
    made = 0
    while made < COUNT:
        dims = draw.pick((1, 1, 1, 2, 2, 3))
        n = draw.pick(_LENGTHS if dims > 1 else (*_LENGTHS, *_LENGTHS, *_LONG, *_ODD))
        batch = draw.pick((1, 1, draw.log_uniform(1, 65536)))
        if not 256 <= batch * math.prod((n,) * dims) <= MOST_ELEMENTS:
            continue
        settings: Settings = {"op": names[made % len(names)], "batch": batch, "n": n}
        made += 1
        yield settings | ({"dims": dims} if dims > 1 else {})
