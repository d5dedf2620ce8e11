"""Jumanji: puzzles, packing and routing, a few turns of many instances."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jumanji

from benchmarks.corpus.game_steps import rollout
from benchmarks.corpus.record import Call, Catalogue

JUMANJI = Catalogue("jumanji", "library", "rl")
CATALOGUES = [JUMANJI]


def environment(name: str, count: int, turns: int) -> Call:
    """An environment with actions drawn from all that its specification allows."""
    env = jumanji.make(name)
    spec = env.action_spec
    most = jnp.asarray(getattr(spec, "num_values", 2))

    def action(key: Any, state: Any) -> Any:
        return jax.random.randint(key, spec.shape, 0, most).astype(spec.dtype)

    def step(key: Any, state: Any, action: Any) -> Any:
        state, timestep = env.step(state, action)
        return state, timestep.reward

    return rollout(lambda key: env.reset(key)[0], step, action, count, turns)


for name, count, turns in (
    ("Snake-v1", 4096, 8),
    ("Game2048-v1", 4096, 8),
    ("TSP-v1", 8192, 8),
    ("Maze-v0", 2048, 8),
    ("Knapsack-v1", 8192, 8),
    ("RubiksCube-v0", 8192, 16),
    ("Minesweeper-v0", 4096, 8),
    ("GraphColoring-v1", 4096, 8),
):
    JUMANJI.add(f"jumanji_{name.split('-')[0].lower()}_step", partial(environment, name, count, turns), "step")
