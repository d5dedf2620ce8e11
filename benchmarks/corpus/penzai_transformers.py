"""penzai: its decoders in the manner of Llama, Gemma, Mistral and GPT-NeoX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from penzai import pz
from penzai.models.transformer.variants import gpt_neox, llamalike_common

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import abstract, cross_entropy, integers, training

PENZAI = Catalogue("penzai", "library", "llm")
CATALOGUES = [PENZAI]
LIKE = llamalike_common


def parted(config: Any, build: Any) -> tuple[Any, Any]:
    """The shapes of a model's parameters, and the model without them; it is made for real, since it keeps arrays of its own."""
    unbound, values = pz.unbind_params(build(config, init_base_rng=jax.random.key(0)), freeze=True)
    return abstract(values), unbound


def call(unbound: Any, values: Any, tokens: Any) -> Any:
    """Logits of a batch of sequences."""
    model = pz.bind_variables(unbound, values)
    named = pz.nx.wrap(tokens).tag("batch", "seq")
    places = pz.nx.arange("seq", tokens.shape[1])
    return model(named, token_positions=places).unwrap("batch", "seq", "vocabulary")


def inference(config: Any, build: Any, batch: int, length: int) -> Call:
    """A decoder's logits."""
    values, unbound = parted(config, build)
    return partial(call, unbound), (values, integers(config.vocab_size, batch, length))


def step(config: Any, build: Any, batch: int, length: int) -> Call:
    """A training step."""
    values, unbound = parted(config, build)
    loss = lambda values, tokens: cross_entropy(call(unbound, values, tokens)[:, :-1], tokens[:, 1:])  # noqa: E731
    return training(loss, values, (integers(config.vocab_size, batch, length),))


def llama(dtype: Any = jnp.float32, **options: Any) -> Any:
    """Sizes of a small decoder."""
    sizes = {
        "num_kv_heads": 4,
        "query_head_multiplier": 2,
        "embedding_dim": 512,
        "projection_dim": 64,
        "mlp_hidden_dim": 1536,
        "num_decoder_blocks": 6,
        "vocab_size": 32000,
        "mlp_variant": "swiglu",
        "tie_embedder_and_logits": False,
    }
    return LIKE.LlamalikeTransformerConfig(**{**sizes, **options}, parameter_dtype=dtype, activation_dtype=dtype)


BF16 = jnp.bfloat16
NEOX = {
    "num_attention_heads": 8,
    "embedding_dim": 512,
    "projection_dim": 64,
    "mlp_hidden_dim": 2048,
    "num_decoder_blocks": 6,
    "vocab_size": 50304,
    "rope_subset_size": 16,
    "activation_fn": "gelu_exact",
    "rope_wavelength": 10000.0,
    "layernorm_epsilon": 1e-5,
    "parameter_dtype": jnp.float32,
    "activation_dtype": jnp.float32,
}
BUILD = LIKE.build_llamalike_transformer
PENZAI.add("penzai_llama_train", lambda: step(llama(), BUILD, 8, 256), "train", "f32")
PENZAI.add("penzai_llama_infer", lambda: inference(llama(BF16), BUILD, 8, 512), "infer", "bf16")
PENZAI.add(
    "penzai_gemma_infer",
    lambda: inference(
        llama(
            BF16,
            mlp_variant="geglu_approx",
            tie_embedder_and_logits=True,
            final_logit_softcap=30.0,
            use_post_attn_norm=True,
        ),
        BUILD,
        4,
        512,
    ),
    "infer",
    "bf16",
)
PENZAI.add("penzai_layer_stack_train", lambda: step(llama(BF16, use_layer_stack=True), BUILD, 8, 256), "train", "bf16")
PENZAI.add(
    "penzai_neox_infer",
    lambda: inference(gpt_neox.GPTNeoXTransformerConfig(**NEOX), gpt_neox.build_gpt_neox_transformer, 4, 512),
    "infer",
    "f32",
)
