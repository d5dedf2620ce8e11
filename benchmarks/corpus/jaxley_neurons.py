"""Jaxley: neurons with ion channels, integrated and differentiated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxley
from jaxley.channels import HH

from benchmarks.corpus.record import Call, Catalogue

JAXLEY = Catalogue("jaxley", "example", "science")
CATALOGUES = [JAXLEY]


def network(neurons: int) -> Any:
    """Neurons of one branch of eight compartments with Hodgkin and Huxley's channels."""
    cell = jaxley.Cell(jaxley.Branch(jaxley.Compartment(), ncomp=8), parents=[-1])
    made = jaxley.Network([cell for _ in range(neurons)])
    made.insert(HH())
    made.cell(0).branch(0).loc(0.0).record(verbose=False)
    return made


@JAXLEY.program("jaxley_neurons_step", "step")
def _() -> Call:
    made = network(8)
    made.cell(0).branch(0).comp(0).stimulate(jaxley.step_current(0.1, 1.0, 0.5, 0.025, 5.0), verbose=False)
    made.make_trainable("radius", verbose=False)
    params = made.get_parameters()
    made.to_jax()

    def loss(params: Any) -> Any:
        return jnp.mean(jaxley.integrate(made, params=params, delta_t=0.025, t_max=5.0) ** 2)

    return jax.value_and_grad(loss), (params,)
