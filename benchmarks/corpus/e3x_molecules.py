"""E3x: energies and forces of batches of molecules by equivariant message passing, trained and evaluated."""

from __future__ import annotations

from typing import Any

import e3x
import jax
import jax.numpy as jnp
import optax
from flax import linen

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, integers, spec, training

E3X = Catalogue("e3x", "example", "graph")
CATALOGUES = [E3X]


class Potential(linen.Module):
    """The energy of every molecule of a batch, after the library's example of a machine-learned potential."""

    features: int
    degree: int
    iterations: int
    molecules: int

    @linen.compact
    def __call__(self, places: Any, numbers: Any, receivers: Any, senders: Any, molecule: Any) -> Any:
        """Minus the sum of the energies, whose gradient is the forces, and the energies."""
        between = e3x.ops.gather_src(places, src_idx=senders) - e3x.ops.gather_dst(places, dst_idx=receivers)
        basis = e3x.nn.basis(
            between,
            num=16,
            max_degree=self.degree,
            radial_fn=e3x.nn.reciprocal_bernstein,
            cutoff_fn=lambda r: e3x.nn.smooth_cutoff(r, cutoff=5.0),
        )
        x = e3x.nn.Embed(num_embeddings=100, features=self.features)(numbers)
        for _ in range(self.iterations):
            y = e3x.nn.MessagePass(max_degree=self.degree)(x, basis, dst_idx=receivers, src_idx=senders)
            y = e3x.nn.silu(e3x.nn.Dense(self.features)(e3x.nn.add(x, y)))
            x = e3x.nn.add(x, e3x.nn.Dense(self.features)(y))
        atoms = linen.Dense(1)(e3x.nn.change_max_degree_or_type(x, max_degree=0, include_pseudotensors=False))
        energies = jax.ops.segment_sum(atoms.reshape(-1), molecule, num_segments=self.molecules)
        return -jnp.sum(energies), energies


def batch(model: Potential, atoms: int, pairs: int) -> tuple[Any, ...]:
    """Places, atomic numbers, the two ends of every pair, and each atom's molecule."""
    total = model.molecules * atoms
    ends = integers(total, model.molecules * pairs)
    return spec(total, 3), integers(90, total), ends, ends, integers(model.molecules, total)


def weights(model: Potential, data: tuple[Any, ...]) -> Any:
    """The shapes of the weights."""
    return jax.eval_shape(model.init, KEY, *data)


@E3X.program("e3x_potential_train", "train")
def _() -> Call:
    model = Potential(features=64, degree=2, iterations=3, molecules=32)
    data = batch(model, 24, 552)

    def loss(held: Any, energies: Any, forces: Any, *data: Any) -> Any:
        found = jax.value_and_grad(lambda places: model.apply(held, places, *data[1:]), has_aux=True)
        (_, energy), force = found(data[0])
        return jnp.mean(jnp.square(energy - energies)) + jnp.mean(jnp.square(force - forces))

    return training(loss, weights(model, data), (spec(32), spec(32 * 24, 3), *data), optax.adam(1e-3))


@E3X.program("e3x_forces", "infer")
def _() -> Call:
    model = Potential(features=32, degree=3, iterations=2, molecules=1)
    data = batch(model, 4096, 98_304)

    def forces(held: Any, *data: Any) -> Any:
        return jax.grad(lambda places: model.apply(held, places, *data[1:])[0])(data[0])

    return forces, (weights(model, data), *data)
