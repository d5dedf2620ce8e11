"""Equimo: vision models in Equinox: state spaces, linear and gated attention, convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any

import equimo.models as models
import jax
import jax.numpy as jnp

from benchmarks.corpus.equinox_nets import inference, step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

EQUIMO = Catalogue("equimo", "library", "vision")
CATALOGUES = [EQUIMO]


def logits(model: Any, images: Any, key: Any, *, training: bool) -> Any:
    """Logits of a batch of images, each with a key of its own."""
    keys = jax.random.split(key, images.shape[0])
    return jax.vmap(lambda image, key: model(image, key=key, inference=not training))(images, keys)


def classifier(make: Any, mode: str, batch: int, size: int, dtype: Any = jnp.float32) -> Call:
    """A classifier's inference, or a training step whose parameters are kept in f32."""
    images = spec(batch, 3, size, size, dtype=dtype)
    if mode == "infer":
        return inference(make, partial(logits, training=False), images, KEY, dtype=dtype)
    loss = lambda model, x, key, y: cross_entropy(logits(model, x, key, training=True), y)  # noqa: E731
    return step(make, loss, images, KEY, integers(1000, batch), narrow=None if dtype == jnp.float32 else dtype)


BF16 = jnp.bfloat16
for name, make, mode, dtype, batch, size in (
    (
        "lowformer",
        partial(models.lowformer_backbone_b0, in_channels=3, attention_type="softmax"),
        "train",
        "f32",
        32,
        256,
    ),
    ("reduceformer", partial(models.reduceformer_backbone_b1, in_channels=3), "infer", "bf16", 64, 224),
    ("mlla", partial(models.Mlla, 224, 3, depths=[1, 1, 2, 1]), "infer", "f32", 16, 224),
    ("vssd", partial(models.Vssd, 224, 3, depths=[1, 1, 2, 1]), "infer", "f32", 16, 224),
    ("attnet", partial(models.AttNet, 3), "train", "mixed", 32, 224),
    ("convnext", partial(models.ConvNeXt, 3, depths=[2, 2, 4, 2]), "infer", "bf16", 32, 224),
    ("vit", partial(models.VisionTransformer, 224, 3, 384, 16, 6, [8]), "train", "mixed", 32, 224),
    ("dinov2_vits14", models.dinov2_vits14, "infer", "f32", 8, 518),
):
    kept = jnp.float32 if dtype == "f32" else BF16
    made = lambda key, make=make: make(key=key)  # noqa: E731
    EQUIMO.add(f"equimo_{name}_{mode}", partial(classifier, made, mode, batch, size, kept), mode, dtype)
