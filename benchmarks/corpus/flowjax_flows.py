"""FlowJAX: normalising flows, trained by maximum likelihood and sampled."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import flowjax.bijections as bijections
import flowjax.distributions as distributions
import flowjax.flows as flows
import jax
import jax.numpy as jnp
import paramax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, spec, training

FLOWJAX = Catalogue("flowjax", "library", "probabilistic")
CATALOGUES = [FLOWJAX]


def parted(name: str, size: int, **options: Any) -> tuple[Any, Any]:
    """The shapes of a flow's parameters, and the rest of it, whose masks and permutations are small and real."""
    made = getattr(flows, name)(jax.random.key(0), base_dist=distributions.Normal(jnp.zeros(size)), **options)
    arrays, rest = eqx.partition(
        made, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
    )
    return abstract(arrays), rest


def fitted(name: str, size: int, batch: int, **options: Any) -> Call:
    """A step of maximum likelihood."""
    arrays, rest = parted(name, size, **options)
    return training(
        lambda arrays, x: -paramax.unwrap(eqx.combine(arrays, rest)).log_prob(x).mean(), arrays, (spec(batch, size),)
    )


SPLINE = bijections.RationalQuadraticSpline(knots=8, interval=4)
FLOWJAX.add("flowjax_masked_autoregressive_train", partial(fitted, "masked_autoregressive_flow", 16, 4096), "train")
FLOWJAX.add("flowjax_spline_coupling_train", partial(fitted, "coupling_flow", 16, 4096, transformer=SPLINE), "train")
FLOWJAX.add("flowjax_planar_train", partial(fitted, "planar_flow", 16, 8192), "train")
FLOWJAX.add("flowjax_triangular_spline_train", partial(fitted, "triangular_spline_flow", 16, 4096), "train")


@FLOWJAX.program("flowjax_coupling_sample_infer", "infer")
def _() -> Call:
    arrays, rest = parted("coupling_flow", 32, flow_layers=6, nn_width=128)

    def sampled(arrays: Any, key: Any) -> Any:
        return paramax.unwrap(eqx.combine(arrays, rest)).sample_and_log_prob(jax.random.wrap_key_data(key), (16384,))

    return sampled, (arrays, KEY)
