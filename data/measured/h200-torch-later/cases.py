"""Further models of torchvision and transformers, measured when everything that predicts them was made.

Built by `../torch_cases.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, functions_of, language, torch, tv, vision  # noqa: E402

CASES: dict[str, Any] = {
    "tv_resnet101_train_amp": vision(tv.resnet101, 64, optimizer="sgd", **AMP),
    "tv_mobilenet_v2_train_amp": vision(tv.mobilenet_v2, 128, optimizer="sgd", **AMP),
    "tv_convnext_small_infer_bf16": vision(tv.convnext_small, 64, train=False, dtype=BF16),
    "tv_swin_s_train_amp": vision(tv.swin_s, 32, **AMP),
    "hf_distilbert_train_amp": language(
        "DistilBertForMaskedLM", {"vocab_size": 30522}, 32, 256, labels=True, **AMP
    ),
    "hf_opt_350m_infer_bf16": language(
        "OPTForCausalLM",
        {"vocab_size": 50272, "hidden_size": 1024, "word_embed_proj_dim": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "use_cache": False},
        4,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_bart_base_train_amp": language(
        "BartForConditionalGeneration",
        {"vocab_size": 50265, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
         "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "use_cache": False},
        16,
        512,
        labels=True,
        **AMP,
    ),
    "tv_wide_resnet50_2_train_amp": vision(tv.wide_resnet50_2, 64, optimizer="sgd", **AMP),
    "tv_resnext50_32x4d_infer_bf16": vision(tv.resnext50_32x4d, 64, train=False, dtype=BF16),
    "tv_shufflenet_v2_x1_0_train_f32": vision(tv.shufflenet_v2_x1_0, 128, optimizer="sgd"),
    "hf_qwen2_05b_train_amp": language(
        "Qwen2ForCausalLM",
        {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
         "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True, "use_cache": False},
        4,
        512,
        labels=True,
        **AMP,
    ),
    "hf_t5_small_train_f32": language(
        "T5ForConditionalGeneration",
        {"vocab_size": 32128, "decoder_start_token_id": 0, "use_cache": False},
        16,
        256,
        labels=True,
    ),
    "hf_bert_large_infer_f16": language(
        "BertForMaskedLM",
        {"vocab_size": 30522, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16},
        16,
        384,
        labels=False,
        dtype=torch.float16,
    ),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
