"""The families of the zoo: which module builds their programs, in which modes, and their published sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshcast.models.shapes import decoders, dlrm, gpt, mlp, resnet, vit
from meshcast.models.shapes.shape import Shape

_LANGUAGE = ("train", "forward", "prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that differ in their configuration alone."""

    module: str
    modes: tuple[str, ...]
    shapes: Mapping[str, Shape]


FAMILIES = {
    family.module: family
    for family in (
        Family(module="decoder", modes=_LANGUAGE, shapes=decoders.SHAPES),
        Family(module="gpt", modes=_LANGUAGE, shapes=gpt.SHAPES),
        Family(module="resnet", modes=("train",), shapes=resnet.SHAPES),
        Family(module="vit", modes=("train", "forward"), shapes=vit.SHAPES),
        Family(module="dlrm", modes=("train",), shapes=dlrm.SHAPES),
        Family(module="mlp_shard_map", modes=("train",), shapes=mlp.SHAPES),
    )
}
