"""Models of torchvision and transformers of families that no other folder here has: a third exam.

Built by `../torch_cases.py`. None was measured or looked at when what predicts them was made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, Case, functions_of, images, language, transformer, tv, vision  # noqa: E402


def wide(**sizes: int) -> dict[str, Any]:
    """A configuration of a decoder, without its cache."""
    return {"use_cache": False, **sizes}


CASES: dict[str, Any] = {
    "tv_resnext50_32x4d_train_amp": vision(tv.resnext50_32x4d, 64, optimizer="sgd", **AMP),
    "hf_distilbert_base_train_amp": language(
        "DistilBertForMaskedLM", {"vocab_size": 30522}, 32, 256, labels=True, **AMP
    ),
    "hf_starcoder2_small_train_bf16": language(
        "Starcoder2ForCausalLM",
        wide(vocab_size=49152, hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16,
             num_key_value_heads=2),
        4,
        1024,
        labels=True,
        dtype=BF16,
    ),
    "hf_stablelm_small_train_amp": language(
        "StableLmForCausalLM",
        wide(vocab_size=50304, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
             num_key_value_heads=16),
        4,
        1024,
        labels=True,
        **AMP,
    ),
    "hf_gpt_neo_125m_infer_bf16": language(
        "GPTNeoForCausalLM",
        wide(vocab_size=50257, hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]]),
        8,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_bart_base_train_amp": language(
        "BartForConditionalGeneration",
        wide(vocab_size=50265, d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12,
             decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
        16,
        256,
        labels=True,
        **AMP,
    ),
    "hf_deit_base_infer_bf16": Case(
        make=lambda: transformer("DeiTForImageClassification", {"num_labels": 1000}),
        named={"pixel_values": images(64)},
        train=False,
        dtype=BF16,
    ),
    "hf_mobilevit_small_infer_f32": Case(
        make=lambda: transformer("MobileViTForImageClassification", {"num_labels": 1000}),
        named={"pixel_values": images(64, 256)},
        train=False,
    ),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
