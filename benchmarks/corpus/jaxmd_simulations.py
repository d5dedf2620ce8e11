"""JAX MD: molecular dynamics and minimisation, all pairs and neighbour lists of fixed capacity."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax_md import energy, minimize, partition, quantity, simulate, space

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, integers, spec

JAXMD = Catalogue("jax-md", "library", "science")
CATALOGUES = [JAXMD]


def dynamics(kind: str, potential: Any, atoms: int, turns: int, size: float = 20.0, **options: Any) -> Call:
    """Some steps of an integrator on a potential of all pairs."""
    displacement, shift = space.periodic(size)
    function = potential(displacement)
    start, apply = getattr(simulate, kind)(function, shift, 1e-3, **options)
    warm = {} if options else {"kT": 1.0}  # what keeps its temperature is told it before, the rest when it starts
    state = abstract(jax.eval_shape(lambda key, places: start(key, places, **warm), KEY, spec(atoms, 3)))
    return (lambda state: jax.lax.fori_loop(0, turns, lambda _, state: apply(state), state)), (state,)


LENNARD, SOFT, MORSE = energy.lennard_jones_pair, energy.soft_sphere_pair, energy.morse_pair
JAXMD.add("jaxmd_nve_lennard_jones_step", partial(dynamics, "nve", LENNARD, 2048, 5), "step")
JAXMD.add("jaxmd_nvt_nose_hoover_step", partial(dynamics, "nvt_nose_hoover", SOFT, 2048, 2, kT=1.0), "step")
JAXMD.add("jaxmd_langevin_morse_step", partial(dynamics, "nvt_langevin", MORSE, 1024, 10, kT=1.0, gamma=0.1), "step")
JAXMD.add("jaxmd_brownian_soft_step", partial(dynamics, "brownian", SOFT, 4096, 2, kT=1.0, gamma=0.1), "step")


def with_neighbors(make: Any, atoms: int, capacity: int, turns: int, **options: Any) -> Call:
    """Steps at constant energy with a neighbour list that is given."""
    displacement, shift = space.periodic(20.0)
    _, function = make(displacement, 20.0, format=partition.NeighborListFormat.Dense, **options)
    places, pairs = spec(atoms, 3), integers(atoms, atoms, capacity)

    def run(places: Any, speeds: Any, pairs: Any) -> Any:
        near = partition.NeighborList(
            pairs, places, None, None, capacity, partition.NeighborListFormat.Dense, None, None, None
        )
        force = quantity.force(partial(function, neighbor=near))

        def turn(_: Any, both: Any) -> Any:
            places, speeds = both
            speeds = speeds + 1e-3 * force(places)
            return shift(places, 1e-3 * speeds), speeds

        return jax.lax.fori_loop(0, turns, turn, (places, speeds))

    return run, (places, places, pairs)


JAXMD.add(
    "jaxmd_lennard_jones_neighbors", partial(with_neighbors, energy.lennard_jones_neighbor_list, 32768, 80, 4), "step"
)
JAXMD.add("jaxmd_morse_neighbors", partial(with_neighbors, energy.morse_neighbor_list, 65536, 48, 2), "step")


@JAXMD.program("jaxmd_neighbor_list_update", "step")
def _() -> Call:
    displacement, _ = space.periodic(32.0)
    lists = partition.neighbor_list(displacement, 32.0, r_cutoff=1.5, capacity_multiplier=1.25)
    atoms = 4096
    near = lists.allocate(jax.random.uniform(jax.random.PRNGKey(0), (atoms, 3)) * 32.0)
    return (lambda places, near: near.update(places).idx), (spec(atoms, 3), abstract(near))


@JAXMD.program("jaxmd_fire_minimise", "step")
def _() -> Call:
    displacement, shift = space.periodic(16.0)
    start, apply = minimize.fire_descent(energy.soft_sphere_pair(displacement), shift)
    state = abstract(jax.eval_shape(start, spec(2048, 2)))
    return (lambda state: jax.lax.fori_loop(0, 10, lambda _, state: apply(state), state)), (state,)


@JAXMD.program("jaxmd_stillinger_weber_forces", "infer")
def _() -> Call:
    displacement, _ = space.periodic(20.0)
    return quantity.force(energy.stillinger_weber(displacement)), (spec(192, 3),)


@JAXMD.program("jaxmd_behler_parrinello_forces", "infer")
def _() -> Call:
    displacement, _ = space.periodic(10.0)
    return jax.vmap(quantity.force(energy.behler_parrinello(displacement, key=jax.random.PRNGKey(0)))), (
        spec(32, 64, 3),
    )


@JAXMD.program("jaxmd_pair_correlation", "infer")
def _() -> Call:
    displacement, _ = space.periodic(20.0)
    radii = jnp.linspace(0.5, 5.0, 32)
    return quantity.pair_correlation(displacement, radii, sigma=0.1), (spec(1024, 3),)


JAXMD.add(
    "jaxmd_soft_sphere_neighbors", partial(with_neighbors, energy.soft_sphere_neighbor_list, 16384, 64, 8), "step"
)
JAXMD.add("jaxmd_nvt_lennard_jones_step", partial(dynamics, "nvt_nose_hoover", LENNARD, 4096, 2, kT=1.0), "step")
