"""The families of the zoo: which module builds their programs, in which modes, and their published sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshcast.zoo.shapes import (
    bert,
    convnext,
    decoders,
    dit,
    dlrm,
    efficientnet,
    gpt,
    hybrid,
    low_bit,
    lstm,
    mamba,
    mlp,
    mmdit,
    pyramids,
    resnet,
    rnnt,
    ssd,
    swin,
    t5,
    translation,
    unet,
    video,
    vit,
    volumes,
)
from meshcast.zoo.shapes.shape import Shape

Unit = Literal["tokens", "images", "samples"]
_LANGUAGE = ("train", "forward", "prefill", "decode")
_PLAIN = ("train", "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models that differ in their configuration alone; their throughput is counted in `unit`."""

    module: str
    unit: Unit
    modes: tuple[str, ...]
    shapes: Mapping[str, Shape]


FAMILIES = {
    family.module: family
    for family in (
        ModelFamily(module="decoder", unit="tokens", modes=_LANGUAGE, shapes=decoders.SHAPES),
        ModelFamily(module="gpt", unit="tokens", modes=_LANGUAGE, shapes=gpt.SHAPES),
        ModelFamily(module="bert", unit="tokens", modes=_PLAIN, shapes=bert.SHAPES),
        ModelFamily(module="t5", unit="tokens", modes=_LANGUAGE, shapes=t5.SHAPES),
        ModelFamily(module="mamba", unit="tokens", modes=_LANGUAGE, shapes=mamba.SHAPES),
        ModelFamily(module="hybrid", unit="tokens", modes=_PLAIN, shapes=hybrid.SHAPES),
        ModelFamily(module="lstm", unit="tokens", modes=_PLAIN, shapes=lstm.SHAPES),
        ModelFamily(module="transformer", unit="tokens", modes=_PLAIN, shapes=translation.TRANSFORMERS),
        ModelFamily(module="gnmt", unit="tokens", modes=_PLAIN, shapes=translation.GNMTS),
        ModelFamily(module="rnnt", unit="samples", modes=_PLAIN, shapes=rnnt.SHAPES),
        ModelFamily(module="vit", unit="images", modes=_PLAIN, shapes=vit.SHAPES),
        ModelFamily(module="resnet", unit="images", modes=_PLAIN, shapes=resnet.SHAPES),
        ModelFamily(module="efficientnet", unit="images", modes=_PLAIN, shapes=efficientnet.SHAPES),
        ModelFamily(module="convnext", unit="images", modes=_PLAIN, shapes=convnext.SHAPES),
        ModelFamily(module="swin", unit="images", modes=_PLAIN, shapes=swin.SHAPES),
        ModelFamily(module="ssd", unit="images", modes=_PLAIN, shapes=ssd.SHAPES),
        ModelFamily(module="pyramids", unit="images", modes=_PLAIN, shapes=pyramids.SHAPES),
        ModelFamily(module="volumes", unit="samples", modes=_PLAIN, shapes=volumes.SHAPES),
        ModelFamily(module="keyword_spotting", unit="samples", modes=_PLAIN, shapes=low_bit.KEYWORDS),
        ModelFamily(module="cifar_resnet", unit="images", modes=_PLAIN, shapes=low_bit.CIFAR),
        ModelFamily(module="dit", unit="images", modes=_PLAIN, shapes=dit.SHAPES),
        ModelFamily(module="mmdit", unit="images", modes=_PLAIN, shapes=mmdit.SHAPES),
        ModelFamily(module="video", unit="samples", modes=_PLAIN, shapes=video.SHAPES),
        ModelFamily(module="unet", unit="images", modes=_PLAIN, shapes=unet.SHAPES),
        ModelFamily(module="dlrm", unit="samples", modes=("train",), shapes=dlrm.SHAPES),
        ModelFamily(module="mlp_shard_map", unit="samples", modes=("train",), shapes=mlp.SHAPES),
    )
}
