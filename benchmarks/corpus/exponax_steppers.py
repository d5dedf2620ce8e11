"""Exponax: exponential time differencing of partial differential equations, batched and over several steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import exponax as ex
import jax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

EXPONAX = Catalogue("exponax", "library", "science")
CATALOGUES = [EXPONAX]


def stepped(name: str, dimensions: int, points: int, channels: int, batch: int, turns: int, **options: Any) -> Call:
    """Some steps of a batch of states; the stepper's coefficients are arguments."""
    stepper = getattr(ex.stepper, name)(dimensions, 1.0 if dimensions > 1 else 60.0, points, 0.01, **options)
    arrays, rest = eqx.partition(stepper, eqx.is_array)

    def run(arrays: Any, states: Any) -> Any:
        step = jax.vmap(eqx.combine(arrays, rest))
        return jax.lax.fori_loop(0, turns, lambda _, states: step(states), states)

    return run, (arrays, spec(batch, channels, *[points] * dimensions))


for name, dimensions, points, channels, batch, turns in (
    ("KuramotoSivashinsky", 1, 1024, 1, 256, 20),
    ("KortewegDeVries", 1, 2048, 1, 64, 20),
    ("Burgers", 2, 256, 2, 8, 5),
    ("NavierStokesVorticity", 2, 512, 1, 2, 5),
    ("KolmogorovFlowVorticity", 2, 256, 1, 8, 5),
    ("AdvectionDiffusion", 3, 64, 1, 4, 5),
    ("Wave", 2, 512, 2, 4, 10),
):
    EXPONAX.add(
        f"exponax_{name.lower()}_step", partial(stepped, name, dimensions, points, channels, batch, turns), "step"
    )


@EXPONAX.program("exponax_gray_scott_step", "step")
def _() -> Call:
    stepper = ex.stepper.reaction.GrayScott(2, 2.5, 256, 1.0)
    arrays, rest = eqx.partition(stepper, eqx.is_array)

    def run(arrays: Any, state: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, state: eqx.combine(arrays, rest)(state), state)

    return run, (arrays, spec(2, 256, 256))


@EXPONAX.program("exponax_burgers_rollout_train", "train")
def _() -> Call:
    stepper = ex.stepper.Burgers(1, 1.0, 512, 0.01)
    arrays, rest = eqx.partition(stepper, eqx.is_array)

    def loss(first: Any, arrays: Any, target: Any) -> Any:
        step = jax.vmap(eqx.combine(arrays, rest))
        final = jax.lax.scan(lambda state, _: (step(state), None), first, length=20)[0]
        return ((final - target) ** 2).mean()

    return jax.value_and_grad(loss), (spec(64, 1, 512), arrays, spec(64, 1, 512))
