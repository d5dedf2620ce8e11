"""audax: spectrograms, their augmentation, and classifiers of sound."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax
from audax.core import functional
from audax.models.convnext import ConvNeXt
from audax.models.efficientnet import efficientnet_b0
from audax.transforms.spec_augment import SpecAugment

from benchmarks.corpus.linen_models import inference, step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

AUDAX = Catalogue("audax", "library", "audio")
CATALOGUES = [AUDAX]


def mel(waves: Any, bank: Any) -> Any:
    """Log mel spectrograms of waves."""
    window = jnp.hanning(400)
    power = functional.spectrogram(waves, 0, window, 400, 160, 400, 2.0, False, True, "reflect", True)
    return jnp.log(functional.apply_melscale(power, bank) + 1e-5)


@AUDAX.program("audax_log_mel_infer", "infer")
def _() -> Call:
    return mel, (spec(64, 160000), spec(201, 80))


@AUDAX.program("audax_spec_augment_infer", "infer")
def _() -> Call:
    def augmented(key: Any, features: Any) -> Any:
        return SpecAugment(freq_param=24, time_param=48)(features, key)[0]

    return augmented, (KEY, spec(64, 1000, 80, 1))


@AUDAX.program("audax_convnext_train", "train")
def _() -> Call:
    model = ConvNeXt(num_classes=35, depths=(2, 2, 6, 2), dims=(48, 96, 192, 384))
    return step(model, cross_entropy, (spec(64, 96, 96, 1),), integers(35, 64), optimizer=optax.adamw(1e-3))


@AUDAX.program("audax_efficientnet_infer", "infer")
def _() -> Call:
    return inference(efficientnet_b0(num_classes=35), spec(64, 96, 96, 1), train=False)
