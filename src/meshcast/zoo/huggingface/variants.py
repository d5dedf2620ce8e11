"""Decoders further from Llama: other norms, biases, halves in parallel, other positions.

Defaults are those of the `transformers` library where published files leave the key out.
"""

from __future__ import annotations

from typing import Any

from meshcast.zoo.huggingface.decoders import layer_pattern, sizes
from meshcast.zoo.huggingface.fields import Fields
from meshcast.zoo.shapes.decoder import ACTIVATIONS, DecoderConfig


def _plain(found: dict[str, Any], fields: Fields, key: str, default: str) -> dict[str, Any]:
    """Sizes of a model whose feed-forward layers have no gate, under layer norms."""
    return found | {"gated": False, "norm": "layer", "activation": fields.activation(key, default, ACTIVATIONS)}


def _biases(present: bool) -> dict[str, Any]:
    return dict.fromkeys(("qkv_bias", "out_bias", "ffn_bias"), present)


def gpt_neox(fields: Fields) -> DecoderConfig:
    """GPT-NeoX and Pythia: both halves of a layer in parallel, a part of every head rotated, biases."""
    found = sizes(fields.renamed(rope_theta="rotary_emb_base"), activation=None)
    attention = fields.flag("attention_bias", True)
    return DecoderConfig(
        **_plain(found, fields, "hidden_act", "gelu"),
        **_biases(True) | {"qkv_bias": attention, "out_bias": attention},
        parallel_norms=2 if fields.flag("use_parallel_residual", True) else 0,
        rotated=int(found["head_dim"] * fields.number("rotary_pct", 0.25)),
    )


def phi(fields: Fields) -> DecoderConfig:
    """Phi-1, 1.5 and 2: both halves in parallel behind one norm, a part of every head rotated, biases.

    The bias on the logits is left out: it is added in the product that makes them.
    """
    fields.require("qk_layernorm", False, False)
    found = sizes(fields, activation=None)
    return DecoderConfig(
        **_plain(found, fields, "hidden_act", "gelu_new"),
        **_biases(True),
        parallel_norms=1,
        rotated=int(found["head_dim"] * fields.number("partial_rotary_factor", 0.5)),
    )


def gptj(fields: Fields) -> DecoderConfig:
    """GPT-J: both halves in parallel behind one norm, 64 numbers of every head rotated, biases of feed-forward layers alone.

    The bias on the logits is left out, as in Phi.
    """
    fields = fields.renamed(num_hidden_layers="n_layer", num_attention_heads="n_head", hidden_size="n_embd")
    inner = fields.integer("n_inner", 4 * fields.integer("hidden_size"))
    found = sizes(fields.defaulted(intermediate_size=inner), activation=None)
    return DecoderConfig(
        **_plain(found, fields, "activation_function", "gelu_new"),
        ffn_bias=True,
        parallel_norms=1,
        rotated=fields.integer("rotary_dim", 64),
    )


def mpt(fields: Fields) -> DecoderConfig:
    """MPT: ALiBi, norms with a scale alone, no biases."""
    fields.require("no_bias", True, True)
    attention = fields.inside("attn_config")
    for key, wanted in (("alibi", True), ("clip_qkv", None), ("qk_ln", False), ("prefix_lm", False)):
        attention.require(key, wanted, wanted)
    renamed = fields.renamed(num_hidden_layers="n_layers", num_attention_heads="n_heads", hidden_size="d_model")
    ffn = int(renamed.integer("hidden_size") * fields.number("expansion_ratio", 4))
    found = sizes(renamed.defaulted(intermediate_size=ffn), tied=True, activation=None)
    return DecoderConfig(
        **found | {"gated": False, "norm": "scaled", "activation": "exact_gelu"},
        alibi=True,
    )


def stablelm(fields: Fields) -> DecoderConfig:
    """StableLM: Llama under layer norms, a quarter of every head rotated."""
    fields.require("qk_layernorm", False, False)
    found = sizes(fields)
    return DecoderConfig(
        **found,
        norm="layer",
        qkv_bias=fields.flag("use_qkv_bias", False),
        parallel_norms=1 if fields.flag("use_parallel_residual", False) else 0,
        rotated=int(found["head_dim"] * fields.number("partial_rotary_factor", 0.25)),
    )


def falcon(fields: Fields) -> DecoderConfig:
    """Falcon: one key head or few, both halves in parallel behind one norm (7B) or two (40B); older ones with ALiBi."""
    fields = fields.renamed(num_hidden_layers="n_layer", num_attention_heads="n_head", num_kv_heads="n_head_kv")
    dim, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    grouped = fields.flag("new_decoder_architecture", False)
    keys = 1 if fields.flag("multi_query", True) else heads
    keys = fields.integer("num_kv_heads", heads) if grouped else keys
    norms = fields.integer("num_ln_in_parallel_attn", 2) if grouped else 1
    parallel = grouped or fields.flag("parallel_attn", True)
    found = sizes(
        fields.defaulted(intermediate_size=fields.integer("ffn_hidden_size", 4 * dim)), tied=True, activation=None
    )
    return DecoderConfig(
        **_plain(found, fields, "activation", "gelu") | {"kv_heads": keys},
        **_biases(fields.flag("bias", False)),
        parallel_norms=norms if parallel else 0,
        alibi=fields.flag("alibi", False),
    )


def bloom(fields: Fields) -> DecoderConfig:
    """BLOOM: ALiBi, biases, a norm behind the embedding."""
    fields = fields.renamed(num_hidden_layers="n_layer", num_attention_heads="n_head", hidden_size="n_embed")
    found = sizes(fields.defaulted(intermediate_size=4 * fields.integer("hidden_size")), tied=True, activation=None)
    fields.require("apply_residual_connection_post_layernorm", False, False)
    return DecoderConfig(
        **found | {"gated": False, "norm": "layer", "activation": "gelu"},
        **_biases(True),
        embedding_norm=True,
        alibi=True,
    )


def starcoder2(fields: Fields) -> DecoderConfig:
    """StarCoder 2: layer norms, biases, no gate, a window where there is one."""
    fields.require("norm_type", "layer_norm", "layer_norm")
    found = sizes(fields, tied=True, activation=None)
    return DecoderConfig(
        **_plain(found, fields, "hidden_act", "gelu_pytorch_tanh"),
        **_biases(fields.flag("use_bias", True)),
        **layer_pattern(fields, window=fields.integer("sliding_window", 0)),
    )


def olmo(fields: Fields) -> DecoderConfig:
    """OLMo: norms without weights."""
    fields.require("attention_bias", False, False)
    fields.require("clip_qkv", None, None)
    return DecoderConfig(**sizes(fields), norm="bare")


def olmo2(fields: Fields) -> DecoderConfig:
    """OLMo 2: norms behind each half and on all queries and keys, none before."""
    fields.require("attention_bias", False, False)
    return DecoderConfig(**sizes(fields), pre_norms=False, post_norms=True, wide_qk_norm=True)


def cohere(fields: Fields) -> DecoderConfig:
    """Command R and Aya: one norm for both halves in parallel, tied embeddings."""
    fields.require("attention_bias", False, False)
    fields.require("use_qk_norm", False, False)
    return DecoderConfig(**sizes(fields, tied=True), norm="scaled", parallel_norms=1)


def cohere2(fields: Fields) -> DecoderConfig:
    """Command R7B and A: of four layers three are local. The fourth rotates nothing; here it does, within another fusion."""
    fields.require("attention_bias", False, False)
    fields = fields.renamed(sliding_window_pattern="_sliding_window_pattern")
    window, every = fields.integer("sliding_window", 4096), fields.integer("sliding_window_pattern", 4)
    return DecoderConfig(
        **sizes(fields, tied=True),
        **layer_pattern(fields, window=window, every=every),
        norm="scaled",
        parallel_norms=1,
    )


def gpt_oss(fields: Fields) -> DecoderConfig:
    """gpt-oss: experts with biases, attention sinks, every other layer local."""
    fields = fields.renamed(num_experts_per_tok="experts_per_token").defaulted(head_dim=64)
    attention = fields.flag("attention_bias", True)
    return DecoderConfig(
        **sizes(fields, theta=150000.0) | {"activation": "clipped_swiglu"},
        **layer_pattern(fields, window=fields.integer("sliding_window", 128), every=2),
        qkv_bias=attention,
        out_bias=attention,
        sinks=True,
        experts=fields.integer("num_local_experts"),
        active=fields.integer("num_experts_per_tok"),
        expert_bias=True,
        balance=fields.number("router_aux_loss_coef", 0.001),
        dispatch="gather",
    )
