"""Models of diffusers (0.35, the last release line with Flax classes): the denoiser, its autoencoder and its control network."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from diffusers import FlaxAutoencoderKL, FlaxControlNetModel, FlaxUNet2DConditionModel

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec, training

DIFFUSERS = Catalogue("diffusers", "library", "vision")
CATALOGUES = [DIFFUSERS]
BF16, F32 = jnp.bfloat16, jnp.float32
SMALL = {
    "sample_size": 32,
    "block_out_channels": (128, 256, 384, 384),
    "layers_per_block": 1,
    "cross_attention_dim": 768,
}
CODES = {
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (64, 128, 256, 256), "layers_per_block": 1, "sample_size": 256,
}  # fmt: skip


def weights_of(model: Any, dtype: Any = F32) -> Any:
    """The shapes of a model's weights."""
    made = jax.eval_shape(model.init_weights, jax.random.key(0))
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), made)


def noisy(batch: int, size: int, dtype: Any) -> tuple[Any, ...]:
    """Noisy codes, their times, and the words that they are to show."""
    return spec(batch, 4, size, size, dtype=dtype), integers(1000, batch), spec(batch, 77, 768, dtype=dtype)


def denoising(batch: int, dtype: Any, **sizes: Any) -> Call:
    """One evaluation of the denoiser."""
    model = FlaxUNet2DConditionModel(dtype=dtype, **sizes)
    given = noisy(batch, sizes["sample_size"], dtype)
    return (lambda params, *x: model.apply({"params": params}, *x).sample), (weights_of(model, dtype), *given)


def denoiser_step(batch: int, dtype: Any, **sizes: Any) -> Call:
    """A training step of the denoiser: mean squared error of the noise."""
    model = FlaxUNet2DConditionModel(dtype=dtype, **sizes)

    def loss(params: Any, noise: Any, *given: Any) -> Any:
        return jnp.mean((model.apply({"params": params}, *given, train=False).sample.astype(F32) - noise) ** 2)

    size = sizes["sample_size"]
    return training(loss, weights_of(model), (spec(batch, 4, size, size), *noisy(batch, size, dtype)))


def controlled(batch: int) -> Call:
    """One evaluation of the control network."""
    model = FlaxControlNetModel(dtype=BF16, **SMALL)
    given = (*noisy(batch, 32, BF16), spec(batch, 3, 256, 256, dtype=BF16))
    return (lambda params, *x: model.apply({"params": params}, *x, return_dict=False)), (
        weights_of(model, BF16),
        *given,
    )


def decoded(batch: int, dtype: Any) -> Call:
    """Images of codes."""
    model = FlaxAutoencoderKL(dtype=dtype, **CODES)
    codes = spec(batch, 4, 32, 32, dtype=dtype)
    return (lambda params, x: model.apply({"params": params}, x, method=model.decode).sample), (
        weights_of(model, dtype),
        codes,
    )


def encoded(batch: int) -> Call:
    """A training step of the autoencoder's reconstruction."""
    model = FlaxAutoencoderKL(dtype=F32, **CODES)

    def loss(params: Any, images: Any) -> Any:
        mode = model.apply({"params": params}, images, method=model.encode).latent_dist.mode()
        return jnp.mean(
            (model.apply({"params": params}, mode.transpose(0, 3, 1, 2), method=model.decode).sample - images) ** 2
        )

    return training(loss, weights_of(model), (spec(batch, 3, 256, 256),))


add = DIFFUSERS.add
add("diffusers_unet_pass", lambda: denoising(8, BF16, **SMALL), "infer", dtype="bf16")
add("diffusers_unet_pass_f32", lambda: denoising(4, F32, **SMALL), "infer", dtype="f32")
add(
    "diffusers_unet_large_pass",
    lambda: denoising(2, BF16, sample_size=64, cross_attention_dim=768),
    "infer",
    dtype="bf16",
)
add("diffusers_unet_train", lambda: denoiser_step(8, BF16, **SMALL), "train", dtype="mixed")
add("diffusers_controlnet_pass", lambda: controlled(8), "infer", dtype="bf16")
add("diffusers_vae_decode", lambda: decoded(8, BF16), "infer", dtype="bf16")
add("diffusers_vae_decode_f32", lambda: decoded(4, F32), "infer", dtype="f32")
add("diffusers_vae_train_f32", lambda: encoded(4), "train", dtype="f32")
