"""Models of NanoDL as their trainers train them: language, images and text, speech, diffusion, graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import nanodl
import optax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cast, cross_entropy, integers, mixed, spec, training

NANODL = Catalogue("nanodl", "library", "llm")
CATALOGUES = [NANODL]
WORDS = 32_000
SIZES: dict[str, Any] = {
    "num_layers": 4, "hidden_dim": 1024, "num_heads": 8, "feedforward_dim": 4096, "dropout": 0.1, "vocab_size": WORDS,
    "embed_dim": 1024, "max_length": 512, "start_token": 0, "end_token": 1,
}  # fmt: skip


def variables(model: Any, *inputs: Any) -> Any:
    """The shapes of a model's weights and, where it keeps any, of its statistics."""
    keys = {"params": KEY, "dropout": KEY}
    return jax.eval_shape(model.init, keys, *inputs)


def words_step(model: Any, batch: int, length: int, *, narrow: bool = True) -> Call:
    """A training step of a decoder with a dropout key of its own and Adam, as the library's trainers do it."""
    words = integers(WORDS, batch, length)

    def loss(params: Any, key: Any, tokens: Any, labels: Any) -> Any:
        return cross_entropy(model.apply({"params": params}, tokens, training=True, rngs={"dropout": key}), labels)

    weights = variables(model, words)["params"]
    return training(mixed(loss) if narrow else loss, weights, (KEY, words, words), optax.adam(1e-5))


def words_pass(model: Any, batch: int, length: int) -> Call:
    """A forward pass of a decoder with weights in bf16."""
    words = integers(WORDS, batch, length)
    weights = cast(variables(model, words), jnp.bfloat16)
    return (lambda held, tokens: model.apply(held, tokens, training=False)), (weights, words)


def translation_step(model: Any, source: Any, batch: int, length: int) -> Call:
    """A training step in f32 of an encoder and a decoder."""
    words = integers(WORDS, batch, length)

    def loss(params: Any, key: Any, inputs: Any, tokens: Any, labels: Any) -> Any:
        logits = model.apply({"params": params}, inputs, tokens, training=True, rngs={"dropout": key})
        return cross_entropy(logits, labels)

    weights = variables(model, source, words)["params"]
    return training(loss, weights, (KEY, source, words, words), optax.adam(1e-5))


grouped = {**SIZES, "num_groups": 2}
windowed = {**grouped, "window_size": 128, "shift_size": 64}
NANODL.add("nanodl_gpt3_train", lambda: words_step(nanodl.GPT3(**SIZES), 16, 512), "train", "mixed")
NANODL.add("nanodl_llama3_pass", lambda: words_pass(nanodl.Llama3(**grouped), 16, 512), "infer", "bf16")
NANODL.add("nanodl_mistral_train", lambda: words_step(nanodl.Mistral(**windowed), 8, 512), "train", "mixed")
NANODL.add("nanodl_mixtral_pass", lambda: words_pass(nanodl.Mixtral(**windowed), 8, 512), "infer", "bf16")
NANODL.add("nanodl_lamda_train", lambda: words_step(nanodl.LaMDA(**SIZES), 8, 512), "train", "mixed")
small = {**SIZES, "hidden_dim": 512, "embed_dim": 512, "feedforward_dim": 2048}
NANODL.add(
    "nanodl_gpt4_experts_train_f32",
    lambda: words_step(nanodl.GPT4(**{**small, "num_layers": 2}, num_experts=8), 8, 512, narrow=False),
    "train",
)
NANODL.add(
    "nanodl_t5_train_f32",
    lambda: translation_step(nanodl.T5(**small), integers(WORDS, 16, 256), 16, 256),
    "train",
)


@NANODL.program("nanodl_clip_train", "train", "mixed", group="vision")
def _() -> Call:
    model = nanodl.CLIP(
        dropout=0.1, num_heads=8, feedforward_dim=768, num_layers_text=4, hidden_dim_text=768, image_patch_size=(16, 16),
        hidden_dim_image=768, num_layers_images=4, max_len=77, vocab_size=WORDS, embed_dim=768,
    )  # fmt: skip
    texts, images = integers(WORDS, 64, 77), spec(64, 224, 224, 3)

    def loss(params: Any, key: Any, texts: Any, images: Any) -> Any:
        return model.apply(
            {"params": params}, texts, images.astype(jnp.bfloat16), training=True, rngs={"dropout": key}
        ).astype(jnp.float32)

    return training(mixed(loss), variables(model, texts, images)["params"], (KEY, texts, images), optax.adam(1e-5))


@NANODL.program("nanodl_diffusion_unet_train_f32", "train", group="vision")
def _() -> Call:
    model = nanodl.DiffusionModel(64, (64, 128, 256, 384), 2)
    images = spec(64, 64, 64, 3)

    def loss(params: Any, images: Any, noise: Any) -> Any:
        noises, _ = model.apply({"params": params}, images)
        return jnp.mean(jnp.abs(noises - noise))

    return training(loss, variables(model, images)["params"], (images, images), optax.adam(1e-4))


@NANODL.program("nanodl_graph_attention_train_f32", "train", group="graph")
def _() -> Call:
    model = nanodl.GAT(nfeat=512, nhid=64, nclass=16, dropout_rate=0.5, alpha=0.2, nheads=8)
    features, edges = spec(1536, 512), spec(1536, 1536)
    labels = integers(16, 1536)
    weights = jax.eval_shape(partial(model.init, training=False), {"params": KEY, "dropout": KEY}, features, edges)

    def loss(params: Any, key: Any, features: Any, edges: Any, labels: Any) -> Any:
        logits = model.apply({"params": params}, features, edges, training=True, rngs={"dropout": key})
        return cross_entropy(logits, labels)

    return training(loss, weights["params"], (KEY, features, edges, labels), optax.adam(5e-3))
