"""Qwix: Linen models quantised after and during training, and its quantised products."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import qwix
from flax import linen as nn

from benchmarks.corpus.linen_models import Lm1b, Residual, inference, step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import cross_entropy, integers, spec

QWIX = Catalogue("qwix", "library", "llm")
CATALOGUES = [QWIX]
I8, I4, F8, BF16 = jnp.int8, jnp.int4, jnp.float8_e4m3fn, jnp.bfloat16


class Gated(nn.Module):
    """Layers with a gated feed-forward network."""

    layers: int = 4
    hidden: int = 4096
    dtype: Any = BF16

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """The last layer's output."""
        make = partial(nn.Dense, use_bias=False, dtype=self.dtype, param_dtype=self.dtype)
        for _ in range(self.layers):
            y = nn.RMSNorm(dtype=self.dtype)(x)
            x = x + make(x.shape[-1])(nn.silu(make(self.hidden)(y)) * make(self.hidden)(y))
        return x


def served(model: nn.Module, weights: Any, acts: Any, *data: Any, tile: int | None = None, modules: str = ".*") -> Call:
    """A model quantised after training: the parameters of the modules that match are narrow."""
    rule = qwix.QuantizationRule(module_path=modules, weight_qtype=weights, act_qtype=acts, tile_size=tile)
    return inference(qwix.quantize_model(model, qwix.PtqProvider([rule])), *data)


def trained(model: nn.Module, weights: Any, acts: Any, loss: Any, inputs: Any, *targets: Any, **options: Any) -> Call:
    """A training step whose products are quantised on the way."""
    rule = qwix.QtRule(weight_qtype=weights, act_qtype=acts, **options)
    return step(qwix.quantize_model(model, qwix.QtProvider([rule])), loss, inputs, *targets)


def mean_square(out: Any) -> Any:
    """A loss that asks for no target."""
    return jnp.square(out.astype(jnp.float32)).mean()


ROWS, FEW = spec(4096, 1536, dtype=BF16), spec(8, 2048, dtype=BF16)
QWIX.add("qwix_ptq_int8_gated_infer", partial(served, Gated(), I8, I8, ROWS), "infer", "int8")
QWIX.add("qwix_ptq_int8_weights_decode", partial(served, Gated(8, 8192), I8, None, FEW), "decode", "int8")
QWIX.add("qwix_ptq_int4_tiles_decode", partial(served, Gated(8, 8192), I4, None, FEW, tile=128), "decode", "int8")
QWIX.add("qwix_ptq_f8_gated_infer", partial(served, Gated(), F8, F8, ROWS), "infer", "f8")
QWIX.add(
    "qwix_ptq_int8_lm_infer",
    partial(served, Lm1b(dtype=BF16), I8, I8, integers(30000, 8, 512), modules=".*Block.*"),
    "infer",
    "int8",
)
QWIX.add(
    "qwix_ptq_int8_resnet_infer",
    partial(served, Residual((2, 2, 2, 2), training=False), I8, I8, spec(32, 224, 224, 3)),
    "infer",
    "int8",
    group="vision",
)
QWIX.add("qwix_qt_int8_gated_train", partial(trained, Gated(2), I8, I8, mean_square, (ROWS,)), "train", "int8")
QWIX.add(
    "qwix_qt_f8_gated_train",
    partial(trained, Gated(2), F8, F8, mean_square, (ROWS,), bwd_qtype=jnp.float8_e5m2),
    "train",
    "f8",
)
QWIX.add(
    "qwix_qat_int8_lm_train",
    partial(
        trained,
        Lm1b(layers=4, dtype=BF16),
        I8,
        I8,
        cross_entropy,
        (integers(30000, 16, 256),),
        integers(30000, 16, 256),
    ),
    "train",
    "int8",
)


@QWIX.program("qwix_quantized_einsum_infer", "infer", "int8", origin="helper")
def _() -> Call:
    def product(x: Any, w: Any) -> Any:
        narrow = qwix.quantize(w, I8, channelwise_axes=(0, 2))
        return qwix.dequantize(
            qwix.quantize(jnp.einsum("btd,hdk->bthk", x, qwix.dequantize(narrow)), I8, channelwise_axes=(0,))
        )

    return product, (spec(8, 512, 2048, dtype=BF16), spec(16, 2048, 128, dtype=BF16))


@QWIX.program("qwix_ragged_dot_int8_infer", "infer", "int8", origin="helper")
def _() -> Call:
    def product(x: Any, w: Any, sizes: Any) -> Any:
        return qwix.ragged_dot(
            qwix.quantize(x, I8, channelwise_axes=(0,)), qwix.quantize(w, I8, channelwise_axes=(0, 2)), sizes
        )

    return product, (spec(4096, 1024, dtype=BF16), spec(8, 1024, 4096, dtype=BF16), integers(512, 8))
