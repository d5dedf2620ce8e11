"""Pgx: board games, a few turns of many boards."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pgx

from benchmarks.corpus.game_steps import rollout
from benchmarks.corpus.record import Call, Catalogue

PGX = Catalogue("pgx", "library", "rl")
CATALOGUES = [PGX]


def game(name: str, boards: int, turns: int) -> Call:
    """A game played by legal moves at random."""
    env = pgx.make(name)

    def action(key: Any, state: Any) -> Any:
        return jax.random.categorical(key, jnp.where(state.legal_action_mask, 0.0, -1e9))

    def step(key: Any, state: Any, action: Any) -> Any:
        state = env.step(state, action, key)
        return state, state.rewards

    return rollout(env.init, step, action, boards, turns)


for name, boards, turns in (
    ("go_9x9", 512, 4),
    ("chess", 256, 2),
    ("backgammon", 2048, 4),
    ("2048", 8192, 8),
    ("connect_four", 16384, 8),
    ("minatar-breakout", 4096, 8),
    ("othello", 2048, 4),
    ("kuhn_poker", 65536, 4),
):
    PGX.add(f"pgx_{name.replace('-', '_')}_step", partial(game, name, boards, turns), "step")
