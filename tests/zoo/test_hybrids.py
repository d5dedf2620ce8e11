"""Mamba-2 in blocks, and models over pictures and videos: what their products are worth by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.zoo import models
from meshcast.zoo.architectures.hybrid import mixed
from tests.zoo.test_flops import matrix_flops


def test_blocks_are_the_recurrence() -> None:
    """Position by position h = exp(a) h + s B x, y = C h."""
    config = models()["hybrid-tiny"].config
    batch, length, heads, width, groups, state = 2, 32, 4, 16, 2, 8
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.normal(keys[0], (batch, length, heads, width))
    steps = jax.random.uniform(keys[1], (batch, length, heads))
    decays = -jax.random.uniform(keys[2], (batch, length, heads))
    b, c = (jax.random.normal(key, (batch, length, groups, state)) for key in keys[3:])
    found = mixed(x, steps, decays, b, c, config)
    held = np.zeros((batch, heads, width, state))
    for place in range(length):
        each_b, each_c = (np.repeat(np.asarray(y[:, place]), heads // groups, axis=1) for y in (b, c))
        added = np.asarray(steps[:, place, :, None] * x[:, place])[..., None] * each_b[:, :, None]
        held = held * np.exp(np.asarray(decays[:, place]))[..., None, None] + added
        np.testing.assert_allclose(found[:, place], np.einsum("bhpn,bhn->bhp", held, each_c), rtol=1e-3, atol=1e-4)
    assert jnp.shape(found) == x.shape


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("nemotron-h-8b", 8.1),
        ("nemotron-h-56b", 56.3),
        ("nemotron-nano-9b-v2", 8.9),
        ("wan2.1-14b", 14.3),
        ("pixart-alpha", 0.6),
    ],
)
def test_sizes_that_are_published_in_round_numbers(name: str, billions: float) -> None:
    assert round(models()[name].parameters() / 1e9, 1) == billions


def test_a_picture_of_flux() -> None:
    """Twice the weights of what each token passes, and 4 S^2 h of attention in all 57 layers.

    Each of a text's 256 and a picture's 256 tokens passes 12 h^2 weights a layer; what modulates norms is made once a picture.
    """
    h, tokens = 3072, 512
    layers = 19 * 12 * h**2 + 38 * 12 * h**2
    attended = 57 * 4 * tokens**2 * h
    found = matrix_flops("flux.1-schnell-forward", batch=1, image=32)
    assert found == pytest.approx(2 * tokens * layers + attended, rel=0.02)


def test_a_video_of_wan() -> None:
    """A token passes 4 h^2 of self-attention, 2 h^2 across to the text, and the feed-forward half; a word its keys and values."""
    h, ffn, tokens, words = 1536, 8960, 4096, 512
    layer = 2 * tokens * (6 * h**2 + 2 * h * ffn) + 2 * words * 2 * h**2 + 4 * tokens * (tokens + words) * h
    assert matrix_flops("wan2.1-1.3b-forward", batch=1, tokens=tokens) == pytest.approx(30 * layer, rel=0.01)
