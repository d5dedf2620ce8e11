"""Models of Tunix as it tunes and samples them: at their published widths, with fewer layers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from tunix.models.gemma3 import model as gemma3
from tunix.models.llama3 import model as llama3
from tunix.models.qwen2 import model as qwen2
from tunix.models.qwen3 import model as qwen3

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import cast, cross_entropy, integers, spec, training

TUNIX = Catalogue("google-tunix", "library", "llm")
CATALOGUES = [TUNIX]
BF16 = jnp.bfloat16


def made(kind: Any, config: Any) -> tuple[Any, Any]:
    """A model's structure and the shapes of its weights: Llama's, which computes in its weights' type, in bf16."""
    structure, weights = nnx.split(nnx.eval_shape(lambda: kind(config, rngs=nnx.Rngs(0))))
    return structure, cast(weights, BF16) if kind is llama3.Llama3 else weights


def places(batch: int, length: int) -> tuple[Any, Any]:
    """Positions and a causal mask, made in the program as the trainer makes them."""
    rows = jnp.broadcast_to(jnp.arange(length), (batch, length))
    return rows, jnp.broadcast_to(jnp.tril(jnp.ones((length, length), bool)), (batch, length, length))


def tuning(kind: Any, config: Any, batch: int, length: int, *, checkpointed: bool = False) -> Call:
    """A step of supervised fine-tuning of all weights, as the trainer does it: next tokens, AdamW."""
    structure, weights = made(kind, config)

    def logits(params: Any, tokens: Any) -> Any:
        return nnx.merge(structure, params)(tokens, places(*tokens.shape)[0], None, places(*tokens.shape)[1])[0]

    run = jax.checkpoint(logits) if checkpointed else logits

    def loss(params: Any, tokens: Any) -> Any:
        return cross_entropy(run(params, tokens)[:, :-1], tokens[:, 1:])

    words = getattr(config, "vocab_size", None) or config.num_embed
    return training(loss, weights, (integers(words, batch, length),), optax.adamw(1e-5))


def preference(kind: Any, config: Any, batch: int, length: int) -> Call:
    """Log-probabilities of given answers, as a reference model scores them for preference and policy losses."""
    structure, weights = made(kind, config)

    def scored(params: Any, tokens: Any, mask: Any) -> Any:
        rows, causal = places(*tokens.shape)
        logits = nnx.merge(structure, params)(tokens, rows, None, causal & mask[:, None, :])[0]
        spread = jax.nn.log_softmax(logits[:, :-1].astype(jnp.float32), axis=-1)
        taken = jnp.take_along_axis(spread, tokens[:, 1:, None], axis=-1)[..., 0]
        return jnp.sum(taken * mask[:, 1:], axis=-1)

    words = getattr(config, "vocab_size", None) or config.num_embed
    return scored, (weights, integers(words, batch, length), spec(batch, length, dtype=jnp.bool_))


def sampling(kind: Any, config: Any, batch: int, length: int) -> Call:
    """One token more for every sequence, with the cache that the library's sampler keeps, and the token drawn."""
    structure, weights = made(kind, config)
    shape = (batch, length, config.num_kv_heads, config.head_dim)
    layer = {"k": spec(*shape, dtype=BF16), "v": spec(*shape, dtype=BF16), "end_index": integers(length - 1, batch)}
    cache = {f"layer_{number}": dict(layer) for number in range(config.num_layers)}
    words = getattr(config, "vocab_size", None) or config.num_embed

    def step(params: Any, cache: Any, token: Any, place: Any, mask: Any, key: Any) -> Any:
        logits, cache = nnx.merge(structure, params)(token, place, cache, mask)
        return jax.random.categorical(key, logits[:, -1].astype(jnp.float32) / 0.7), cache

    tokens, at = integers(words, batch, 1), integers(length - 1, batch, 1)
    return step, (weights, cache, tokens, at, spec(batch, 1, length, dtype=jnp.bool_), spec(2, dtype=jnp.uint32))


narrow: dict[str, Any] = {"dtype": BF16, "param_dtype": BF16}
wide: dict[str, Any] = {"dtype": BF16, "param_dtype": jnp.float32}
qwen_small, qwen_large = qwen3.ModelConfig.qwen3_0p6b(), qwen3.ModelConfig.qwen3_4b()
llama_one, llama_three = llama3.ModelConfig.llama3p2_1b(), llama3.ModelConfig.llama3p2_3b()
gemma_small = gemma3.ModelConfig.gemma3_270m()
add = partial(TUNIX.add, dtype="bf16")
add(
    "tunix_qwen3_0p6b_tuning",
    lambda: tuning(qwen3.Qwen3, replace(qwen_small, num_layers=4, **wide), 2, 1024),
    "train",
    dtype="mixed",
)
add(
    "tunix_gemma3_270m_tuning",
    lambda: tuning(gemma3.Gemma3, replace(gemma_small, num_layers=6), 4, 512, checkpointed=True),
    "train",
)
add(
    "tunix_llama3_3b_reference_scores",
    lambda: preference(llama3.Llama3, replace(llama_three, num_layers=4), 4, 1024),
    "infer",
)
add(
    "tunix_qwen3_4b_decode",
    lambda: sampling(qwen3.Qwen3, replace(qwen_large, num_layers=4, **narrow), 16, 2048),
    "decode",
)
add(
    "tunix_llama3_1b_decode",
    lambda: sampling(llama3.Llama3, replace(llama_one, num_layers=6), 8, 1024),
    "decode",
)
add(
    "tunix_qwen2_1p5b_scores_f32",
    lambda: preference(qwen2.Qwen2, replace(qwen2.ModelConfig.qwen2p5_1p5b(), num_layers=4), 4, 512),
    "infer",
    dtype="f32",
)
