"""Dinosaur: time steps of its spectral dynamical cores, and the transforms between grid and spherical harmonics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dinosaur import (
    coordinate_systems,
    held_suarez,
    layer_coordinates,
    primitive_equations,
    scales,
    shallow_water,
    sigma_coordinates,
    spherical_harmonic,
    time_integration,
)

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

DINOSAUR = Catalogue("dinosaur-dycore", "example", "science")
CATALOGUES = [DINOSAUR]
REAL, FAST = spherical_harmonic.RealSphericalHarmonics, spherical_harmonic.FastSphericalHarmonics


def atmosphere(wavenumber: int, layers: int, harmonics: Any = FAST) -> Any:
    """A Gaussian grid with sigma levels, truncated at a wavenumber."""
    grid = spherical_harmonic.Grid.with_wavenumbers(wavenumber + 1, spherical_harmonics_impl=harmonics)
    return coordinate_systems.CoordinateSystem(grid, sigma_coordinates.SigmaCoordinates.equidistant(layers))


def primitive_state(coords: Any, *, moist: bool) -> Any:
    """The shapes of an atmosphere's state in spherical harmonics."""
    modal = coords.modal_shape
    tracers = {"specific_humidity": spec(*modal)} if moist else {}
    surface = spec(1, *modal[1:])
    return primitive_equations.State(spec(*modal), spec(*modal), spec(*modal), surface, tracers, spec())


def primitive_steps(coords: Any, minutes: int, steps: int, *, moist: bool = False, forced: bool = False) -> Call:
    """Steps of the primitive equations, implicit for gravity waves, with the filter that the examples put behind each."""
    physics = primitive_equations.PrimitiveEquationsSpecs.from_si()
    warm = np.full(coords.vertical.layers, 288.0)
    flat = np.zeros(coords.horizontal.modal_shape, np.float32)
    kind = primitive_equations.MoistPrimitiveEquations if moist else primitive_equations.PrimitiveEquations
    equation = kind(warm, flat, coords, physics)
    if forced:
        forcing = held_suarez.HeldSuarezForcing(coords, physics, warm)
        equation = time_integration.compose_equations([equation, forcing])
    step = physics.nondimensionalize(minutes * scales.units.minute)
    filtered = time_integration.step_with_filters(
        time_integration.imex_rk_sil3(equation, step),
        [time_integration.exponential_step_filter(coords.horizontal, step)],
    )
    return time_integration.repeated(filtered, steps), (primitive_state(coords, moist=moist),)


DINOSAUR.add("dinosaur_t85_dry_steps", lambda: primitive_steps(atmosphere(85, 24), 20, 4), "step")
DINOSAUR.add("dinosaur_t170_moist_step", lambda: primitive_steps(atmosphere(170, 32), 10, 1, moist=True), "step")
DINOSAUR.add(
    "dinosaur_t106_held_suarez_step",
    lambda: primitive_steps(atmosphere(106, 20, REAL), 15, 1, forced=True),
    "step",
)


@DINOSAUR.program("dinosaur_t85_adjoint", "train")
def _() -> Call:
    steps, state = primitive_steps(atmosphere(85, 16), 20, 1)

    def loss(state: Any) -> Any:
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(steps(state)))

    return jax.value_and_grad(loss), state


@DINOSAUR.program("dinosaur_shallow_water_t213_steps", "step")
def _() -> Call:
    grid = spherical_harmonic.Grid.with_wavenumbers(214, spherical_harmonics_impl=FAST)
    coords = coordinate_systems.CoordinateSystem(grid, layer_coordinates.LayerCoordinates(2))
    physics = shallow_water.ShallowWaterSpecs.from_si(np.array([1.0, 1.2]) * scales.WATER_DENSITY)
    flat = np.zeros(grid.modal_shape, np.float32)
    equation = shallow_water.ShallowWaterEquations(coords, physics, flat, np.array([1e-2, 1e-2]))
    step = physics.nondimensionalize(5 * scales.units.minute)
    modal = spec(*coords.modal_shape)
    state = shallow_water.State(modal, modal, modal)
    return time_integration.repeated(time_integration.imex_rk_sil3(equation, step), 10), (state,)


@DINOSAUR.program("dinosaur_t255_transforms", "infer", origin="library")
def _() -> Call:
    grid = atmosphere(255, 1).horizontal
    return (lambda field: grid.to_modal(grid.to_nodal(field) ** 2)), (spec(64, *grid.modal_shape),)
