"""XLand-MiniGrid: grid worlds with rules and goals, a few turns of many."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import xminigrid

from benchmarks.corpus.game_steps import rollout
from benchmarks.corpus.record import Call, Catalogue

XMINIGRID = Catalogue("xminigrid", "library", "rl")
CATALOGUES = [XMINIGRID]


def environment(name: str, count: int, turns: int) -> Call:
    """An environment with actions at random."""
    env, params = xminigrid.make(name)

    def action(key: Any, timestep: Any) -> Any:
        return jax.random.randint(key, (), 0, env.num_actions(params))

    def step(key: Any, timestep: Any, action: Any) -> Any:
        timestep = env.step(params, timestep, action)
        return timestep, timestep.reward

    return rollout(lambda key: env.reset(params, key), step, action, count, turns)


for name, count, turns in (
    ("XLand-MiniGrid-R1-9x9", 4096, 8),
    ("MiniGrid-FourRooms", 8192, 8),
):
    XMINIGRID.add(f"xminigrid_{name.lower().replace('-', '_')}_step", partial(environment, name, count, turns), "step")
