"""RLax: losses of reinforcement learning over batches of trajectories, with their gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, integers, spec, training

RLAX = Catalogue("rlax", "library", "rl")
CATALOGUES = [RLAX]
TIME, BATCH, ACTIONS = 64, 1024, 18
TRAJECTORY = spec(TIME, BATCH)
CHOSEN = integers(ACTIONS, TIME, BATCH)


@RLAX.program("rlax_vtrace_actor_critic_train", "train")
def _() -> Call:
    def loss(logits: Any, values: Any, behaviour: Any, actions: Any, rewards: Any, discounts: Any) -> Any:
        ratios = rlax.categorical_importance_sampling_ratios(logits, behaviour, actions)
        after = jnp.concatenate([values[1:], values[-1:]])
        trace = jax.vmap(partial(rlax.vtrace_td_error_and_advantage, lambda_=0.95), in_axes=1, out_axes=1)
        out = trace(values, after, rewards, discounts, ratios)
        weights = jnp.ones_like(rewards)
        policy = jax.vmap(rlax.policy_gradient_loss, in_axes=1)(logits, actions, out.pg_advantage, weights)
        entropy = jax.vmap(rlax.entropy_loss, in_axes=1)(logits, weights)
        return jnp.mean(policy) + 0.01 * jnp.mean(entropy) + 0.5 * jnp.mean(out.errors**2)

    logits = spec(TIME, BATCH, ACTIONS)
    return jax.grad(loss, argnums=(0, 1)), (logits, TRAJECTORY, logits, CHOSEN, TRAJECTORY, TRAJECTORY)


@RLAX.program("rlax_rainbow_categorical_train", "train")
def _() -> Call:
    def loss(params: Any, target: Any, x: Any, y: Any, actions: Any, rewards: Any, discounts: Any) -> Any:
        atoms = jnp.linspace(-10.0, 10.0, 51)
        now = (jax.nn.relu(x @ params[0]) @ params[1]).reshape(-1, ACTIONS, 51)
        then = (jax.nn.relu(y @ target[0]) @ target[1]).reshape(-1, ACTIONS, 51)
        errors = jax.vmap(rlax.categorical_double_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0, 0))
        return errors(atoms, now, actions, rewards, discounts, atoms, then, jnp.mean(then, -1)).mean()

    params = [spec(512, 1024), spec(1024, ACTIONS * 51)]
    data = (params, spec(4096, 512), spec(4096, 512), integers(ACTIONS, 4096), spec(4096), spec(4096))
    return training(loss, params, data)


@RLAX.program("rlax_quantile_regression_train", "train")
def _() -> Call:
    def loss(now: Any, actions: Any, rewards: Any, discounts: Any, then: Any) -> Any:
        taus = (jnp.arange(64) + 0.5) / 64
        errors = jax.vmap(partial(rlax.quantile_q_learning, huber_param=1.0), in_axes=(0, None, 0, 0, 0, 0, 0))
        return errors(now, taus, actions, rewards, discounts, then, then).mean()

    table = spec(2048, 64, ACTIONS)
    return jax.grad(loss), (table, integers(ACTIONS, 2048), spec(2048), spec(2048), table)


@RLAX.program("rlax_retrace_continuous_train", "train")
def _() -> Call:
    def loss(q: Any, values: Any, rewards: Any, discounts: Any, ratios: Any) -> Any:
        trace = jax.vmap(partial(rlax.retrace_continuous, lambda_=0.9), in_axes=1)
        return jnp.mean(trace(q[:-1], q[1:-1], values[1:], rewards[1:], discounts[1:], ratios[1:-1]) ** 2)

    return jax.grad(loss), (TRAJECTORY,) * 5


@RLAX.program("rlax_clipped_surrogate_gae_train", "train")
def _() -> Call:
    def loss(params: Any, x: Any, actions: Any, old: Any, rewards: Any, discounts: Any) -> Any:
        hidden = jnp.tanh(jnp.tanh(x @ params["first"]) @ params["second"])
        logits, values = hidden @ params["policy"], (hidden @ params["value"])[..., 0]
        gae = jax.vmap(rlax.truncated_generalized_advantage_estimation, in_axes=(1, 1, None, 1), out_axes=1)
        gains = jax.lax.stop_gradient(gae(rewards[:-1], discounts[:-1], 0.95, values))
        ratios = rlax.categorical_importance_sampling_ratios(logits[:-1], old[:-1], actions[:-1])
        surrogate = jax.vmap(partial(rlax.clipped_surrogate_pg_loss, epsilon=0.2), in_axes=1)(ratios, gains)
        return surrogate.mean() + 0.5 * jnp.mean((values[:-1] - gains) ** 2)

    params = {"first": spec(128, 256), "second": spec(256, 256), "policy": spec(256, ACTIONS), "value": spec(256, 1)}
    return training(loss, params, (spec(TIME, BATCH, 128), CHOSEN, spec(TIME, BATCH, ACTIONS), TRAJECTORY, TRAJECTORY))


@RLAX.program("rlax_muzero_transforms_infer", "infer")
def _() -> Call:
    def transformed(values: Any, logits: Any) -> Any:
        pair = rlax.muzero_pair(300, -300, 300, rlax.SIGNED_HYPERBOLIC_PAIR)
        return pair.apply(values), pair.apply_inv(jax.nn.softmax(logits))

    return transformed, (spec(32768), spec(32768, 300))


@RLAX.program("rlax_exploration_policies_step", "step")
def _() -> Call:
    def acted(key: Any, q: Any) -> Any:
        keys = jax.random.split(key, 4)
        greedy = rlax.epsilon_greedy(0.1).sample(keys[0], q)
        noise = jax.vmap(lambda key, row: rlax.add_gaussian_noise(key, row, 0.2))(
            jax.random.split(keys[1], q.shape[0]), q
        )
        return (
            greedy,
            rlax.softmax(0.5).sample(keys[2], q),
            noise,
            rlax.add_dirichlet_noise(keys[3], jax.nn.softmax(q), 0.3, 0.25),
        )

    return acted, (KEY, spec(16384, ACTIONS))
