"""Brax: rigid bodies by its pipelines, and a step of its PPO's loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from brax import envs
from brax.training.acme import running_statistics
from brax.training.agents.ppo import losses, networks
from brax.training.types import Transition

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, spec

BRAX = Catalogue("brax", "library", "science")
CATALOGUES = [BRAX]


def environment(name: str, backend: str, count: int) -> Call:
    """One step of many environments."""
    env = envs.get_environment(name, backend=backend)
    keys = spec(count, 2, dtype=jnp.uint32)
    state = abstract(jax.eval_shape(lambda keys: jax.vmap(env.reset)(keys), keys))
    return (lambda state, action: jax.vmap(env.step)(state, action)), (state, spec(count, env.action_size))


for name, backend, count in (
    ("ant", "positional", 2048),
    ("ant", "spring", 2048),
    ("humanoid", "positional", 1024),
    ("halfcheetah", "generalized", 512),
    ("hopper", "positional", 2048),
    ("inverted_double_pendulum", "generalized", 2048),
    ("reacher", "spring", 4096),
    ("walker2d", "spring", 2048),
):
    BRAX.add(f"brax_{name}_{backend}_step", partial(environment, name, backend, count), "step")


@BRAX.program("brax_ppo_losses_train", "train", group="rl")
def _() -> Call:
    seen, acts, time, batch = 87, 8, 20, 512
    made = networks.make_ppo_networks(seen, acts, preprocess_observations_fn=running_statistics.normalize)
    params = jax.eval_shape(
        lambda key: losses.PPONetworkParams(made.policy_network.init(key), made.value_network.init(key)), KEY
    )
    statistics = jax.eval_shape(lambda: running_statistics.init_state(spec(seen)))
    extras = {
        "policy_extras": {
            "log_prob": spec(batch, time),
            "raw_action": spec(batch, time, acts),
            "distribution_params": spec(batch, time, 2 * acts),
        },
        "state_extras": {"truncation": spec(batch, time)},
    }
    data = Transition(
        observation=spec(batch, time, seen),
        action=spec(batch, time, acts),
        reward=spec(batch, time),
        discount=spec(batch, time),
        next_observation=spec(batch, time, seen),
        extras=extras,
    )
    optimizer = optax.adam(3e-4)

    def step(params: Any, state: Any, statistics: Any, data: Any, key: Any) -> Any:
        grads, _ = jax.grad(losses.compute_ppo_loss, has_aux=True)(params, statistics, data, key, made)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step, (params, jax.eval_shape(optimizer.init, params), statistics, data, KEY)
