"""Which modules hold a library's programs, and under which name the package index knows it."""

from __future__ import annotations

MODULES: dict[str, tuple[str, ...]] = {
    "jax.lax": ("jax_lax",),
    "jax.numpy": ("jax_lax",),
    "jax.numpy.linalg": ("jax_scipy",),
    "jax.numpy.fft": ("jax_scipy",),
    "jax.scipy": ("jax_scipy",),
    "jax.random": ("jax_random",),
    "optax": ("optax_updates",),
    "keras": ("keras_models",),
    "dm-haiku": ("haiku_nets",),
    "flax.linen": ("linen_models",),
    "flax.nnx": ("nnx_models",),
    "equinox": ("equinox_models",),
    "diffrax": ("equinox_models",),
}
# Where the distribution's name is another one than the library's.
DISTRIBUTIONS = {name: "jax" for name in MODULES if name.startswith("jax.")} | {
    "flax.linen": "flax",
    "flax.nnx": "flax",
}
