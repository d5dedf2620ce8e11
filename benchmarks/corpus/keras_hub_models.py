"""KerasHub on JAX: backbones at or below the size of their smallest presets, with a head for training, and cached decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import keras_hub

from benchmarks.corpus.keras_models import inference_of, step_of, under, variables
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

HUB = Catalogue("keras-hub", "library", "llm")
CATALOGUES = [HUB]


def inputs_of(model: Any, batch: int, length: int, vocabulary: int) -> Any:
    """The shapes of a backbone's inputs: sizes left open are the batch first and then the sequence's length."""

    def shaped(tensor: Any) -> Any:
        sizes = [batch, *(length if size is None else size for size in tensor.shape[1:])]
        if "int" not in tensor.dtype and tensor.dtype != "bool":
            return spec(*sizes, dtype=tensor.dtype)
        return integers(vocabulary if "token" in tensor.name else 2, *sizes, dtype=tensor.dtype)

    return jax.tree.map(shaped, model.input)


def backbone(name: str, mode: str, batch: int, length: int, sizes: dict[str, Any]) -> Call:
    """A backbone's inference, or a training step of it with a linear head on its sequence or image features."""
    body = getattr(keras_hub.models, f"{name}Backbone")(**sizes)
    given = inputs_of(body, batch, length, sizes.get("vocabulary_size", sizes.get("vocab_size", 2)))
    if mode == "infer":
        return inference_of(body, given)
    out = body.output
    out = out.get("sequence_output", next(iter(out.values()))) if isinstance(out, dict) else out
    model = keras.Model(body.input, keras.layers.Dense(16, dtype="float32")(out))

    def loss(y: Any, logits: Any) -> Any:
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))

    shape = [batch, *(length if size is None else size for size in out.shape[1:-1])]
    return step_of(model, loss, given, integers(16, *shape), keras.optimizers.AdamW(1e-4))


def encoder(layers: int, dim: int, vocabulary: int = 30522, heads: str = "num_heads", **more: Any) -> dict[str, Any]:
    """The sizes of a text encoder."""
    sizes = {"num_layers": layers, "hidden_dim": dim, "intermediate_dim": 4 * dim, heads: dim // 64}
    return {"vocabulary_size": vocabulary, **sizes, **more}


def decoder(layers: int, dim: int, vocabulary: int, groups: int, hidden: int, **more: Any) -> dict[str, Any]:
    """The sizes of a decoder with grouped queries."""
    sizes = {"num_layers": layers, "hidden_dim": dim, "intermediate_dim": hidden, "num_query_heads": dim // 64}
    return {"vocabulary_size": vocabulary, **sizes, "num_key_value_heads": groups, **more}


VIT = {"image_shape": (224, 224, 3), "patch_size": 16, "num_layers": 12, "num_heads": 6, "hidden_dim": 384}
MIT: dict[str, Any] = {
    "layerwise_depths": [2, 2, 2, 2],
    "num_layers": 4,
    "layerwise_num_heads": [1, 2, 5, 8],
    "layerwise_sr_ratios": [8, 4, 2, 1],
    "max_drop_path_rate": 0.1,
    "layerwise_patch_sizes": [7, 3, 3, 3],
    "layerwise_strides": [4, 2, 2, 2],
    "image_shape": (256, 256, 3),
    "hidden_dims": [32, 64, 160, 256],
}
RESNET_D = {
    "input_conv_filters": [32, 32, 64],
    "input_conv_kernel_sizes": [3, 3, 3],
    "stackwise_num_filters": [64, 128, 256, 512],
    "stackwise_num_blocks": [2, 2, 2, 2],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "basic_block_vd",
    "image_shape": (224, 224, 3),
}
CSP = {
    "stem_filters": 32,
    "stem_kernel_size": 3,
    "stem_strides": 1,
    "stackwise_depth": [1, 2, 4, 4, 2],
    "stackwise_strides": [2, 2, 2, 2, 2],
    "stackwise_num_filters": [64, 128, 256, 512, 1024],
    "block_type": "dark_block",
    "bottle_ratio": [0.5] + [1.0] * 4,
    "block_ratio": [1.0] + [0.5] * 4,
    "expand_ratio": [2.0] + [1.0] * 4,
    "stage_type": "csp",
    "image_shape": (224, 224, 3),
}
# These keep arrays that are no variables, or read numbers back while they are made.
ASKING = ("SwinTransformer", "Gemma", "Gemma3", "ViT", "ViTDet")
VISION = "vision"
for name, mode, dtype, batch, length, group, sizes in (
    ("Bert", "train", "mixed", 32, 256, "llm", encoder(6, 512)),
    ("Albert", "infer", "f32", 32, 256, "llm", encoder(12, 768, 30000, embedding_dim=128)),
    ("DistilBert", "train", "f32", 16, 256, "llm", encoder(6, 768)),
    ("Roberta", "infer", "bf16", 32, 512, "llm", encoder(12, 768, 50265)),
    (
        "Electra",
        "train",
        "bf16",
        32,
        256,
        "llm",
        {
            "vocab_size": 30522,
            "num_layers": 12,
            "hidden_dim": 256,
            "embedding_dim": 128,
            "intermediate_dim": 1024,
            "num_heads": 4,
        },
    ),
    ("DebertaV3", "train", "mixed", 8, 256, "llm", encoder(6, 384, 128100)),
    ("RoformerV2", "infer", "f32", 16, 512, "llm", encoder(6, 768, 50000, head_size=64)),
    ("GPTNeoX", "infer", "bf16", 8, 512, "llm", encoder(12, 768, 50432)),
    ("OPT", "train", "mixed", 8, 512, "llm", encoder(6, 768, 50272)),
    ("Bloom", "infer", "bf16", 4, 1024, "llm", encoder(12, 1024, 65536)),
    ("Falcon", "infer", "bf16", 8, 512, "llm", encoder(8, 1024, 50304, "num_attention_heads")),
    ("Mistral", "infer", "bf16", 4, 1024, "llm", decoder(8, 1024, 32000, 4, 3584, sliding_window=256)),
    ("Mixtral", "infer", "bf16", 4, 512, "llm", decoder(4, 768, 32000, 4, 2048, num_experts=8)),
    (
        "Gemma3",
        "train",
        "bf16",
        4,
        512,
        "llm",
        decoder(
            6,
            640,
            32000,
            1,
            2048,
            head_dim=256,
            image_size=None,
            use_sliding_window_attention=True,
            sliding_window_size=128,
        ),
    ),
    ("Phi3", "infer", "f16", 4, 512, "llm", decoder(8, 1024, 32064, 16, 2816)),
    ("Qwen3", "train", "mixed", 4, 512, "llm", decoder(6, 768, 32000, 4, 2304, head_dim=128)),
    (
        "Qwen3Moe",
        "train",
        "bf16",
        4,
        256,
        "llm",
        decoder(2, 512, 32000, 2, 1024, moe_intermediate_dim=384, num_experts=16),
    ),
    (
        "RWKV7",
        "infer",
        "bf16",
        4,
        128,
        "sequence",
        {"hidden_size": 512, "head_size": 64, "num_layers": 4, "vocabulary_size": 32000, "intermediate_dim": 1792},
    ),
    ("Bart", "train", "mixed", 16, 256, "llm", encoder(4, 512, 50265)),
    ("T5", "train", "bf16", 16, 256, "llm", encoder(4, 512, 32128)),
    ("ViT", "train", "mixed", 64, 0, VISION, {**VIT, "mlp_dim": 1536}),
    ("DeiT", "infer", "f16", 64, 0, VISION, {**VIT, "intermediate_dim": 1536}),
    (
        "DINOV2",
        "infer",
        "bf16",
        32,
        0,
        VISION,
        {"patch_size": 14, "num_layers": 12, "hidden_dim": 384, "num_heads": 6, "intermediate_dim": 1536},
    ),
    (
        "SwinTransformer",
        "train",
        "mixed",
        32,
        0,
        VISION,
        {
            "image_shape": (224, 224, 3),
            "embed_dim": 96,
            "depths": [2, 2, 6, 2],
            "num_heads": [3, 6, 12, 24],
            "window_size": 7,
        },
    ),
    ("MiT", "train", "f32", 16, 0, VISION, MIT),
    (
        "ViTDet",
        "infer",
        "bf16",
        2,
        0,
        VISION,
        {
            "hidden_size": 768,
            "num_layers": 12,
            "intermediate_dim": 3072,
            "num_heads": 12,
            "global_attention_layer_indices": [2, 5, 8, 11],
            "image_shape": (1024, 1024, 3),
        },
    ),
    ("ResNet", "train", "f32", 32, 0, VISION, RESNET_D),
    ("CSPNet", "infer", "bf16", 64, 0, VISION, CSP),
    ("XLMRoberta", "train", "mixed", 16, 256, "llm", encoder(6, 768, 64000)),
    ("Llama", "train", "bf16", 4, 1024, "llm", decoder(6, 1024, 32000, 4, 2816)),
    ("GPT2", "train", "f32", 4, 512, "llm", encoder(6, 768, 50257)),
    ("Qwen", "infer", "f32", 4, 512, "llm", decoder(6, 896, 32000, 2, 4864)),
    ("Gemma", "infer", "f16", 8, 512, "llm", decoder(6, 1024, 32000, 1, 4096, head_dim=256)),
):
    made = partial(backbone, name, mode, batch, length, sizes)
    HUB.add(
        f"kerashub_{name.lower()}_{mode}",
        partial(under, dtype, made, traced=name not in ASKING),
        mode,
        dtype,
        group=group,
    )


def decoding(name: str, sizes: dict[str, Any], batch: int, length: int, heads: int, head: int, dtype: Any) -> Call:
    """A token through a causal model with its cache of keys and values."""
    body = getattr(keras_hub.models, f"{name}Backbone")(**sizes)
    model = getattr(keras_hub.models, f"{name}CausalLM")(backbone=body, preprocessor=None)
    cache = spec(batch, sizes["num_layers"], 2, length, heads, head, dtype=dtype)

    def turn(values: Any, tokens: Any, cache: Any, index: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(model.variables, values, strict=True))):
            logits, _, cache = model.call_with_cache(tokens, cache, index)
        return jnp.argmax(logits[:, -1], -1), cache

    return turn, (variables(model.variables), integers(sizes["vocabulary_size"], batch, 1), cache, integers(length))


BF16 = jnp.bfloat16
for name, dtype, batch, length, heads, head, sizes in (
    ("GPT2", "bf16", 1, 1024, 12, 64, encoder(12, 768, 50257)),
    ("Llama3", "bf16", 16, 2048, 8, 64, decoder(8, 1024, 32000, 8, 2816)),
    ("Gemma", "f32", 8, 1024, 1, 256, decoder(6, 1024, 32000, 1, 4096, head_dim=256)),
    ("Qwen3", "bf16", 32, 1024, 4, 128, decoder(8, 768, 32000, 4, 2304, head_dim=128)),
    ("Mistral", "bf16", 8, 512, 4, 64, decoder(8, 1024, 32000, 4, 3584, sliding_window=512)),
):
    kept = BF16 if dtype == "bf16" else jnp.float32
    make = partial(decoding, name, sizes, batch, length, heads, head, kept)
    HUB.add(f"kerashub_{name.lower()}_decode_b{batch}", partial(under, dtype, make), "decode", dtype)
