"""Fully quantised networks: quantisers by hand, integers against what training computes, noise, storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast import predict
from meshcast.base import MeshcastError
from meshcast.zoo import build, models
from meshcast.zoo.architectures.cifar_resnet import network_of as resnet
from meshcast.zoo.architectures.cifar_resnet import weights as resnet_weights
from meshcast.zoo.architectures.fully_quantised import integers, start
from meshcast.zoo.architectures.keyword_spotting import network_of as keywords
from meshcast.zoo.architectures.keyword_spotting import weights as keyword_weights
from meshcast.zoo.layers.low_bit import FakeQuantised, IntegerOnly, Noise, Numbers, integer_layer, quantised, storage
from meshcast.zoo.shapes.low_bit import CIFAR, KEYWORDS, CifarConfig, KeywordConfig

SMALL_WORDS: KeywordConfig = KEYWORDS["fqconv-kws-tiny"].config
SMALL_IMAGES: CifarConfig = CIFAR["fqconv-resnet-tiny"].config


def test_quantisers_round_to_their_steps_and_clip() -> None:
    x = jnp.array([-3.0, -0.9, -0.2, 0.2, 0.9, 3.0])
    ternary = quantised(x, jnp.log(2.0), 1, signed=True)
    assert ternary.values.tolist() == pytest.approx([-2, 0, 0, 0, 0, 2])
    two_bits = quantised(x, jnp.log(1.5), 3, signed=False)  # 0, 0.5, 1, 1.5
    assert two_bits.values.tolist() == pytest.approx([0, 0, 0, 0, 1.0, 1.5])
    assert float(two_bits.step) == pytest.approx(0.5)


def test_gradients_pass_rounding_and_stop_at_the_clip() -> None:
    def total(x: jax.Array, log_clip: jax.Array) -> jax.Array:
        return quantised(x, log_clip, 3, signed=False).values.sum()

    to_x, to_clip = jax.grad(total, argnums=(0, 1))(jnp.array([-1.0, 0.6, 2.0]), jnp.log(1.5))
    assert to_x.tolist() == pytest.approx([0, 1, 0])
    # dQ/ds: of what is clipped the clip itself, of what is rounded the rounding error: 0.5 - 0.6.
    assert float(to_clip) == pytest.approx(1.5 - 0.1, rel=1e-5)


@pytest.mark.parametrize("bits", [(8, 8), (2, 4)])
@pytest.mark.parametrize("kind", ["words", "images"])
def test_integers_compute_what_training_computed(kind: str, bits: tuple[int, int]) -> None:
    config: Any = SMALL_WORDS if kind == "words" else SMALL_IMAGES
    config = replace(config, weight_bits=bits[0], activation_bits=bits[1])
    network, shapes = (
        (keywords(config), keyword_weights(config)) if kind == "words" else (resnet(config), resnet_weights(config))
    )
    sample = (config.frames, config.coefficients) if kind == "words" else (config.image, config.image, 3)
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(8, *sample)), jnp.float32)
    params = start(shapes, network, config, inputs, jax.random.key(0))
    trained = jax.jit(lambda p, x: network(p, x, FakeQuantised(config)))(params, inputs)
    stored = integers(params, config, jnp.int8)
    run = jax.jit(lambda p, x: network(p, x, IntegerOnly(config, held_in=jnp.int8)))(stored, inputs)
    assert float(jnp.std(trained)) > 0.01
    # A sum that lies on the border of two steps may fall to either side; all others are the same numbers.
    close = jnp.abs(run - trained) < 0.02 * jnp.std(trained)
    assert float(jnp.mean(close)) > 0.9
    assert int(jnp.sum(jnp.argmax(run, -1) == jnp.argmax(trained, -1))) >= 7
    assert set(np.unique(np.asarray(jax.tree.leaves(stored["head"]["kernel"])[0]))) <= set(range(-127, 128))


def test_ternary_weights_are_three_codes() -> None:
    config = replace(SMALL_WORDS, weight_bits=2)
    inputs = jnp.ones((2, config.frames, config.coefficients))
    params = start(keyword_weights(config), keywords(config), config, inputs, jax.random.key(0))
    codes = np.asarray(integers(params, config, jnp.int8)["layers"][0]["kernel"])
    assert set(np.unique(codes)) == {-1, 0, 1}


def test_noise_is_drawn_from_seeds_and_only_where_it_is_asked_for() -> None:
    plain = build("fqconv-kws-tiny-forward")[1][1]
    noisy = build("fqconv-kws-tiny-forward", converter_noise=0.5)[1][1]
    assert set(plain) == {"inputs"}
    assert set(noisy) == {"inputs", "seeds"}
    config = SMALL_WORDS
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(4, config.frames, config.coefficients)), jnp.float32)
    made = start(keyword_weights(config), keywords(config), config, inputs, jax.random.key(0))
    stored = integers(made, config, jnp.int8)

    def scores(noise: Noise, seed: int) -> jax.Array:
        arithmetic = IntegerOnly(config, noise=noise, key=jax.random.key(seed), held_in=jnp.int8)
        return keywords(config)(stored, inputs, arithmetic)

    silent = scores(Noise(), 0)
    for noise in (Noise(weights=0.5), Noise(activations=0.5), Noise(converter=0.5)):
        first, again, other = scores(noise, 0), scores(noise, 0), scores(noise, 1)
        assert jnp.array_equal(first, again)
        assert not jnp.array_equal(first, other)
        assert not jnp.array_equal(first, silent)


@pytest.mark.parametrize("noise", [Noise(weights=0.2), Noise(activations=0.2), Noise(weights=0.2, activations=0.2)])
def test_noise_is_the_same_in_training_and_in_inference(noise: Noise) -> None:
    """With the same draws, sums differ by rounding alone; zeros meet no noise of weights, and what pads them has none at all."""
    config, rng = replace(SMALL_WORDS, weight_bits=2, activation_bits=4), np.random.default_rng(0)
    layer = {"kernel": jnp.asarray(rng.normal(size=(3, 5, 7)), jnp.float32), "weight_clip": jnp.log(jnp.float32(2.0))}
    coded = integer_layer(layer, config, edge=False, zero=-8, held_in=jnp.int8)
    for codes in (np.zeros((2, 6, 5)), rng.integers(0, 16, (2, 6, 5))):
        trained = FakeQuantised(config, noise=noise, key=jax.random.key(3)).convolved(
            Numbers(jnp.asarray(codes, jnp.float32) * 0.5, jnp.float32(0.5)), layer, dilation=2
        )
        run = IntegerOnly(config, noise=noise, key=jax.random.key(3), held_in=jnp.int8).convolved(
            Numbers(jnp.asarray(codes - 8, jnp.int8), jnp.float32(0.5), -8), coded, dilation=2
        )
        np.testing.assert_allclose(run.values * run.step, trained.values, atol=1e-4)
        if noise == Noise(weights=0.2) and not codes.any():
            assert not run.values.any()


def test_parameters_are_stored_in_their_bits() -> None:
    _, (params, _), _ = build("fqconv-resnet20-forward")
    assert params["stages"][0][0]["inner"]["kernel"].dtype == storage(2)
    assert params["first"]["kernel"].dtype == params["head"]["kernel"].dtype == storage(8)
    by_hand = 3 * 9 * 16 + sum(9 * (a + b) * b for a, b in ((16, 16), (16, 32), (32, 64)))
    by_hand += 2 * 2 * 9 * (16**2 + 32**2 + 64**2) + 16 * 32 + 32 * 64 + 64 * 10
    scalars = 2 * 19 + 2 + 2 + 1  # two clips a convolution, one each of shortcuts, input, pool and head
    assert models()["fqconv-resnet20"].parameters() == by_hand + scalars


def test_fewer_bits_are_fewer_bytes_and_no_slower() -> None:
    found = [
        predict("fqconv-kws-forward", on="tpu-v5e", fidelity="roofline", levers=False, settings=settings)
        for settings in (
            {"weight_bits": "8", "activation_bits": "8"},
            {"weight_bits": "4", "activation_bits": "4"},
            {"weight_bits": "2", "activation_bits": "2"},
        )
    ]
    arguments = [each.memory.arguments for each in found]
    assert arguments == sorted(set(arguments), reverse=True)
    times = [each.step_time_s or 0.0 for each in found]
    assert times == sorted(times, reverse=True)


def test_widths_that_nothing_stores_are_refused() -> None:
    with pytest.raises(MeshcastError, match="between 2 and 8"):
        build("fqconv-kws-forward", weight_bits=1)


@pytest.mark.parametrize(
    ("setting", "value", "steps"),
    [("weight_noise", 1e30, 2), ("activation_noise", 15.1, 15), ("converter_noise", 16, 15)],
)
@pytest.mark.parametrize("mode", ["-forward", ""])
def test_noise_that_leaves_nothing_is_refused(setting: str, value: float, steps: int, mode: str) -> None:
    with pytest.raises(MeshcastError, match=f"has {steps}: more leaves nothing") as refused:
        build(f"fqconv-kws-tiny{mode}", None, **{setting: float(value)})
    assert f"0 to {steps}" in str(refused.value)


def test_noise_on_an_analogue_array_is_said_to_be_physical() -> None:
    """Random numbers are timed as what the program asks for, and it is told how much of the step they are."""

    def told(device: str, **settings: Any) -> list[str]:
        found = predict("fqconv-kws-tiny-forward", on=device, levers=False, settings=settings)
        return [each for each in found.warnings if "random numbers" in each]

    assert not told("aimc-28nm")
    (products,) = told("aimc-28nm", weight_noise="0.2")
    assert "products of floats beside the array" in products
    assert "is physical and costs nothing" in products
    (sums,) = told("aimc-28nm", converter_noise="0.2")
    assert "products of floats" not in sums
    assert not told("edge-tpu", weight_noise="0.2")  # a digital one has no noise
