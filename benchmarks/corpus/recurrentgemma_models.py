"""RecurrentGemma: Griffin's recurrences and local attention, small: prefill and cached decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from recurrentgemma import common
from recurrentgemma import jax as recurrentgemma

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import abstract, cross_entropy, integers, training

GRIFFIN = Catalogue("recurrentgemma", "library", "sequence")
CATALOGUES = [GRIFFIN]
BF16 = jnp.bfloat16
KINDS = common.TemporalBlockType
CONFIG = common.GriffinConfig(
    vocab_size=32000,
    width=1024,
    mlp_expanded_width=3072,
    num_heads=8,
    block_types=(KINDS.RECURRENT, KINDS.RECURRENT, KINDS.ATTENTION) * 2,
    embeddings_scale_by_sqrt_dim=True,
    attention_window_size=512,
    logits_soft_cap=30.0,
    scan_type=common.ScanType.LINEAR_NATIVE,
)


def parted(batch: int, length: int, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """The model, its weights' shapes, and tokens with their places."""
    model = recurrentgemma.Griffin(CONFIG, dtype=dtype, param_dtype=dtype)
    tokens, places = integers(CONFIG.vocab_size, batch, length), integers(length, batch, length)
    return (
        model,
        abstract(jax.eval_shape(lambda t, p: model.init(jax.random.key(0), t, p), tokens, places)),
        tokens,
        places,
    )


@GRIFFIN.program("recurrentgemma_prefill_infer", "infer", "bf16")
def _() -> Call:
    model, weights, tokens, places = parted(4, 1024, BF16)
    return (lambda weights, tokens, places: model.apply(weights, tokens, places)), (weights, tokens, places)


@GRIFFIN.program("recurrentgemma_train", "train", "f32")
def _() -> Call:
    model, weights, tokens, places = parted(4, 256, jnp.float32)

    def loss(weights: Any, tokens: Any, places: Any) -> Any:
        return cross_entropy(model.apply(weights, tokens, places, return_cache=False)[0][:, :-1], tokens[:, 1:])

    return training(loss, weights, (tokens, places))


def decoding(batch: int) -> Call:
    """A token through the model with its recurrent states and its cache."""
    model, weights, _, _ = parted(batch, 16, BF16)
    cache = abstract(jax.eval_shape(lambda: model.init_cache(batch, BF16)))
    tokens, places = integers(CONFIG.vocab_size, batch, 1), integers(4096, batch, 1)
    return (lambda weights, tokens, places, cache: model.apply(weights, tokens, places, cache)), (
        weights,
        tokens,
        places,
        cache,
    )


for batch in (1, 16):
    GRIFFIN.add(f"recurrentgemma_decode_b{batch}", partial(decoding, batch), "decode", "bf16")
