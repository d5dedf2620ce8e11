"""jaxwt: fast wavelet transforms, and wavelet packets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxwt
import pywt

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

JAXWT = Catalogue("jaxwt", "library", "audio")
CATALOGUES = [JAXWT]


@JAXWT.program("jaxwt_wavedec_waverec", "infer")
def _() -> Call:
    def denoised(x: Any) -> Any:
        parts = jaxwt.wavedec(x, pywt.Wavelet("db4"), level=5)
        parts = [parts[0], *(jnp.sign(part) * jnp.maximum(jnp.abs(part) - 0.1, 0) for part in parts[1:])]
        return jaxwt.waverec(parts, pywt.Wavelet("db4"))

    return denoised, (spec(64, 65536),)


@JAXWT.program("jaxwt_wavedec2_images", "infer", group="vision")
def _() -> Call:
    return (lambda x: jaxwt.wavedec2(x, pywt.Wavelet("haar"), level=4)), (spec(32, 512, 512),)


@JAXWT.program("jaxwt_wavedec2_loss_train", "train", group="vision")
def _() -> Call:
    def loss(x: Any, y: Any) -> Any:
        parts = jaxwt.wavedec2(x - y, pywt.Wavelet("db2"), level=3)
        return sum(jnp.abs(leaf).mean() for leaf in jax.tree.leaves(parts))

    return jax.value_and_grad(loss), (spec(16, 256, 256), spec(16, 256, 256))


@JAXWT.program("jaxwt_wavedec3_volume", "infer", group="science")
def _() -> Call:
    return (lambda x: jaxwt.wavedec3(x, pywt.Wavelet("db2"), level=2)), (spec(4, 128, 128, 128),)


@JAXWT.program("jaxwt_packets", "infer")
def _() -> Call:
    def packets(x: Any) -> Any:
        tree = jaxwt.WaveletPacket(x, pywt.Wavelet("sym4"), mode="symmetric", max_level=4)
        return jnp.stack([tree[node] for node in tree.get_level(4)])

    return packets, (spec(32, 16384),)
