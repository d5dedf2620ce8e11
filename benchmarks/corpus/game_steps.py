"""Games and small environments: Pgx, Jumanji and Gymnax, thousands of them at once."""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.corpus.record import Call
from benchmarks.corpus.shapes import KEY, abstract


def rollout(reset: Any, step: Any, action: Any, count: int, turns: int) -> Call:
    """Some turns of many environments with random actions: `reset(key)`, `step(key, state, action)`, `action(key, state)`."""
    keys = jax.random.split(jax.random.PRNGKey(0), count)
    state = abstract(jax.eval_shape(lambda keys: jax.vmap(reset)(keys), abstract(keys)))

    def run(key: Any, state: Any) -> Any:
        def turn(state: Any, key: Any) -> Any:
            keys = jax.random.split(key, count)
            actions = jax.vmap(action)(keys, state)
            state, reward = jax.vmap(step)(keys, state, actions)
            return state, reward

        return jax.lax.scan(turn, state, jax.random.split(key, turns))

    return run, (KEY, state)
