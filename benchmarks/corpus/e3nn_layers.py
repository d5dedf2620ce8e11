"""e3nn-jax: equivariant products, convolutions and harmonics."""

from __future__ import annotations

from typing import Any

import e3nn_jax as e3nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.corpus.haiku_nets import inference, step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, integers, spec

E3NN = Catalogue("e3nn-jax", "library", "graph")
CATALOGUES = [E3NN]


@E3NN.program("e3nn_tensor_product_infer", "infer")
def _() -> Call:
    def product(x: Any, y: Any) -> Any:
        left, right = e3nn.IrrepsArray("32x0e + 32x1o + 16x2e", x), e3nn.IrrepsArray("1x0e + 1x1o + 1x2e", y)
        return e3nn.tensor_product(left, right).array

    return product, (spec(16384, 32 + 96 + 80), spec(16384, 9))


@E3NN.program("e3nn_spherical_harmonics_forces", "infer")
def _() -> Call:
    def energy(places: Any, senders: Any, receivers: Any) -> Any:
        edges = e3nn.IrrepsArray("1o", places[receivers] - places[senders])
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e + 3o + 4e", edges, normalize=True, normalization="component")
        lengths = jnp.sqrt(jnp.sum(edges.array**2, -1) + 1e-9)
        radial = e3nn.bessel(lengths, 8, 5.0) * e3nn.poly_envelope(5, 2)(lengths / 5.0)[:, None]
        return jnp.sum(e3nn.norm(harmonics).array.sum(-1) * radial.sum(-1))

    return jax.value_and_grad(energy), (spec(8192, 3), integers(8192, 131072), integers(8192, 131072))


class Convolution(hk.Module):
    """An equivariant convolution: messages by tensor products with harmonics, radially weighted and summed at the receivers."""

    def __call__(self, features: Any, harmonics: Any, radial: Any, senders: Any, receivers: Any, out: str) -> Any:
        """New features of the nodes."""
        messages = e3nn.concatenate([features[senders], e3nn.tensor_product(features[senders], harmonics)])
        messages = messages.filter(out)
        mix = hk.nets.MLP([64, messages.irreps.num_irreps])(radial)
        messages = messages * mix
        total = e3nn.scatter_sum(messages, dst=receivers, output_size=features.shape[0]) / 4.0
        return e3nn.haiku.Linear(out)(total)


def potential(places: Any, kinds: Any, senders: Any, receivers: Any) -> Any:
    """The energy of atoms by two equivariant convolutions."""
    edges = e3nn.IrrepsArray("1o", places[receivers] - places[senders])
    harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", edges, normalize=True)
    lengths = jnp.sqrt(jnp.sum(edges.array**2, -1) + 1e-9)
    radial = e3nn.bessel(lengths, 8, 5.0)
    features = e3nn.IrrepsArray("16x0e", hk.Embed(10, 16)(kinds))
    for out in ("32x0e + 16x1o + 8x2e", "32x0e"):
        features = Convolution()(features, harmonics, radial, senders, receivers, out)
        features = e3nn.gate(features) if out == "32x0e" else features
    return jnp.sum(hk.Linear(1)(features.array))


ATOMS = (spec(2048, 3), integers(10, 2048), integers(2048, 32768), integers(2048, 32768))


@E3NN.program("e3nn_potential_forces_infer", "infer", origin="example")
def _() -> Call:
    return inference(lambda *atoms: jax.grad(potential)(*atoms), *ATOMS)


@E3NN.program("e3nn_potential_train", "train", origin="example")
def _() -> Call:
    return step(lambda *atoms: jnp.square(potential(*atoms)), *ATOMS, optimizer=optax.adam(1e-3))


@E3NN.program("e3nn_gate_norm_activation", "infer", origin="helper")
def _() -> Call:
    def activated(x: Any) -> Any:
        features = e3nn.IrrepsArray("64x0e + 16x0e + 16x1o", x)
        return e3nn.gate(features).array, e3nn.norm_activation(features, [jnp.tanh] * 3).array

    return activated, (spec(65536, 64 + 16 + 48),)


@E3NN.program("e3nn_rotations_wigner", "step", group="science", origin="helper")
def _() -> Call:
    def rotated(key: Any, x: Any) -> Any:
        features = e3nn.IrrepsArray("8x0e + 8x1o + 8x2e + 8x3o", x)
        angles = e3nn.rand_angles(key, (x.shape[0],))
        return jax.vmap(lambda f, a, b, c: f.transform_by_angles(a, b, c).array)(features, *angles)

    return rotated, (KEY, spec(4096, 8 * 16))


@E3NN.program("e3nn_to_s2grid_activation", "infer", origin="helper")
def _() -> Call:
    def on_grid(x: Any) -> Any:
        features = e3nn.IrrepsArray(e3nn.s2_irreps(6), x)
        signal = e3nn.to_s2grid(features, 32, 33, quadrature="gausslegendre", p_val=1, p_arg=-1)
        return e3nn.from_s2grid(signal.apply(jax.nn.silu), e3nn.s2_irreps(6)).array

    return on_grid, (spec(4096, 49),)
