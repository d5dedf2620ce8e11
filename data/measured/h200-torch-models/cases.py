"""Models of torchvision and transformers, without weights, none of which PyTorch's kernel rules were made with.

Built by `../torch_cases.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, Case, Drawn, functions_of, images, language, torch, transformer, tv, vision  # noqa: E402

CASES: dict[str, Case] = {
    "tv_regnet_y_3_2gf_train_amp": vision(tv.regnet_y_3_2gf, 64, optimizer="sgd", **AMP),
    "tv_efficientnet_v2_s_infer_bf16": vision(tv.efficientnet_v2_s, 64, train=False, dtype=BF16),
    "tv_vit_b_16_train_amp": vision(tv.vit_b_16, 64, **AMP),
    "tv_densenet121_train_f32": vision(tv.densenet121, 64, optimizer="sgd"),
    "tv_vgg16_infer_f32": vision(tv.vgg16, 64, train=False),
    "tv_efficientnet_b0_train_amp": vision(tv.efficientnet_b0, 128, optimizer="sgd", **AMP),
    "hf_gpt2_medium_train_amp": language(
        "GPT2LMHeadModel",
        {"vocab_size": 50257, "n_embd": 1024, "n_layer": 24, "n_head": 16, "use_cache": False},
        8,
        1024,
        labels=True,
        **AMP,
    ),
    "hf_gemma3_1b_infer_bf16": language(
        "Gemma3ForCausalLM",
        {"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "use_cache": False},
        4,
        1024,
        labels=False,
        dtype=BF16,
    ),
    "hf_mixtral_small_train_bf16": language(
        "MixtralForCausalLM",
        {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
         "num_attention_heads": 16, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
         "use_cache": False},
        4,
        1024,
        labels=True,
        dtype=BF16,
    ),
    "hf_roberta_base_infer_f16": language(
        "RobertaForMaskedLM", {"vocab_size": 50265, "max_position_embeddings": 514}, 64, 256, labels=False,
        dtype=torch.float16,
    ),
    "hf_gpt_neox_410m_infer_bf16": language(
        "GPTNeoXForCausalLM",
        {"vocab_size": 50304, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "use_cache": False},
        4,
        2048,
        labels=False,
        dtype=BF16,
    ),
    "hf_whisper_small_train_amp": Case(
        make=lambda: transformer(
            "WhisperForConditionalGeneration",
            {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
             "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "use_cache": False},
        ),
        named={"input_features": Drawn((8, 80, 3000)), "labels": Drawn((8, 256), 51864)},
        **AMP,
    ),
    "hf_clip_vit_b32_train_amp": Case(
        make=lambda: transformer("CLIPModel", {}),
        named={"input_ids": Drawn((128, 77), 49000), "pixel_values": images(128)},
        flags={"return_loss": True},
        **AMP,
    ),
    "hf_wav2vec2_base_infer_f32": Case(
        make=lambda: transformer("Wav2Vec2Model", {}), inputs=(Drawn((8, 160000)),), train=False
    ),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
