"""Which module holds a library's programs, and under which name the package index knows it."""

from __future__ import annotations

MODULES: dict[str, str] = {
    "jax.lax": "jax_lax",
    "jax.numpy": "jax_lax",
    "jax.numpy.linalg": "jax_scipy",
    "jax.numpy.fft": "jax_scipy",
    "jax.scipy": "jax_scipy",
    "jax.random": "jax_random",
    "optax": "optax_updates",
    "keras": "keras_models",
    "keras-hub": "keras_hub_models",
    "dm-haiku": "haiku_nets",
    "flax.linen": "linen_models",
    "flax.nnx": "nnx_models",
    "equinox": "equinox_nets",
    "diffrax": "diffrax_solvers",
    "jraph": "jraph_networks",
    "e3nn-jax": "e3nn_layers",
    "lineax": "lineax_solvers",
    "optimistix": "optimistix_solvers",
    "jaxopt": "jaxopt_solvers",
    "evosax": "evosax_strategies",
    "numpyro": "numpyro_models",
    "blackjax": "blackjax_kernels",
    "distrax": "distrax_flows",
    "tensorflow-probability": "tfp_models",
    "tinygp": "tinygp_models",
    "flowjax": "flowjax_flows",
    "rlax": "rlax_losses",
    "mctx": "mctx_search",
    "pgx": "pgx_games",
    "jumanji": "jumanji_environments",
    "gymnax": "gymnax_environments",
    "brax": "brax_environments",
    "mujoco-mjx": "mjx_models",
    "jax-md": "jaxmd_simulations",
    "jax-cfd": "jaxcfd_flows",
    "s2fft": "s2fft_transforms",
}
# Where the distribution's name is another one than the library's.
DISTRIBUTIONS = {name: "jax" for name in MODULES if name.startswith("jax.")}
DISTRIBUTIONS |= {"flax.linen": "flax", "flax.nnx": "flax", "tensorflow-probability": "tfp-nightly"}
