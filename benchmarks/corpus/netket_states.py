"""NetKet: variational Monte Carlo of quantum states: Metropolis sampling, local energies, forces and the geometric tensor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import netket
from flax import linen
from netket.vqs.mc.kernels import local_value_kernel_jax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

NETKET = Catalogue("netket", "example", "probabilistic")
CATALOGUES = [NETKET]
FLOAT = jnp.float32


def chain(side: int) -> tuple[Any, Any]:
    """Spins on a periodic square, and the transverse-field Ising model on them, in operators that JAX traces."""
    graph = netket.graph.Square(side)
    spins = netket.hilbert.Spin(s=0.5, N=graph.n_nodes)
    return spins, netket.operator.IsingJax(hilbert=spins, graph=graph, h=3.0, J=1.0, dtype=FLOAT)


def weights(model: Any, spins: Any) -> Any:
    """The shapes of an ansatz's weights."""
    return jax.eval_shape(model.init, KEY, jnp.zeros((1, spins.size), FLOAT))


def sampling(model: Any, spins: Any, chains: int, length: int, dtype: Any = jnp.int8) -> Call:
    """A sweep of local Metropolis moves of many chains for every sample."""
    sampler = netket.sampler.MetropolisLocal(spins, n_chains=chains, sweep_size=spins.size // 4, dtype=dtype)
    held = weights(model, spins)
    state = jax.eval_shape(lambda held, key: sampler.init_state(model.apply, held, key), held, jax.random.key(0))

    def sampled(held: Any, state: Any) -> Any:
        return sampler.sample(model.apply, held, state=state, chain_length=length)

    return sampled, (held, state)


def energies(model: Any, side: int, samples: int) -> Call:
    """Local energies of samples, their mean, and the force on every weight."""
    spins, energy = chain(side)

    def forces(held: Any, drawn: Any) -> Any:
        local = local_value_kernel_jax(model.apply, held, drawn, energy)
        centred = local - jnp.mean(local)
        _, pulled = jax.vjp(lambda held: model.apply(held, drawn), held)
        return jnp.mean(local), pulled(jnp.conj(centred) / samples)[0]

    return forces, (weights(model, spins), spec(samples, spins.size))


def machine(density: int) -> Any:
    """A restricted Boltzmann machine in f32."""
    return netket.models.RBM(alpha=density, param_dtype=FLOAT)


class Convolved(linen.Module):
    """A small residual network over the square, summed into a log-amplitude."""

    side: int

    @linen.compact
    def __call__(self, spins: Any) -> Any:
        """Log-amplitudes of configurations."""
        x = spins.reshape(-1, self.side, self.side, 1).astype(FLOAT)
        x = linen.Conv(64, (3, 3), padding="CIRCULAR")(x)
        for _ in range(4):
            x = x + linen.Conv(64, (3, 3), padding="CIRCULAR")(linen.gelu(linen.LayerNorm()(x)))
        return netket.nn.log_cosh(x).sum((1, 2, 3)).reshape(spins.shape[:-1])


NETKET.add("netket_rbm_metropolis", lambda: sampling(machine(4), chain(10)[0], 2048, 4), "step")
NETKET.add("netket_resnet_metropolis", lambda: sampling(Convolved(8), chain(8)[0], 1024, 1), "step")
NETKET.add("netket_rbm_energy_forces", lambda: energies(machine(8), 12, 2048), "train")
NETKET.add("netket_resnet_energy_forces", lambda: energies(Convolved(8), 8, 512), "train")


@NETKET.program("netket_autoregressive_sampling", "infer", origin="library")
def _() -> Call:
    spins = netket.hilbert.Spin(s=0.5, N=64)
    model = netket.models.ARNNConv1D(hilbert=spins, layers=3, features=32, kernel_size=16, param_dtype=FLOAT)
    sampler = netket.sampler.ARDirectSampler(spins, dtype=FLOAT)
    held = weights(model, spins)
    state = jax.eval_shape(lambda held, key: sampler.init_state(model, held, key), held, jax.random.key(0))
    return (lambda held, state: sampler.sample(model, held, state=state, chain_length=1024)), (held, state)


@NETKET.program("netket_natural_gradient_f64", "update", "f64", origin="library")
def _() -> Call:
    model = netket.models.RBM(alpha=2, param_dtype=jnp.float64)
    spins = netket.hilbert.Spin(s=0.5, N=64)
    held = jax.eval_shape(model.init, KEY, jnp.zeros((1, 64)))

    def updated(held: Any, drawn: Any, local: Any) -> Any:
        rows = netket.jax.jacobian(model.apply, held["params"], drawn, {}, mode="real", dense=True, center=True)
        gram = rows @ rows.T / drawn.shape[0]
        solved = jnp.linalg.solve(gram + 1e-3 * jnp.eye(gram.shape[0]), local)
        return rows.T @ solved

    return updated, (held, spec(2048, spins.size, dtype=jnp.float64), spec(2048, dtype=jnp.float64))
