"""Models as `transformers` and `torchvision` release them, on the meta device: released widths, few layers, no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

try:
    import torchvision.models as vision
except RuntimeError:
    # torchvision's wheel for CUDA beside torch's for CPUs: its own operators do not load. Models of classification use none, but
    # importing them registers shapes for these two.
    _operators = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision.models as vision
import transformers as hf
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import MBConvConfig
from torchvision.models.regnet import BlockParams

BATCH, LENGTH = 2, 128


class Case(NamedTuple):
    """A module with what its `forward` takes, and what training adds to that."""

    module: Any
    inputs: dict[str, Any]
    labels: dict[str, Any]


def tokens(length: int = LENGTH) -> Any:
    return torch.empty(BATCH, length, dtype=torch.long, device="meta")


def language(kind: Any, config: Any, *, masked: bool = False) -> Case:
    mask = {"attention_mask": tokens()} if masked else {}
    return Case(kind(config), {"input_ids": tokens(), **mask}, {"labels": tokens()})


def pair(kind: Any, config: Any, **inputs: Any) -> Case:
    """An encoder and a decoder, which has inputs of its own; labels are of the same length."""
    return Case(kind(config), {**inputs, "decoder_input_ids": tokens(16)}, {"labels": tokens(16)})


def images(module: Any, name: str = "x") -> Case:
    return Case(module, {name: torch.empty(BATCH, 3, 224, 224)}, {})


MODELS: Mapping[str, Callable[[], Case]] = {
    "llama": lambda: language(hf.LlamaForCausalLM, hf.LlamaConfig(num_hidden_layers=1)),
    "qwen3": lambda: language(hf.Qwen3ForCausalLM, hf.Qwen3Config(num_hidden_layers=1), masked=True),
    "gpt2": lambda: language(hf.GPT2LMHeadModel, hf.GPT2Config(n_layer=1)),
    "bert": lambda: language(hf.BertForMaskedLM, hf.BertConfig(num_hidden_layers=1), masked=True),
    "t5": lambda: pair(
        hf.T5ForConditionalGeneration, hf.T5Config(num_layers=1, decoder_start_token_id=0), input_ids=tokens()
    ),
    "mixtral": lambda: language(hf.MixtralForCausalLM, hf.MixtralConfig(num_hidden_layers=1)),
    "whisper": lambda: pair(
        hf.WhisperForConditionalGeneration,
        hf.WhisperConfig(encoder_layers=1, decoder_layers=1, encoder_layerdrop=0.1),
        input_features=torch.empty(BATCH, 80, 3000),
    ),
    "modernbert": lambda: language(
        hf.ModernBertForMaskedLM, hf.ModernBertConfig(num_hidden_layers=2, global_attn_every_n_layers=2)
    ),
    "vit": lambda: images(hf.ViTForImageClassification(hf.ViTConfig(num_hidden_layers=1)), "pixel_values"),
    "torchvision vit": lambda: images(
        vision.VisionTransformer(
            image_size=224, patch_size=16, num_layers=1, num_heads=12, hidden_dim=768, mlp_dim=3072
        )
    ),
    "swin": lambda: images(
        vision.SwinTransformer(
            patch_size=[4, 4], embed_dim=96, depths=[2], num_heads=[3], window_size=[7, 7], stochastic_depth_prob=0.2
        )
    ),
    "convnext": lambda: images(
        vision.ConvNeXt([CNBlockConfig(96, 192, 1), CNBlockConfig(192, None, 1)], stochastic_depth_prob=0.1)
    ),
    "regnet": lambda: images(vision.RegNet(BlockParams([1, 1], [48, 104], [8, 8], [1.0, 1.0], [2, 2], se_ratio=0.25))),
    "efficientnet": lambda: images(
        vision.EfficientNet(
            [MBConvConfig(1, 3, 1, 32, 16, 1, 1.0, 1.0), MBConvConfig(6, 3, 2, 16, 24, 2, 1.0, 1.0)],
            dropout=0.2,
            stochastic_depth_prob=0.2,
        )
    ),
    "densenet": lambda: images(vision.DenseNet(growth_rate=32, block_config=(2, 2), num_init_features=64)),
}


def built(name: str) -> Case:
    with torch.device("meta"):
        return MODELS[name]()
