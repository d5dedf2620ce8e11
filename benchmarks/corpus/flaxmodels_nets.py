"""flaxmodels: VGG, ResNets and GPT-2 in Linen, without their weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import flaxmodels as fm

from benchmarks.corpus.linen_models import inference
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

FLAXMODELS = Catalogue("flaxmodels", "library", "vision")
CATALOGUES = [FLAXMODELS]
BARE = {"pretrained": None, "normalize": False}


def classified(name: str, batch: int, **options: Any) -> Call:
    """Logits of images."""
    model = getattr(fm, name)(output="logits", num_classes=1000, **BARE, **options)
    return inference(model, spec(batch, 224, 224, 3), train=False)


FLAXMODELS.add("flaxmodels_resnet34_infer", partial(classified, "ResNet34", 64), "infer")
FLAXMODELS.add("flaxmodels_resnet152_f16_infer", partial(classified, "ResNet152", 32, dtype="float16"), "infer", "f16")
FLAXMODELS.add("flaxmodels_vgg16_infer", partial(classified, "VGG16", 32), "infer")


@dataclass(frozen=True)
class Sizes:
    """What the library's GPT-2 reads of a configuration."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 512
    n_head: int = 8
    n_layer: int = 6
    n_inner: int | None = None
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    scale_attn_weights: bool = True


@FLAXMODELS.program("flaxmodels_gpt2_infer", "infer", group="llm")
def _() -> Call:
    return inference(fm.gpt2.GPT2LMHeadModel(config=Sizes(), pretrained=None), integers(50257, 8, 512), training=False)
