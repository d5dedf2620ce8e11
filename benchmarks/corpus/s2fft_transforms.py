"""S2FFT: spherical harmonic transforms and Wigner transforms."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import s2fft
from s2fft.precompute_transforms import construct, spherical

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import abstract, spec

S2FFT = Catalogue("s2fft", "library", "science")
CATALOGUES = [S2FFT]
C64 = jnp.complex64


def transform(limit: int, sampling: str, *, forward: bool, batch: int = 0) -> Call:
    """A transform of spin 0 with recursions computed on the way."""
    sizes = s2fft.sampling.s2_samples.f_shape(limit, sampling) if forward else (limit, 2 * limit - 1)
    call = s2fft.forward_jax if forward else s2fft.inverse_jax
    one = partial(call, L=limit, spin=0, sampling=sampling, reality=False, precomps=None)
    return (jax.vmap(one), (spec(batch, *sizes, dtype=C64),)) if batch else (one, (spec(*sizes, dtype=C64),))


S2FFT.add("s2fft_forward_mw", partial(transform, 64, "mw", forward=True), "infer", "c64")
S2FFT.add("s2fft_inverse_mwss", partial(transform, 64, "mwss", forward=False), "infer", "c64")
S2FFT.add("s2fft_forward_batched_dh", partial(transform, 32, "dh", forward=True, batch=8), "infer", "c64")


@S2FFT.program("s2fft_precomputed_kernel_train", "train", "c64")
def _() -> Call:
    limit = 64
    kernel = construct.spin_spherical_kernel_jax(limit, 0, False, "mw", forward=True)
    apply = spherical.forward_transform_jax

    def power(signal: Any, kernel: Any) -> Any:
        one = lambda f: apply(f, kernel, limit, "mw", False, 0, None)  # noqa: E731
        return jnp.sum(jnp.abs(jax.vmap(one)(signal.astype(C64))) ** 2)

    return jax.grad(power), (spec(16, limit, 2 * limit - 1), abstract(kernel))
