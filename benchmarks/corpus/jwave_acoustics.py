"""j-Wave: acoustic waves in media that vary in space, simulated and differentiated as its examples do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxdf import FiniteDifferences, FourierSeries
from jwave.acoustics import simulate_wave_propagation
from jwave.acoustics.time_harmonic import angular_spectrum, born_iteration
from jwave.acoustics.time_varying import TimeWavePropagationSettings
from jwave.geometry import Domain, Medium, TimeAxis

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

JWAVE = Catalogue("jwave", "example", "science")
CATALOGUES = [JWAVE]
FASTEST = TimeWavePropagationSettings(c_ref=lambda medium: 1600.0)


def recorded(sizes: tuple[int, ...], steps: int, kind: Any = FourierSeries) -> Any:
    """The pressure on one face of a domain at every step, of the pressure that it begins with, sound speed and density."""
    domain = Domain(sizes, (1e-4,) * len(sizes))
    times = TimeAxis(dt=1e-8, t_end=steps * 1e-8)

    def simulated(pressure: Any, speed: Any, density: Any) -> Any:
        # The arguments' small numbers are about a medium like water.
        held = Medium(
            domain=domain,
            sound_speed=kind(1500.0 + 50.0 * speed, domain),
            density=kind(1000.0 + 50.0 * density, domain),
            attenuation=0.0,
            pml_size=20.0,
        )
        face = lambda p, u, rho: p.params[0]  # noqa: E731
        return simulate_wave_propagation(held, times, p0=kind(pressure, domain), sensors=face, settings=FASTEST)

    field = spec(*sizes, 1)
    return simulated, (field, field, field)


JWAVE.add("jwave_pstd_2d", lambda: recorded((1024, 1024), 20), "step")
JWAVE.add("jwave_pstd_3d", lambda: recorded((160, 160, 128), 8), "step")
JWAVE.add("jwave_finite_differences_3d", lambda: recorded((192, 192, 192), 8, FiniteDifferences), "step")


@JWAVE.program("jwave_pstd_2d_inversion", "train")
def _() -> Call:
    simulated, fields = recorded((512, 512), 16)

    def loss(speed: Any, pressure: Any, density: Any, heard: Any) -> Any:
        return jnp.mean(jnp.square(simulated(pressure, speed, density) - heard))

    heard = jax.eval_shape(simulated, *fields)
    return jax.value_and_grad(loss), (fields[1], fields[0], fields[2], heard)


@JWAVE.program("jwave_born_iterations", "step", "c64", origin="library")
def _() -> Call:
    domain = Domain((2048, 2048), (1.0, 1.0))

    def iterated(real: Any, imaginary: Any, numbers: Any, source: Any) -> Any:
        field = FourierSeries(jax.lax.complex(real, imaginary), domain)
        squared, driven = FourierSeries(numbers, domain), FourierSeries(source, domain)

        def body(_: Any, held: Any) -> Any:
            now = field.replace_params(held)
            return born_iteration(now, squared, driven, k0=1.0, epsilon=0.1).params

        return jax.lax.fori_loop(0, 10, body, field.params)

    return iterated, (spec(2048, 2048, 1),) * 4


@JWAVE.program("jwave_angular_spectrum", "infer", "c64", origin="library")
def _() -> Call:
    domain = Domain((1024, 1024), (2e-4, 2e-4))
    medium = Medium(domain=domain, sound_speed=1500.0)

    def planes(real: Any, imaginary: Any, heights: Any) -> Any:
        pressure = FourierSeries(jax.lax.complex(real, imaginary), domain)
        passed = lambda z: angular_spectrum(pressure, z_pos=z, f0=1e6, medium=medium, padding=512).params  # noqa: E731
        return jax.vmap(passed)(heights)

    return planes, (spec(1024, 1024, 1), spec(1024, 1024, 1), spec(16))
