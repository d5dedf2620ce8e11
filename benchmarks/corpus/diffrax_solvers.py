"""Diffrax: ordinary, stochastic and controlled differential equations, most of them with fixed steps."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix

from benchmarks.corpus.equinox_nets import step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

DIFFRAX = Catalogue("diffrax", "example", "science")
CATALOGUES = [DIFFRAX]


class Field(eqx.Module):
    """A vector field by a small network."""

    mlp: eqx.nn.MLP

    def __init__(self, key: Any, size: int = 16, width: int = 128):
        self.mlp = eqx.nn.MLP(size, size, width, 2, jnp.tanh, key=key)

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        """dy/dt."""
        return self.mlp(y)


def solved(field: Any, y: Any, solver: Any, steps: int, adjoint: Any = None) -> Any:
    """The state at time 1 after so many fixed steps."""
    chosen = {} if adjoint is None else {"adjoint": adjoint}
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), solver, 0.0, 1.0, 1.0 / steps, y, max_steps=steps + 1, **chosen
    ).ys[-1]


DIFFRAX.add(
    "diffrax_neural_ode_train",
    lambda: step(
        Field, lambda f, y: jnp.square(jax.vmap(lambda y: solved(f, y, diffrax.Tsit5(), 20))(y)).mean(), spec(1024, 16)
    ),
    "train",
)
DIFFRAX.add(
    "diffrax_backsolve_ode_train",
    lambda: step(
        Field,
        lambda f, y: jnp.square(
            jax.vmap(lambda y: solved(f, y, diffrax.Dopri5(), 16, diffrax.BacksolveAdjoint()))(y)
        ).mean(),
        spec(1024, 16),
    ),
    "train",
)


@DIFFRAX.program("diffrax_lorenz_ensemble_step", "step")
def _() -> Call:
    def lorenz(t: Any, y: Any, args: Any) -> Any:
        a, b, c = y
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8 / 3 * c])

    return jax.vmap(lambda y: solved(lorenz, y, diffrax.Dopri8(), 32)), (spec(65536, 3),)


@DIFFRAX.program("diffrax_stiff_implicit_step", "step")
def _() -> Call:
    def robertson(t: Any, y: Any, args: Any) -> Any:
        a, b, c = y
        first, second, third = -0.04 * a, 1e4 * b * c, 3e7 * b**2
        return jnp.stack([first + second, -first - second - third, third])

    return jax.vmap(
        lambda y: solved(
            robertson,
            y,
            diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-3, atol=1e-5, norm=optimistix.max_norm)),
            8,
        )
    ), (spec(4096, 3),)


@DIFFRAX.program("diffrax_sde_brownian_step", "step", group="probabilistic")
def _() -> Call:
    def path(y: Any, key: Any) -> Any:
        motion = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, y.shape, key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: jnp.diag(0.1 * y), motion)
        )
        return diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.05, y, max_steps=21).ys[-1]

    return (lambda y, key: jax.vmap(path)(y, jax.random.split(key, y.shape[0]))), (spec(8192, 4), KEY)


class Driven(eqx.Module):
    """A neural controlled differential equation."""

    start: eqx.nn.MLP
    field: eqx.nn.MLP
    last: eqx.nn.Linear

    def __init__(self, key: Any):
        keys = jax.random.split(key, 3)
        self.start = eqx.nn.MLP(4, 16, 64, 1, key=keys[0])
        self.field = eqx.nn.MLP(16, 64, 64, 1, jnp.tanh, jnp.tanh, key=keys[1])
        self.last = eqx.nn.Linear(16, 10, key=keys[2])

    def __call__(self, times: Any, values: Any) -> Any:
        """Logits of one series."""
        control = diffrax.CubicInterpolation(times, diffrax.backward_hermite_coefficients(times, values))
        term = diffrax.ControlTerm(lambda t, y, args: self.field(y).reshape(16, 4), control).to_ode()
        options = {"max_steps": 33}
        out = diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 1 / 32, self.start(values[0]), **options)
        return self.last(out.ys[-1])


@DIFFRAX.program("diffrax_neural_cde_train", "train", group="sequence")
def _() -> Call:
    def loss(model: Any, times: Any, values: Any, labels: Any) -> Any:
        return cross_entropy(jax.vmap(model, in_axes=(None, 0))(times, values), labels)

    return step(Driven, loss, spec(64), spec(256, 64, 4), integers(10, 256))


@DIFFRAX.program("diffrax_heat_equation_step", "step")
def _() -> Call:
    def heat(t: Any, y: Any, args: Any) -> Any:
        padded = jnp.pad(y, 1, mode="edge")
        return 0.1 * (padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * y)

    return (lambda y: solved(heat, y, diffrax.Bosh3(), 50)), (spec(1024, 1024),)


@DIFFRAX.program("diffrax_adaptive_pendulums_infer", "infer")
def _() -> Call:
    def pendulum(t: Any, y: Any, args: Any) -> Any:
        return jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * y[1]])

    def one(y: Any) -> Any:
        control = diffrax.PIDController(rtol=1e-4, atol=1e-6)
        save = diffrax.SaveAt(ts=jnp.linspace(0.0, 5.0, 32))
        term = diffrax.ODETerm(pendulum)
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 5.0, 0.1, y, stepsize_controller=control, saveat=save, max_steps=256
        ).ys

    return jax.vmap(one), (spec(4096, 2),)


@DIFFRAX.program("diffrax_reaction_diffusion_step", "step", origin="helper")
def _() -> Call:
    def field(t: Any, state: Any, args: Any) -> Any:
        u, v = state
        spread = lambda x: sum(jnp.roll(x, s, a) for s in (1, -1) for a in (0, 1)) - 4 * x  # noqa: E731
        return 0.16 * spread(u) - u * v * v + 0.035 * (1 - u), 0.08 * spread(v) + u * v * v - 0.1 * v

    def run(u: Any, v: Any) -> Any:
        term, solver = diffrax.ODETerm(field), diffrax.Heun()
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 1.0 / 16, (u, v), max_steps=17).ys

    return run, (spec(1024, 1024), spec(1024, 1024))
