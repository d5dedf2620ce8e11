"""Craftax: open worlds, symbolic and in pixels, a turn or two of many."""

from __future__ import annotations

from functools import partial
from typing import Any

from craftax.craftax_env import make_craftax_env_from_name

from benchmarks.corpus.game_steps import rollout
from benchmarks.corpus.record import Call, Catalogue

CRAFTAX = Catalogue("craftax", "library", "rl")
CATALOGUES = [CRAFTAX]


def environment(name: str, count: int, turns: int) -> Call:
    """A world with actions at random."""
    env = make_craftax_env_from_name(name, auto_reset=False)
    params = env.default_params

    def action(key: Any, state: Any) -> Any:
        return env.action_space(params).sample(key)

    def step(key: Any, state: Any, action: Any) -> Any:
        seen, state, reward, _, _ = env.step(key, state, action, params)
        return state, (seen, reward)

    return rollout(lambda key: env.reset(key, params)[1], step, action, count, turns)


for name, count, turns in (("Craftax-Classic-Symbolic-v1", 1024, 2), ("Craftax-Symbolic-v1", 512, 1)):
    CRAFTAX.add(
        f"craftax_{name.split('-v')[0].lower().replace('-', '_')}_step",
        partial(environment, name, count, turns),
        "step",
    )
