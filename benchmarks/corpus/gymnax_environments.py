"""Gymnax: classic control and small games, rollouts of many at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnax

from benchmarks.corpus.game_steps import rollout
from benchmarks.corpus.record import Call, Catalogue

GYMNAX = Catalogue("gymnax", "library", "rl")
CATALOGUES = [GYMNAX]


def environment(name: str, count: int, turns: int) -> Call:
    """An environment with actions at random, which starts again where it has ended."""
    env, params = gymnax.make(name)

    def action(key: Any, state: Any) -> Any:
        return env.action_space(params).sample(key)

    def step(key: Any, state: Any, action: Any) -> Any:
        state, reward = env.step(key, state, action, params)[1:3]
        return state, reward

    return rollout(lambda key: env.reset(key, params)[1], step, action, count, turns)


for name, count, turns in (
    ("CartPole-v1", 16384, 32),
    ("Pendulum-v1", 16384, 32),
    ("Acrobot-v1", 8192, 16),
    ("Breakout-MinAtar", 4096, 16),
    ("SpaceInvaders-MinAtar", 4096, 16),
    ("Catch-bsuite", 16384, 32),
    ("FourRooms-misc", 8192, 16),
):
    GYMNAX.add(f"gymnax_{name.split('-')[0].lower()}_step", partial(environment, name, count, turns), "step")
