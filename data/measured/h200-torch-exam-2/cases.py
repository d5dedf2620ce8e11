"""Models of torchvision and transformers of families that no other folder here has: a second exam.

Built by `../torch_cases.py`. None was measured or looked at when what predicts them was made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, Case, Drawn, functions_of, images, language, torch, transformer, tv, vision  # noqa: E402


def wide(**sizes: int) -> dict[str, Any]:
    """A configuration of a decoder, without its cache."""
    return {"use_cache": False, **sizes}


CASES: dict[str, Any] = {
    "tv_squeezenet1_1_train_amp": vision(tv.squeezenet1_1, 128, optimizer="sgd", **AMP),
    "tv_alexnet_train_f32": vision(tv.alexnet, 256, optimizer="sgd"),
    "hf_olmo2_small_train_bf16": language(
        "Olmo2ForCausalLM",
        wide(vocab_size=50304, hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16,
             pad_token_id=1),
        4,
        1024,
        labels=True,
        dtype=BF16,
    ),
    "hf_falcon_small_infer_bf16": language(
        "FalconForCausalLM",
        wide(vocab_size=65024, hidden_size=1024, num_hidden_layers=16, num_attention_heads=16),
        4,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_gptj_small_train_amp": language(
        "GPTJForCausalLM",
        wide(vocab_size=50400, n_embd=1024, n_layer=12, n_head=16, rotary_dim=32),
        4,
        512,
        labels=True,
        **AMP,
    ),
    "hf_mpnet_base_infer_f16": language(
        "MPNetForMaskedLM", {"vocab_size": 30527}, 32, 256, labels=False, dtype=torch.float16
    ),
    "hf_pegasus_small_train_amp": language(
        "PegasusForConditionalGeneration",
        wide(vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
             decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048),
        16,
        256,
        labels=True,
        **AMP,
    ),
    "hf_beit_base_infer_bf16": Case(
        make=lambda: transformer("BeitForImageClassification", {"num_labels": 1000}),
        named={"pixel_values": images(64)},
        train=False,
        dtype=BF16,
    ),
    "hf_convnextv2_tiny_train_amp": Case(
        make=lambda: transformer("ConvNextV2ForImageClassification", {"num_labels": 1000}),
        named={"pixel_values": images(64), "labels": Drawn((64,), 1000)},
        **AMP,
    ),
    "hf_poolformer_s12_infer_f32": Case(
        make=lambda: transformer("PoolFormerForImageClassification", {"num_labels": 1000}),
        named={"pixel_values": images(64)},
        train=False,
    ),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
