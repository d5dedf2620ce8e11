"""Decoders: keys of Hugging Face configurations as settings of `shapes.decoder`.

Defaults are those of the `transformers` library where published files leave the key out.
"""

from __future__ import annotations

from typing import Any

from meshcast.base import InputError, UnsupportedError
from meshcast.zoo.huggingface.fields import Fields
from meshcast.zoo.shapes.decoder import ACTIVATIONS, DecoderConfig


def sizes(fields: Fields, *, tied: bool = False, theta: float = 1e4, activation: str | None = "silu") -> dict[str, Any]:
    """What every decoder's configuration has; the activation too, where one is its default."""
    dim, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    return {
        "layers": fields.integer("num_hidden_layers"),
        "dim": dim,
        "heads": heads,
        "kv_heads": fields.integer("num_key_value_heads", heads),
        "ffn": fields.integer("intermediate_size"),
        "vocab": fields.integer("vocab_size"),
        "head_dim": fields.integer("head_dim", dim // max(heads, 1)),
        "rope_theta": fields.number("rope_theta", theta),
        "tied": fields.flag("tie_word_embeddings", tied),
        **({"activation": fields.activation("hidden_act", activation, ACTIVATIONS)} if activation else {}),
    }


def layer_pattern(fields: Fields, *, window: int, every: int = 0) -> dict[str, Any]:
    """Which layers are local: of `every` layers all but the last, or as `layer_types` says.

    Raises:
        InputError: It names another number of layers than there are.
        UnsupportedError: Its layers do not alternate in that way.
    """
    types, layers = fields.words("layer_types"), fields.integer("num_hidden_layers")
    if types and len(types) != layers:
        raise InputError(
            f"layer_types has {len(types)} layers, num_hidden_layers={layers}",
            where=fields.where,
            fix="give one type for each layer",
        )
    if types:
        every = types.index("full_attention") + 1 if "full_attention" in types else 0
        wanted = tuple(
            "sliding_attention" if not every or i % every else "full_attention" for i in range(1, layers + 1)
        )
        if types != wanted:
            raise UnsupportedError(
                f"layer_types of {fields.kind}: its layers do not alternate evenly",
                where=fields.where,
                fix="modelled: so many of sliding_attention, then one of full_attention, and again",
            )
    if every == 1:  # all of them
        return {}
    return {"window": window, "global_every": every if window else 0}


def llama(fields: Fields) -> DecoderConfig:
    """Llama 1 to 3.3, and what is built like it.

    Granite has factors on embeddings, halves, scores and logits beside, which cost nothing inside the fusions that they are in.
    """
    attention = fields.flag("attention_bias", False)
    biases: dict[str, Any] = {"qkv_bias": attention, "out_bias": attention, "ffn_bias": fields.flag("mlp_bias", False)}
    return DecoderConfig(**sizes(fields), **biases)


def mistral(fields: Fields) -> DecoderConfig:
    """Mistral and Phi-3: Llama with a window, where there is one."""
    return DecoderConfig(**sizes(fields), window=fields.integer("sliding_window", 0))


def qwen2(fields: Fields) -> DecoderConfig:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    fields.require("use_sliding_window", False, False)
    return DecoderConfig(**sizes(fields), qkv_bias=True)


def qwen3(fields: Fields) -> DecoderConfig:
    """Qwen 3: normalised queries and keys."""
    fields.require("use_sliding_window", False, False)
    fields.require("attention_bias", False, False)
    return DecoderConfig(**sizes(fields), qk_norm=True)


def _routed(fields: Fields, *, experts: str, loss: float) -> dict[str, Any]:
    fields.require("decoder_sparse_step", 1, 1)
    fields.require("mlp_only_layers", [], [])
    return {
        "experts": fields.integer(experts),
        "active": fields.integer("num_experts_per_tok"),
        "balance": fields.number("router_aux_loss_coef", loss),
    }


def qwen2_moe(fields: Fields) -> DecoderConfig:
    """Qwen 1.5 and 2 with experts, and one gated expert that every token passes."""
    fields.require("use_sliding_window", False, False)
    return DecoderConfig(
        **sizes(fields),
        **_routed(fields, experts="num_experts", loss=0.001),
        qkv_bias=fields.flag("qkv_bias", True),
        expert_ffn=fields.integer("moe_intermediate_size"),
        shared_ffn=fields.integer("shared_expert_intermediate_size"),
        shared_gate=True,
        dispatch="gather",
    )


def qwen3_moe(fields: Fields) -> DecoderConfig:
    """Qwen 3 with experts."""
    fields.require("use_sliding_window", False, False)
    fields.require("attention_bias", False, False)
    return DecoderConfig(
        **sizes(fields),
        **_routed(fields, experts="num_experts", loss=0.001),
        qk_norm=True,
        expert_ffn=fields.integer("moe_intermediate_size"),
        dispatch="gather",
    )


def olmoe(fields: Fields) -> DecoderConfig:
    """OLMoE: experts, and norms on all queries and keys."""
    fields.require("attention_bias", False, False)
    fields.require("clip_qkv", None, None)
    return DecoderConfig(
        **sizes(fields), **_routed(fields, experts="num_experts", loss=0.01), wide_qk_norm=True, dispatch="gather"
    )


def _glm_sizes(fields: Fields) -> dict[str, Any]:
    """GLM: half of every head is rotated, queries, keys and values may have biases."""
    found = sizes(fields.defaulted(head_dim=128))
    rotated = int(found["head_dim"] * fields.number("partial_rotary_factor", 0.5))
    return found | {"rotated": rotated, "qkv_bias": fields.flag("attention_bias", False)}


def glm(fields: Fields) -> DecoderConfig:
    """GLM-4 of 2024."""
    return DecoderConfig(**_glm_sizes(fields))


def glm4(fields: Fields) -> DecoderConfig:
    """GLM-4 of 2025: norms behind each half as well."""
    return DecoderConfig(**_glm_sizes(fields), post_norms=True)


def glm4_moe(fields: Fields) -> DecoderConfig:
    """GLM-4.5 and 4.6, without the layer that predicts a further token."""
    expert_ffn = fields.integer("moe_intermediate_size")
    return DecoderConfig(
        **_glm_sizes(fields),
        qk_norm=fields.flag("use_qk_norm", False),
        experts=fields.integer("n_routed_experts"),
        active=fields.integer("num_experts_per_tok"),
        expert_ffn=expert_ffn,
        shared_ffn=fields.integer("n_shared_experts", 0) * expert_ffn,
        dense_layers=fields.integer("first_k_dense_replace", 0),
        biased_router=True,
        balance=fields.number("aux_loss_alpha", 0.001),
        dispatch="gather",
    )


def mixtral(fields: Fields) -> DecoderConfig:
    """Mixtral."""
    return DecoderConfig(
        **sizes(fields, theta=1e6),
        **_routed(fields, experts="num_local_experts", loss=0.001),
        window=fields.integer("sliding_window", 0),
    )


def _gemma_sizes(fields: Fields) -> dict[str, Any]:
    fields.require("attention_bias", False, False)
    # Gemma 2 and 3 name their activation by a key of their own. Files from before there was one say "gelu", and
    # `transformers` computes the tanh form for them.
    older = fields.values.get("hidden_act")
    meant = fields.defaulted(hidden_activation="gelu_pytorch_tanh" if older in ("gelu", None) else older)
    found = sizes(fields, tied=True, activation=None)
    activation = meant.activation("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS)
    return found | {"activation": activation, "scaled_embedding": True}


def gemma(fields: Fields) -> DecoderConfig:
    """Gemma: GELU gates, wide heads, tied embeddings."""
    return DecoderConfig(**_gemma_sizes(fields))


def gemma2(fields: Fields) -> DecoderConfig:
    """Gemma 2: every other layer is local, scores and logits are capped."""
    return DecoderConfig(
        **_gemma_sizes(fields),
        post_norms=True,
        attention_cap=fields.number("attn_logit_softcapping", 0.0),
        logit_cap=fields.number("final_logit_softcapping", 0.0),
        **layer_pattern(fields, window=fields.integer("sliding_window", 4096), every=2),
    )


def gemma3_text(fields: Fields) -> DecoderConfig:
    """Gemma 3: of six layers five are local, with a rotary base of their own.

    The published files from 4B up leave out what is as in `transformers`' class.
    """
    fields = fields.renamed(sliding_window_pattern="_sliding_window_pattern").defaulted(
        vocab_size=262208, num_attention_heads=8, num_key_value_heads=4, head_dim=256, rope_theta=1e6
    )
    window, every = fields.integer("sliding_window", 4096), fields.integer("sliding_window_pattern", 6)
    return DecoderConfig(
        **_gemma_sizes(fields),
        **layer_pattern(fields, window=window, every=every),
        post_norms=True,
        qk_norm=True,
        local_theta=fields.number("rope_local_base_freq", 1e4),
    )


def gemma3(fields: Fields) -> DecoderConfig:
    """The language model of a multimodal Gemma 3."""
    return gemma3_text(fields.inside("text_config"))


def _deepseek(fields: Fields, *, biased: bool) -> DecoderConfig:
    fields.require("attention_bias", False, False)
    fields.require("moe_layer_freq", 1, 1)
    expert_ffn = fields.integer("moe_intermediate_size")
    return DecoderConfig(
        **sizes(fields) | {"head_dim": fields.integer("qk_nope_head_dim")},
        latent_rank=fields.integer("kv_lora_rank"),
        query_rank=fields.integer("q_lora_rank", 0),
        rope_dim=fields.integer("qk_rope_head_dim"),
        value_dim=fields.integer("v_head_dim"),
        experts=fields.integer("n_routed_experts"),
        active=fields.integer("num_experts_per_tok"),
        expert_ffn=expert_ffn,
        shared_ffn=fields.integer("n_shared_experts", 0) * expert_ffn,
        dense_layers=fields.integer("first_k_dense_replace", 0),
        balance=fields.number("aux_loss_alpha", 0.001),
        biased_router=biased,
        dispatch="gather",
    )


def deepseek_v2(fields: Fields) -> DecoderConfig:
    """DeepSeek-V2: latent attention, shared experts."""
    return _deepseek(fields, biased=False)


def deepseek_v3(fields: Fields) -> DecoderConfig:
    """DeepSeek-V3 and R1, and Kimi K2, without the layer that predicts a further token."""
    fields.require("topk_method", "noaux_tc", "noaux_tc")
    return _deepseek(fields, biased=True)
