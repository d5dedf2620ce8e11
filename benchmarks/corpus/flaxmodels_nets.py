"""flaxmodels: VGG and ResNets in Linen, without their weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import flaxmodels as fm

from benchmarks.corpus.linen_models import inference
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

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
