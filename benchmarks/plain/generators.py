"""Autoencoders, pairs, adversaries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import KEY, Call, program, spec
from benchmarks.plain.images import batch_norm, convolved
from benchmarks.plain.optimizers import adam, training


@program("vae_train")
def _() -> Call:
    batch, z = 128, 128
    params = {
        "c1": spec(4, 4, 3, 64), "c2": spec(4, 4, 64, 128), "mu": spec(16 * 16 * 128, z), "lv": spec(16 * 16 * 128, z),
        "up": spec(z, 16 * 16 * 128), "d1": spec(4, 4, 128, 64), "d2": spec(4, 4, 64, 3),
    }  # fmt: skip

    def loss(p: Any, x: Any, key: Any) -> Any:
        h = jax.nn.relu(convolved(jax.nn.relu(convolved(x, p["c1"], 2)), p["c2"], 2)).reshape(batch, -1)
        mu, lv = h @ p["mu"], h @ p["lv"]
        code = mu + jnp.exp(0.5 * lv) * jax.random.normal(key, mu.shape)
        y = jax.nn.relu(code @ p["up"]).reshape(batch, 16, 16, 128)
        y = jax.nn.relu(lax.conv_transpose(y, p["d1"], (2, 2), "SAME"))
        y = lax.conv_transpose(y, p["d2"], (2, 2), "SAME")
        bce = jnp.sum(jnp.maximum(y, 0) - y * x + jnp.log1p(jnp.exp(-jnp.abs(y))), (1, 2, 3))
        kl = -0.5 * jnp.sum(1 + lv - mu**2 - jnp.exp(lv), -1)
        return jnp.mean(bce + kl)

    return training(loss, params, (spec(batch, 64, 64, 3), KEY), "adam")


@program("contrastive_train")
def _() -> Call:
    batch, dim = 1024, 512
    tower = lambda d: {"w1": spec(d, 2048), "b1": spec(2048), "w2": spec(2048, 2048), "w3": spec(2048, dim)}  # noqa: E731
    params = {"a": tower(768), "b": tower(1024), "t": spec()}

    def embedded(p: Any, x: Any) -> Any:
        h = jax.nn.gelu(x @ p["w1"] + p["b1"])
        h = (h + jax.nn.gelu(h @ p["w2"])) @ p["w3"]
        return h / jnp.linalg.norm(h, axis=-1, keepdims=True)

    def loss(p: Any, x: Any, y: Any) -> Any:
        scores = embedded(p["a"], x) @ embedded(p["b"], y).T * jnp.exp(p["t"])
        at = jnp.arange(batch)
        return -0.5 * jnp.mean(jax.nn.log_softmax(scores, 1)[at, at] + jax.nn.log_softmax(scores, 0)[at, at])

    return training(loss, params, (spec(batch, 768), spec(batch, 1024)), "adamw")


@program("gan_step")
def _() -> Call:
    batch, z = 64, 128
    g = {
        "in": spec(z, 8 * 8 * 256),
        "c1": spec(4, 4, 256, 128),
        "g1": spec(128),
        "b1": spec(128),
        "c2": spec(4, 4, 128, 64),
        "g2": spec(64),
        "b2": spec(64),
        "c3": spec(3, 3, 64, 3),
    }
    d = {"c1": spec(4, 4, 3, 64), "c2": spec(4, 4, 64, 128), "c3": spec(4, 4, 128, 256), "out": spec(4 * 4 * 256, 1)}

    def made(p: Any, noise: Any) -> Any:
        x = jax.nn.relu(noise @ p["in"]).reshape(batch, 8, 8, 256)
        x = jax.nn.relu(batch_norm(lax.conv_transpose(x, p["c1"], (2, 2), "SAME"), p["g1"], p["b1"]))
        x = jax.nn.relu(batch_norm(lax.conv_transpose(x, p["c2"], (2, 2), "SAME"), p["g2"], p["b2"]))
        return jnp.tanh(convolved(x, p["c3"]))

    def judged(p: Any, x: Any) -> Any:
        for name in ("c1", "c2", "c3"):
            x = jax.nn.leaky_relu(convolved(x, p[name], 2), 0.2)
        return x.reshape(batch, -1) @ p["out"]

    def step(g: Any, d: Any, gs: Any, ds: Any, real: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (batch, z))
        fake = made(g, noise)

        def d_loss(d: Any) -> Any:
            made_up = jax.nn.softplus(judged(d, lax.stop_gradient(fake)))
            return jnp.mean(jax.nn.softplus(-judged(d, real))) + jnp.mean(made_up)

        dv, dg = jax.value_and_grad(d_loss)(d)
        d, ds = adam(d, dg, ds)
        gv, gg = jax.value_and_grad(lambda g: jnp.mean(jax.nn.softplus(-judged(d, made(g, noise)))))(g)
        g, gs = adam(g, gg, gs)
        return g, d, gs, ds, dv, gv

    return step, (g, d, (g, g, spec()), (d, d, spec()), spec(batch, 32, 32, 3), KEY), (0, 1, 2, 3)
