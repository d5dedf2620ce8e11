"""Narrow models of few layers: steps that are the host's alone, of families whose larger models were looked at.

Built by `../torch_cases.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_cases import AMP, BF16, Case, Drawn, functions_of, images, language, torch, tv  # noqa: E402


def pictures(make: Callable[..., Any], *, train: bool = True, **how: Any) -> Any:
    """A classifier of four small pictures."""
    classes = (Drawn((4,), 1000),) if train else ()
    return Case(make=lambda: make(weights=None), inputs=(images(4, 64),), targets=classes, train=train, **how)


def words(make: str, *, labels: bool = True, **how: Any) -> Any:
    """A language model of six layers of 128 channels, on two rows of 64 tokens."""
    config = {"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 6,
              "num_attention_heads": 4, **how.pop("config", {})}  # fmt: skip
    return language(make, config, 2, 64, labels=labels, **how)


GROUPED = {"num_key_value_heads": 2, "use_cache": False}
CASES: dict[str, Any] = {
    "tv_resnet18_train_amp": pictures(tv.resnet18, optimizer="sgd", **AMP),
    "tv_mobilenet_v2_train_f32": pictures(tv.mobilenet_v2, optimizer="sgd"),
    "tv_convnext_tiny_train_amp": pictures(tv.convnext_tiny, **AMP),
    "tv_swin_t_infer_bf16": pictures(tv.swin_t, train=False, dtype=BF16),
    "tv_shufflenet_v2_x1_0_infer_f32": pictures(tv.shufflenet_v2_x1_0, train=False),
    "tv_resnet50_infer_bf16": pictures(tv.resnet50, train=False, dtype=BF16),
    "hf_llama_train_amp": words("LlamaForCausalLM", config=GROUPED, **AMP),
    "hf_qwen3_train_bf16": words("Qwen3ForCausalLM", config={**GROUPED, "head_dim": 32}, dtype=BF16),
    "hf_bert_train_amp": words("BertForMaskedLM", **AMP),
    "hf_t5_train_f32": words(
        "T5ForConditionalGeneration",
        config={"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 3, "num_heads": 4, "decoder_start_token_id": 0,
                "pad_token_id": 0, "use_cache": False},
    ),
    "hf_opt_infer_bf16": words(
        "OPTForCausalLM", labels=False, config={"ffn_dim": 512, "word_embed_proj_dim": 128, "use_cache": False}, dtype=BF16
    ),
    "hf_roberta_infer_f16": words("RobertaForMaskedLM", labels=False, dtype=torch.float16),
    "hf_modernbert_train_amp": words(
        "ModernBertForMaskedLM",
        config=dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1), **AMP
    ),
    "hf_llama_infer_bf16": words("LlamaForCausalLM", labels=False, config=GROUPED, dtype=BF16),
}  # fmt: skip
build, for_meshcast, __getattr__ = functions_of(CASES)
