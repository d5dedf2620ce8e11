"""Optimizers of optax on trees of parameters, its losses, and the training steps that only it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, cross_entropy, integers, spec, training

OPTAX = Catalogue("optax", "library", "optimizer")
CATALOGUES = [OPTAX]


def transformer(layers: int, dim: int, vocabulary: int, dtype: Any = jnp.float32) -> Any:
    """The parameters of a decoder with biases and norms, layer by layer."""
    layer = {
        "attention": {
            "qkv": spec(dim, 3 * dim, dtype=dtype),
            "out": spec(dim, dim, dtype=dtype),
            "bias": spec(dim, dtype=dtype),
        },
        "mlp": {
            "up": spec(dim, 4 * dim, dtype=dtype),
            "bias": spec(4 * dim, dtype=dtype),
            "down": spec(4 * dim, dim, dtype=dtype),
        },
        "norms": {"first": spec(dim, dtype=dtype), "second": spec(dim, dtype=dtype)},
    }
    return {"embedding": spec(vocabulary, dim, dtype=dtype), "layers": [layer] * layers}


def stacked(layers: int, dim: int, dtype: Any = jnp.float32) -> Any:
    """The parameters of a decoder whose layers lie in one array each, as scans over layers have them."""
    sizes = {"qkv": (dim, 3 * dim), "out": (dim, dim), "up": (dim, 4 * dim), "down": (4 * dim, dim), "norm": (dim,)}
    return {name: spec(layers, *size, dtype=dtype) for name, size in sizes.items()}


def convolutional(dtype: Any = jnp.float32) -> Any:
    """Kernels, scales and offsets of a network of 50 convolutions."""
    tree: dict[str, Any] = {"stem": spec(7, 7, 3, 64, dtype=dtype), "head": spec(2048, 1000, dtype=dtype)}
    for stage, (depth, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(depth):
            norm = {"scale": spec(width, dtype=dtype), "offset": spec(width, dtype=dtype)}
            kernels = [
                spec(1, 1, 4 * width, width, dtype=dtype),
                spec(3, 3, width, width, dtype=dtype),
                spec(1, 1, width, 4 * width, dtype=dtype),
            ]
            tree[f"stage{stage}_block{block}"] = {"kernels": kernels, "norms": [norm] * 3}
    return tree


def updated(optimizer: Any, params: Any, **extra: Any) -> Call:
    """One update of an optimizer, with the parameters' new values."""
    state = jax.eval_shape(optimizer.init, params)

    def update(grads: Any, state: Any, params: Any, extra: Any) -> Any:
        updates, state = optimizer.update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    return update, (params, state, params, abstract(extra))


SMALL = transformer(12, 768, 50257)
BF16 = jnp.bfloat16
for name, optimizer, params, dtype in (
    ("adafactor_gpt2", optax.adafactor(1e-3), SMALL, "f32"),
    ("lion_stacked_bf16", optax.lion(1e-4), stacked(24, 1024, BF16), "bf16"),
    ("sm3_convolutional", optax.sm3(0.1), convolutional(), "f32"),
    ("novograd_convolutional", optax.novograd(1e-3), convolutional(), "f32"),
    (
        "lars_clipped_convolutional",
        optax.chain(optax.clip_by_global_norm(1.0), optax.lars(0.1)),
        convolutional(),
        "f32",
    ),
    ("adan_gpt2", optax.adan(1e-3), SMALL, "f32"),
    ("adamw_bf16_moments", optax.adamw(1e-3, mu_dtype=BF16), transformer(24, 1024, 32000, BF16), "bf16"),
    (
        "rmsprop_agc_convolutional",
        optax.chain(optax.adaptive_grad_clip(0.01), optax.rmsprop(1e-3, momentum=0.9)),
        convolutional(),
        "f32",
    ),
    ("muon_stacked", contrib.muon(1e-3), stacked(6, 1024), "f32"),
    ("galore_gpt2_small", contrib.galore(1e-3, rank=64, update_proj_gap=1), transformer(2, 512, 8192), "f32"),
    ("prodigy_gpt2", contrib.prodigy(1.0), SMALL, "f32"),
    (
        "adamw_clipped_gpt2_medium",
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4)),
        transformer(24, 1024, 50257),
        "f32",
    ),
    ("adagrad_bf16_stacked", optax.adagrad(1e-2), stacked(24, 1024, BF16), "bf16"),
    ("ademamix_stacked", contrib.ademamix(1e-3), stacked(12, 1024), "f32"),
    ("schedule_free_convolutional", contrib.schedule_free_adamw(1e-3), convolutional(), "f32"),
    (
        "multisteps_adabelief",
        optax.MultiSteps(optax.adabelief(1e-3), 4).gradient_transformation(),
        convolutional(),
        "f32",
    ),
    ("noisy_sgd_centralized", optax.chain(optax.centralize(), optax.noisy_sgd(0.1)), convolutional(), "f32"),
):
    OPTAX.add(f"optax_{name}", partial(updated, optimizer, params), "update", dtype)


def network(params: Any, x: Any) -> Any:
    """A small network, for steps whose optimizer asks for its values."""
    for kernel in params[:-1]:
        x = jax.nn.relu(x @ kernel)
    return x @ params[-1]


WIDE = [spec(784, 2048), spec(2048, 2048), spec(2048, 10)]
DATA = (spec(4096, 784), integers(10, 4096))


def loss(params: Any, x: Any, labels: Any) -> Any:
    """The loss of the small network."""
    return cross_entropy(network(params, x), labels)


@OPTAX.program("optax_dpsgd_train", "train", origin="example")
def _() -> Call:
    optimizer = contrib.dpsgd(0.1, l2_norm_clip=1.0, noise_multiplier=1.1, seed=0)
    params = [spec(784, 256), spec(256, 10)]

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], labels[:, None])
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step, (params, jax.eval_shape(optimizer.init, params), spec(256, 784), integers(10, 256))


@OPTAX.program("optax_sam_train", "train", origin="example")
def _() -> Call:
    optimizer = contrib.sam(
        optax.sgd(0.1), optax.chain(contrib.normalize(), optax.sgd(0.05)), sync_period=2, opaque_mode=True
    )

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        grad = jax.grad(lambda params, _: loss(params, x, labels))
        updates, state = optimizer.update(grad(params, 0), state, params, grad_fn=grad)
        return optax.apply_updates(params, updates), state

    return step, (WIDE, jax.eval_shape(optimizer.init, WIDE), *DATA)


@OPTAX.program("optax_lbfgs_step", "train", origin="example")
def _() -> Call:
    optimizer = optax.lbfgs()

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        function = lambda params: loss(params, x, labels)  # noqa: E731
        value, grads = optax.value_and_grad_from_state(function)(params, state=state)
        updates, state = optimizer.update(grads, state, params, value=value, grad=grads, value_fn=function)
        return optax.apply_updates(params, updates), state

    return step, (WIDE, jax.eval_shape(optimizer.init, WIDE), *DATA)


@OPTAX.program("optax_sophia_hutchinson_train", "train", origin="example")
def _() -> Call:
    optimizer = contrib.sophia(1e-3)

    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        function = lambda params: loss(params, x, labels)  # noqa: E731
        updates, state = optimizer.update(jax.grad(function)(params), state, params, obj_fn=function)
        return optax.apply_updates(params, updates), state

    return step, (WIDE, jax.eval_shape(optimizer.init, WIDE), *DATA)


def of_logits(function: Callable[..., Any], *arguments: Any) -> Call:
    """The value and the gradient of a loss by its first argument."""
    return jax.value_and_grad(lambda *given: jnp.mean(function(*given))), arguments


@OPTAX.program("optax_ctc_loss_librispeech", "train", group="audio")
def _() -> Call:
    def ctc(logits: Any, logit_lengths: Any, labels: Any, label_lengths: Any) -> Any:
        columns = jnp.arange(logits.shape[1]), jnp.arange(labels.shape[1])
        paddings = [
            (c[None] >= n[:, None]).astype(jnp.float32)
            for c, n in zip(columns, (logit_lengths, label_lengths), strict=True)
        ]
        return optax.ctc_loss(logits, paddings[0], labels, paddings[1])

    return of_logits(ctc, spec(32, 200, 256), integers(200, 32), integers(256, 32, 60), integers(60, 32))


@OPTAX.program("optax_focal_segmentation", "train", group="vision")
def _() -> Call:
    def both(logits: Any, labels: Any) -> Any:
        return optax.sigmoid_focal_loss(logits, labels).mean() + optax.losses.dice_loss(logits, labels).mean()

    return of_logits(both, spec(16, 256, 256, 21), spec(16, 256, 256, 21))


@OPTAX.program("optax_sparsemax_ntxent_triplet", "train", "bf16")
def _() -> Call:
    def losses(x: Any, labels: Any) -> Any:
        sparse = optax.losses.multiclass_sparsemax_loss(x.astype(jnp.float32), labels).mean()
        return (
            sparse + optax.ntxent(x, labels) + optax.losses.triplet_margin_loss(x[:256], x[256:512], x[512:768]).mean()
        )

    return of_logits(losses, spec(1024, 256, dtype=BF16), integers(256, 1024))


@OPTAX.program("optax_perturbed_ranking_train", "train", group="recsys", origin="example")
def _() -> Call:
    def ranked(scores: Any) -> Any:
        return jax.nn.one_hot(jnp.argsort(jnp.argsort(scores, axis=-1), axis=-1)[..., 0], scores.shape[-1])

    soft = optax.perturbations.make_perturbed_fun(ranked, num_samples=64, sigma=0.5)

    def function(params: Any, features: Any, target: Any, key: Any) -> Any:
        scores = network(params, features)[..., 0]
        return jnp.square(soft(key, scores) - target).mean() + optax.losses.ranking_softmax_loss(scores, target).mean()

    params = [spec(136, 256), spec(256, 1)]
    return training(function, params, (spec(256, 100, 136), spec(256, 100), KEY))
