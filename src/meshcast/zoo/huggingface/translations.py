"""Every `model_type` that is understood, and what the other families' keys mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.zoo.huggingface import decoders, variants
from meshcast.zoo.huggingface.fields import Fields
from meshcast.zoo.shapes import bert, gpt, mamba, resnet, t5, vit


def _gpt2(fields: Fields) -> gpt.GptConfig:
    fields.require("tie_word_embeddings", True, True)
    return gpt.GptConfig(
        layers=fields.integer("n_layer"),
        dim=fields.integer("n_embd"),
        heads=fields.integer("n_head"),
        vocab=fields.integer("vocab_size"),
        positions=fields.integer("n_positions"),
        ffn=fields.integer("n_inner", 0),
        activation=fields.activation("activation_function", "gelu_new", gpt.ACTIVATIONS),
    )


def _opt(fields: Fields) -> gpt.GptConfig:
    fields.require("tie_word_embeddings", True, True)
    fields.require("enable_bias", True, True)
    dim = fields.integer("hidden_size")
    narrow = fields.integer("word_embed_proj_dim", dim)
    return gpt.GptConfig(
        layers=fields.integer("num_hidden_layers"),
        dim=dim,
        heads=fields.integer("num_attention_heads"),
        vocab=fields.integer("vocab_size"),
        # OPT's table of positions starts two rows late.
        positions=fields.integer("max_position_embeddings") + 2,
        ffn=fields.integer("ffn_dim"),
        activation=fields.activation("activation_function", "relu", gpt.ACTIVATIONS),
        post_norm=not fields.flag("do_layer_norm_before", True),
        embedding_dim=0 if narrow == dim else narrow,
    )


def _bert(fields: Fields) -> bert.BertConfig:
    fields.activation("hidden_act", "gelu", ("exact_gelu",))
    fields.require("position_embedding_type", "absolute", "absolute")
    fields.require("is_decoder", False, False)
    return bert.BertConfig(
        layers=fields.integer("num_hidden_layers"),
        dim=fields.integer("hidden_size"),
        heads=fields.integer("num_attention_heads"),
        vocab=fields.integer("vocab_size"),
        positions=fields.integer("max_position_embeddings"),
        types=fields.integer("type_vocab_size"),
        ffn=fields.integer("intermediate_size"),
    )


def _t5(fields: Fields) -> t5.T5Config:
    gated = fields.word("feed_forward_proj", "relu", {"relu": "", "gated-gelu": "gated"})
    return t5.T5Config(
        layers=fields.integer("num_layers"),
        dim=fields.integer("d_model"),
        heads=fields.integer("num_heads"),
        ffn=fields.integer("d_ff"),
        head_dim=fields.integer("d_kv"),
        decoder_layers=fields.integer("num_decoder_layers", 0),
        vocab=fields.integer("vocab_size"),
        gated=bool(gated),
        tied=fields.flag("tie_word_embeddings", True),
        buckets=fields.integer("relative_attention_num_buckets", 32),
    )


def _classes(fields: Fields) -> int:
    """Classes by their labels, or by their number; two, as `transformers` has it, where neither is told."""
    labels = fields.values.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else fields.integer("num_labels", 2)


def _vit(fields: Fields) -> vit.VitConfig:
    fields.activation("hidden_act", "gelu", ("exact_gelu",))
    fields.require("num_channels", 3, 3)
    fields.require("qkv_bias", True, True)
    return vit.VitConfig(
        layers=fields.integer("num_hidden_layers"),
        dim=fields.integer("hidden_size"),
        heads=fields.integer("num_attention_heads"),
        patch=fields.integer("patch_size"),
        image=fields.integer("image_size"),
        classes=_classes(fields),
        ffn=fields.integer("intermediate_size"),
    )


def _resnet(fields: Fields) -> resnet.ResnetConfig:
    fields.require("num_channels", 3, 3)
    fields.require("downsample_in_first_stage", False, False)
    fields.require("downsample_in_bottleneck", False, False)
    bottleneck = fields.word("layer_type", "bottleneck", {"bottleneck": "yes", "basic": ""})
    blocks, widths, width = fields.integers("depths"), fields.integers("hidden_sizes"), fields.integer("embedding_size")
    wanted = tuple(width * 2**stage * (4 if bottleneck else 1) for stage in range(len(blocks)))
    if widths != wanted:
        raise UnsupportedError(
            f"hidden_sizes={list(widths)} of resnet is not modelled", where=fields.where, fix=f"only {list(wanted)} is"
        )
    return resnet.ResnetConfig(
        blocks=blocks,
        bottleneck=bool(bottleneck),
        width=width,
        image=fields.integer("image_size", 224),
        classes=_classes(fields),
    )


def _mamba(fields: Fields) -> mamba.MambaConfig:
    fields.require("use_bias", False, False)
    fields.require("use_conv_bias", True, True)
    fields.require("tie_word_embeddings", True, True)
    rank = fields.values.get("time_step_rank")
    return mamba.MambaConfig(
        layers=fields.integer("num_hidden_layers"),
        dim=fields.integer("hidden_size"),
        vocab=fields.integer("vocab_size"),
        inner=fields.integer("intermediate_size", fields.integer("expand", 2) * fields.integer("hidden_size")),
        state=fields.integer("state_size"),
        window=fields.integer("conv_kernel"),
        step_rank=0 if rank == "auto" else fields.integer("time_step_rank", 0),
    )


TRANSLATIONS: dict[str, tuple[str, Callable[[Fields], Any]]] = {
    "llama": ("decoder", decoders.llama),
    "granite": ("decoder", decoders.llama),
    "mistral": ("decoder", decoders.mistral),
    "phi3": ("decoder", decoders.mistral),
    "qwen2": ("decoder", decoders.qwen2),
    "qwen3": ("decoder", decoders.qwen3),
    "qwen2_moe": ("decoder", decoders.qwen2_moe),
    "qwen3_moe": ("decoder", decoders.qwen3_moe),
    "gemma": ("decoder", decoders.gemma),
    "gemma2": ("decoder", decoders.gemma2),
    "gemma3_text": ("decoder", decoders.gemma3_text),
    "gemma3": ("decoder", decoders.gemma3),
    "mixtral": ("decoder", decoders.mixtral),
    "deepseek_v2": ("decoder", decoders.deepseek_v2),
    "deepseek_v3": ("decoder", decoders.deepseek_v3),
    "kimi_k2": ("decoder", decoders.deepseek_v3),
    "olmoe": ("decoder", decoders.olmoe),
    "glm": ("decoder", decoders.glm),
    "glm4": ("decoder", decoders.glm4),
    "glm4_moe": ("decoder", decoders.glm4_moe),
    "gpt_neox": ("decoder", variants.gpt_neox),
    "gptj": ("decoder", variants.gptj),
    "phi": ("decoder", variants.phi),
    "stablelm": ("decoder", variants.stablelm),
    "mpt": ("decoder", variants.mpt),
    "falcon": ("decoder", variants.falcon),
    "bloom": ("decoder", variants.bloom),
    "starcoder2": ("decoder", variants.starcoder2),
    "olmo": ("decoder", variants.olmo),
    "olmo2": ("decoder", variants.olmo2),
    "cohere": ("decoder", variants.cohere),
    "cohere2": ("decoder", variants.cohere2),
    "gpt_oss": ("decoder", variants.gpt_oss),
    "gpt2": ("gpt", _gpt2),
    "opt": ("gpt", _opt),
    "bert": ("bert", _bert),
    "roberta": ("bert", _bert),
    "xlm-roberta": ("bert", _bert),
    "camembert": ("bert", _bert),
    "t5": ("t5", _t5),
    "mamba": ("mamba", _mamba),
    "vit": ("vit", _vit),
    "resnet": ("resnet", _resnet),
}
"""By model_type: the family that builds it, and the translation of its keys."""
