"""Models of transformers of families that no other folder here has: a fourth exam.

Built by `../torch_cases.py`. None was measured or looked at when what predicts them was made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
from torch_cases import AMP, BF16, Case, Drawn, functions_of, images, language, transformer  # noqa: E402


def pictures(make: str, config: dict[str, Any], batch: int, size: int = 224, **how: Any) -> Any:
    """A classifier of transformers by its class and configuration."""
    labels = {"labels": Drawn((batch,), 1000)} if how.get("train", True) else {}
    return Case(
        make=lambda: transformer(make, {"num_labels": 1000, **config}),
        named={"pixel_values": images(batch, size), **labels},
        **how,
    )


CASES: dict[str, Any] = {
    "hf_granite_small_train_bf16": language(
        "GraniteForCausalLM",
        {"vocab_size": 49152, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
         "num_attention_heads": 16, "num_key_value_heads": 4, "use_cache": False},
        4,
        1024,
        labels=True,
        dtype=BF16,
    ),
    "hf_phi3_small_train_amp": language(
        "Phi3ForCausalLM",
        {"vocab_size": 32064, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
         "num_attention_heads": 16, "num_key_value_heads": 16, "pad_token_id": 0, "use_cache": False},
        4,
        1024,
        labels=True,
        **AMP,
    ),
    "hf_cohere_small_infer_bf16": language(
        "CohereForCausalLM",
        {"vocab_size": 64000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16,
         "num_attention_heads": 32, "num_key_value_heads": 8, "use_cache": False},
        4,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_deberta_v2_base_train_amp": language(
        "DebertaV2ForMaskedLM",
        {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
         "num_attention_heads": 12, "relative_attention": True, "position_buckets": 256, "share_att_key": True,
         "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm"},
        16,
        256,
        labels=True,
        **AMP,
    ),
    "hf_mobilebert_train_amp": language(
        "MobileBertForMaskedLM", {"vocab_size": 30522, "num_hidden_layers": 12}, 32, 128, labels=True, **AMP
    ),
    "hf_squeezebert_infer_f16": language(
        "SqueezeBertForMaskedLM", {"vocab_size": 30522}, 32, 256, labels=False, dtype=torch.float16
    ),
    "hf_pvt_v2_b1_train_amp": pictures("PvtV2ForImageClassification", {}, 64, **AMP),
    "hf_levit_train_amp": pictures("LevitForImageClassification", {}, 128, optimizer="sgd", **AMP),
    "hf_hiera_tiny_infer_bf16": pictures("HieraForImageClassification", {}, 64, train=False, dtype=BF16),
    "hf_bit_50_infer_f32": pictures("BitForImageClassification", {}, 64, train=False),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
