"""Models of torchvision and transformers of families that no other folder here has, in other batches and lengths.

Built by `../torch_cases.py`. None was measured or looked at when what predicts them was made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, Case, Drawn, functions_of, images, language, torch, transformer, tv, vision  # noqa: E402

CASES: dict[str, Any] = {
    "tv_inception_v3_infer_f32": vision(
        lambda weights: tv.inception_v3(weights=weights, init_weights=False), 96, train=False
    ),
    "tv_swin_v2_t_train_amp": vision(tv.swin_v2_t, 48, **AMP),
    "tv_mnasnet1_0_train_f32": vision(tv.mnasnet1_0, 96, optimizer="sgd"),
    "tv_maxvit_t_infer_bf16": vision(tv.maxvit_t, 32, train=False, dtype=BF16),
    "tv_vit_l_16_infer_bf16": vision(tv.vit_l_16, 48, train=False, dtype=BF16),
    "tv_googlenet_infer_bf16": vision(
        lambda weights: tv.googlenet(weights=weights, init_weights=False), 24, train=False, dtype=BF16
    ),
    "hf_albert_base_train_amp": language(
        "AlbertForMaskedLM",
        {"vocab_size": 30000, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        32,
        256,
        labels=True,
        **AMP,
    ),
    "hf_modernbert_base_train_amp": language("ModernBertForMaskedLM", {"vocab_size": 50368}, 16, 512, labels=True, **AMP),
    "hf_bloom_560m_infer_f16": language(
        "BloomForCausalLM",
        {"vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16, "use_cache": False},
        6,
        512,
        labels=False,
        dtype=torch.float16,
    ),
    "hf_phi_1_infer_bf16": language(
        "PhiForCausalLM",
        {"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
         "num_attention_heads": 32, "use_cache": False},
        2,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_mistral_small_train_bf16": language(
        "MistralForCausalLM",
        {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 16,
         "num_attention_heads": 16, "num_key_value_heads": 4, "sliding_window": None, "use_cache": False},
        3,
        2048,
        labels=True,
        dtype=BF16,
    ),
    "hf_electra_base_infer_f32": language(
        "ElectraForMaskedLM",
        {"vocab_size": 30522, "embedding_size": 768, "hidden_size": 768, "num_hidden_layers": 12,
         "num_attention_heads": 12, "intermediate_size": 3072},
        8,
        128,
        labels=False,
    ),
    "hf_dinov2_base_train_amp": Case(
        make=lambda: transformer("Dinov2ForImageClassification", {"image_size": 224, "patch_size": 14, "num_labels": 1000}),
        named={"pixel_values": images(32), "labels": Drawn((32,), 1000)},
        **AMP,
    ),
    "hf_segformer_b1_infer_bf16": Case(
        make=lambda: transformer(
            "SegformerForSemanticSegmentation",
            {"hidden_sizes": [64, 128, 320, 512], "depths": [2, 2, 2, 2], "decoder_hidden_size": 256, "num_labels": 150},
        ),
        named={"pixel_values": images(8, 512)},
        train=False,
        dtype=BF16,
    ),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
