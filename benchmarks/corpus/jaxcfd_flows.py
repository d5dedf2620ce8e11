"""JAX-CFD: finite volumes and spectral methods, in two and three dimensions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax_cfd.base as cfd
import jax_cfd.spectral as spectral

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, spec

CFD = Catalogue("jax-cfd", "library", "science")
CATALOGUES = [CFD]


def volumes(shape: tuple[int, ...], turns: int, **options: Any) -> Call:
    """Semi-implicit Navier-Stokes steps on a periodic grid."""
    grid = cfd.grids.Grid(shape, domain=((0, 2 * jnp.pi),) * len(shape))
    boundary = cfd.boundaries.periodic_boundary_conditions(len(shape))
    step = cfd.equations.semi_implicit_navier_stokes(density=1.0, viscosity=1e-3, dt=1e-3, grid=grid, **options)

    def run(arrays: Any) -> Any:
        offsets = grid.cell_faces
        velocity = tuple(
            cfd.grids.GridVariable(cfd.grids.GridArray(array, offset, grid), boundary)
            for array, offset in zip(arrays, offsets, strict=True)
        )
        return tuple(v.data for v in jax.lax.fori_loop(0, turns, lambda _, v: step(v), velocity))

    return run, (tuple(spec(*shape) for _ in shape),)


FAST = {"pressure_solve": cfd.pressure.solve_fast_diag}
CFD.add("jaxcfd_volumes_2d_step", partial(volumes, (512, 512), 2, **FAST), "step")
CFD.add("jaxcfd_volumes_3d_step", partial(volumes, (64, 64, 64), 1, **FAST), "step")
CFD.add(
    "jaxcfd_volumes_linear_2d_step",
    partial(volumes, (1024, 1024), 1, **FAST, convect=cfd.advection.convect_linear),
    "step",
)


def vorticity(size: int, turns: int, dtype: Any, **options: Any) -> Call:
    """Pseudo-spectral steps of the vorticity."""
    grid = cfd.grids.Grid((size, size), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))
    equation = spectral.equations.NavierStokes2D(1e-3, grid, smooth=True, **options)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-3)
    return (lambda w: jax.lax.fori_loop(0, turns, lambda _, w: step(w), w)), (spec(size, size // 2 + 1, dtype=dtype),)


CFD.add("jaxcfd_spectral_vorticity_step", partial(vorticity, 512, 4, jnp.complex64), "step", "c64")


@CFD.program("jaxcfd_kuramoto_sivashinsky_step", "step", "c64")
def _() -> Call:
    grid = cfd.grids.Grid((2048,), domain=((0, 100.0),))
    equation = spectral.equations.KuramotoSivashinsky(grid, smooth=True)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-2)
    batch = jax.vmap(step)
    return (lambda u: jax.lax.fori_loop(0, 10, lambda _, u: batch(u), u)), (spec(256, 1025, dtype=jnp.complex64),)


@CFD.program("jaxcfd_initial_velocity", "infer")
def _() -> Call:
    grid = cfd.grids.Grid((512, 512), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))

    def made(key: Any) -> Any:
        return tuple(
            v.data
            for v in cfd.initial_conditions.filtered_velocity_field(key, grid, maximum_velocity=7.0, peak_wavenumber=4)
        )

    return made, (KEY,)


@CFD.program("jaxcfd_adjoint_2d_train", "train")
def _() -> Call:
    run, (arrays,) = volumes((128, 128), 0, **FAST)
    del run
    grid = cfd.grids.Grid((128, 128), domain=((0, 2 * jnp.pi),) * 2)
    boundary = cfd.boundaries.periodic_boundary_conditions(2)
    step = cfd.equations.semi_implicit_navier_stokes(density=1.0, viscosity=1e-3, dt=1e-3, grid=grid, **FAST)

    def loss(arrays: Any, targets: Any) -> Any:
        velocity = tuple(
            cfd.grids.GridVariable(cfd.grids.GridArray(array, offset, grid), boundary)
            for array, offset in zip(arrays, grid.cell_faces, strict=True)
        )
        final, _ = jax.lax.scan(jax.checkpoint(lambda v, _: (step(v), None)), velocity, length=8)
        return sum(jnp.square(v.data - target).mean() for v, target in zip(final, targets, strict=True))

    return jax.value_and_grad(loss), (abstract(arrays), abstract(arrays))


CFD.add("jaxcfd_volumes_small_2d_step", partial(volumes, (256, 256), 4, **FAST), "step")
CFD.add("jaxcfd_spectral_vorticity_large_step", partial(vorticity, 1024, 2, jnp.complex64), "step", "c64")
