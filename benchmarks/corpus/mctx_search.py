"""mctx: tree searches with a learned model, for batches of states."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mctx

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

MCTX = Catalogue("mctx", "library", "rl")
CATALOGUES = [MCTX]
WIDTH = 256


def weights(actions: int, dtype: Any) -> Any:
    """Weights of a learned model: dynamics, policy, value and reward."""
    make = partial(spec, dtype=dtype)
    return {
        "dynamics": make(WIDTH + actions, WIDTH),
        "mix": make(WIDTH, WIDTH),
        "policy": make(WIDTH, actions),
        "value": make(WIDTH, 1),
        "reward": make(WIDTH, 1),
    }


def heads(params: Any, hidden: Any) -> Any:
    """Policy logits and values of hidden states."""
    return (hidden @ params["policy"]).astype(jnp.float32), (hidden @ params["value"])[..., 0].astype(jnp.float32)


def recurrent(params: Any, key: Any, action: Any, hidden: Any) -> Any:
    """The model's step."""
    one_hot = jax.nn.one_hot(action, params["policy"].shape[-1], dtype=hidden.dtype)
    hidden = jax.nn.relu(jnp.concatenate([hidden, one_hot], -1) @ params["dynamics"])
    hidden = jnp.tanh(hidden @ params["mix"])
    logits, value = heads(params, hidden)
    reward = (hidden @ params["reward"])[..., 0].astype(jnp.float32)
    return mctx.RecurrentFnOutput(
        reward=reward, discount=jnp.full_like(value, 0.99), prior_logits=logits, value=value
    ), hidden


def search(policy: Any, batch: int, actions: int, simulations: int, dtype: Any = jnp.float32) -> Call:
    """A search from a batch of roots."""

    def searched(params: Any, key: Any, hidden: Any) -> Any:
        logits, value = heads(params, hidden)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=hidden)
        out = policy(params=params, rng_key=key, root=root, recurrent_fn=recurrent, num_simulations=simulations)
        return out.action, out.action_weights

    return searched, (weights(actions, dtype), KEY, spec(batch, WIDTH, dtype=dtype))


MCTX.add("mctx_muzero_atari_search", partial(search, mctx.muzero_policy, 128, 18, 25), "infer", "f32")
MCTX.add(
    "mctx_gumbel_go_search",
    partial(search, partial(mctx.gumbel_muzero_policy, max_num_considered_actions=16), 64, 362, 16, jnp.bfloat16),
    "infer",
    "bf16",
)
MCTX.add(
    "mctx_alphazero_depth_search",
    partial(search, partial(mctx.muzero_policy, max_depth=8, dirichlet_fraction=0.25), 256, 9, 32),
    "infer",
    "f32",
)


@MCTX.program("mctx_stochastic_2048_search", "infer")
def _() -> Call:
    chances = 32

    def decision(params: Any, key: Any, action: Any, hidden: Any) -> Any:
        out, hidden = recurrent(params, key, action, hidden)
        chance = jnp.tile(out.prior_logits[:, :1], (1, chances))
        return mctx.DecisionRecurrentFnOutput(chance_logits=chance, afterstate_value=out.value), hidden

    def chance(params: Any, key: Any, outcome: Any, hidden: Any) -> Any:
        out, hidden = recurrent(params, key, outcome, hidden)
        return mctx.ChanceRecurrentFnOutput(
            action_logits=out.prior_logits, value=out.value, reward=out.reward, discount=out.discount
        ), hidden

    def searched(params: Any, key: Any, hidden: Any) -> Any:
        logits, value = heads(params, hidden)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=hidden)
        return mctx.stochastic_muzero_policy(
            params, key, root, decision_recurrent_fn=decision, chance_recurrent_fn=chance, num_simulations=16
        ).action_weights

    return searched, (weights(4, jnp.float32), KEY, spec(128, WIDTH))
