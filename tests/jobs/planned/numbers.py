"""Runs a step of tiny models on eight virtual devices under each plan, and on one device: a child of `test_numbers`.

Prints a JSON line for every plan: the loss, and how far the parameters after the step are from those of one device.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from meshcast.jobs.planned import Plan
from meshcast.jobs.planned.settings import step_settings
from meshcast.zoo import zoo
from meshcast.zoo.layers.context_attention import balanced_positions
from tests.quick_compiling import QUICK
from tests.zoo.arrays import concrete

SETTINGS = {"batch": 8, "seq": 32, "param_dtype": "float32"}


def step(model: str, plan: Plan, settings: dict[str, Any]) -> tuple[float, list[np.ndarray]]:
    """The loss of a step, and the parameters after it."""
    chosen = step_settings(plan, zoo()[model], {**SETTINGS, **settings})
    fn, args, options = zoo()[model](plan.mesh, **chosen)
    count = plan.devices
    mesh = None
    if count > 1:
        devices = np.array(jax.devices()[:count]).reshape(tuple(plan.mesh.values()))
        mesh = Mesh(devices, tuple(plan.mesh), axis_types=(AxisType.Auto,) * len(plan.mesh))

    def placed(leaf: Any) -> Any:
        return NamedSharding(mesh, leaf.sharding.spec) if mesh is not None else jax.devices()[0]

    values = concrete(args, ["params", "opt_state", "batch"])
    accumulate = chosen.get("accumulate", 1)
    # The same sequences whatever the microbatches: a replica's share of each is a row of the batch.
    rows = np.random.default_rng(1).integers(0, 16, (2, 8, 32)).astype(np.int32)
    if plan.cp > 1 and plan.attending.startswith("flash"):
        rows = rows[..., balanced_positions(rows.shape[-1], plan.cp)]  # as a loader for such a plan has them
    for name, tokens in zip(("tokens", "targets"), rows, strict=True):
        values[2][name] = jnp.asarray(tokens.reshape(values[2][name].shape)) if accumulate > 1 else jnp.asarray(tokens)
    # From NumPy: JAX compiles a program for every shape of an array of its own that it spreads.
    values = [
        jax.tree.map(lambda v, a: jax.device_put(np.asarray(v), placed(a)), v, a)
        for v, a in zip(values, args, strict=True)
    ]
    out = {}
    if mesh is not None:
        out["out_shardings"] = jax.tree.map(lambda s: NamedSharding(mesh, s.spec), options["out_shardings"])
    params, _, loss = jax.jit(fn, **out).lower(*values).compile(QUICK)(*values)
    return float(loss), [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def main() -> None:
    """Takes `[MODEL, SETTINGS, PLAN]` in JSON, as many as there are."""
    references: dict[tuple[str, str], tuple[float, list[np.ndarray]]] = {}
    for text in sys.argv[1:]:
        model, settings, plan = json.loads(text)
        loss, params = step(model, Plan.parse(plan), settings)
        if (model, str(settings)) not in references:
            references[model, str(settings)] = step(model, Plan(mbs=8, precision="tf32"), settings)
        alone, expected = references[model, str(settings)]
        apart = max(float(np.max(np.abs(a - b))) for a, b in zip(params, expected, strict=True))
        print(json.dumps({"plan": plan, "loss": loss, "alone": alone, "apart": apart}), flush=True)


if __name__ == "__main__":
    main()
