"""Accuracy of a fully quantised keyword spotter against its bits and noise, trained here in little more than a minute of CPU.

    python examples/low_bit/accuracy.py [--steps N] [--seed N] [--json]

The network of the zoo (`fqconv-kws`), made small; words that are drawn and not recorded: each of eight is an order of four
sounds, said at its own speed, loudness and time, in noise. Quantisation is gradual, as FQ-Conv trains: 8 bits first, then 4,
then 2, each from the weights before. One network is trained once more with noise on weights, activations and sums. Every network
is then run in integers (`IntegerOnly`) on words it has not seen, with noise as an analogue accelerator has it: Gaussian, in
steps of each quantiser. A draw of noise on weights is one chip: accuracies are means over several.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshcast.zoo.architectures.fully_quantised import integers, start
from meshcast.zoo.architectures.keyword_spotting import network_of, weights
from meshcast.zoo.layers.low_bit import FakeQuantised, IntegerOnly, Noise
from meshcast.zoo.layers.pieces import cross_entropy
from meshcast.zoo.optimizers import adamw
from meshcast.zoo.shapes.low_bit import KeywordConfig

CONFIG = KeywordConfig(
    frames=32,
    coefficients=16,
    embedding=24,
    filters=24,
    dilations=(1, 2, 4),
    classes=8,
    weight_bits=8,
    activation_bits=8,
)
GRADUALLY = ((8, 8), (4, 4), (2, 4), (2, 2))  # (bits of weights, of activations)
NOISY_FROM = (2, 4)
NOISE_LEVELS = (0.0, 0.2, 0.4)
TRAINING_NOISE = 0.2
SOUNDS, SOUNDS_OF_A_WORD = 4, 4
BATCH, TESTED = 64, 512
CHIPS = 16  # draws of noise that an accuracy is the mean of


def words(rng: np.random.Generator, count: int, loudness_of_noise: float = 1.0) -> tuple[jax.Array, jax.Array]:
    """So many words of random classes: (frames of coefficients, classes)."""
    fixed = np.random.default_rng(7)  # what the language sounds like does not change from draw to draw
    sounds = fixed.normal(size=(SOUNDS, CONFIG.coefficients))
    orders = [fixed.permutation(SOUNDS) for _ in range(CONFIG.classes)]
    classes = rng.integers(0, CONFIG.classes, count)
    frames = np.zeros((count, CONFIG.frames, CONFIG.coefficients))
    for row, word in enumerate(classes):
        length = rng.integers(4, 8)
        first = rng.integers(0, CONFIG.frames - SOUNDS_OF_A_WORD * length + 1)
        for place, sound in enumerate(orders[word]):
            at = first + place * length
            frames[row, at : at + length] = sounds[sound] * rng.uniform(0.7, 1.3)
    frames += loudness_of_noise * rng.normal(size=frames.shape)
    return jnp.asarray(frames, jnp.float32), jnp.asarray(classes, jnp.int32)


def trained(params: Any, config: KeywordConfig, noise: Noise, steps: int, rng: np.random.Generator) -> Any:
    """Parameters after so many steps of AdamW on fresh words."""
    network = network_of(config)

    def loss(params: Any, inputs: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
        return cross_entropy(network(params, inputs, FakeQuantised(config, noise=noise, key=key)), labels)

    @jax.jit
    def step(params: Any, state: Any, inputs: jax.Array, labels: jax.Array, key: jax.Array, rate: jax.Array) -> Any:
        grads = jax.grad(loss)(params, inputs, labels, key)
        return adamw(params, grads, state, learning_rate=rate, weight_decay=0.0, betas=(0.9, 0.99))

    zeros = jax.tree.map(jnp.zeros_like, params)
    state = {"m": zeros, "v": zeros, "count": jnp.zeros((), jnp.int32)}
    for number in range(steps):
        inputs, labels = words(rng, BATCH)
        rate = jnp.float32(4e-3 * 0.5 * (1 + np.cos(np.pi * number / steps)))
        params, state = step(params, state, inputs, labels, jax.random.key(rng.integers(2**31)), rate)
    return params


def accuracies(params: Any, config: KeywordConfig, tested: tuple[jax.Array, jax.Array]) -> dict[float, float]:
    """The share of words that integer inference gets right, by level of noise.

    Codes are held in int8, which a CPU has products of.
    """
    network = network_of(config)
    stored = integers(params, config, jnp.int8)

    def share(stored: Any, inputs: jax.Array, noise: Noise, seed: jax.Array | int) -> jax.Array:
        arithmetic = IntegerOnly(config, noise=noise, key=jax.random.key(seed), held_in=jnp.int8)
        return jnp.mean(jnp.argmax(network(stored, inputs, arithmetic), axis=-1) == tested[1])

    @jax.jit
    def noisy(stored: Any, inputs: jax.Array, at: jax.Array, seed: jax.Array) -> jax.Array:
        return share(stored, inputs, Noise(weights=at, activations=at, converter=at), seed)

    def mean(level: float) -> float:
        if not level:
            return float(jax.jit(lambda stored, inputs: share(stored, inputs, Noise(), 0))(stored, tested[0]))
        chips = [noisy(stored, tested[0], jnp.float32(level), jnp.uint32(chip)) for chip in range(CHIPS)]
        return float(np.mean(chips))

    return {level: mean(level) for level in NOISE_LEVELS}


def run(steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """One row a network: its bits, whether it was trained with noise, and its accuracy at each level of noise."""
    rng = np.random.default_rng(2 * seed)
    tested = words(np.random.default_rng(2 * seed + 1), TESTED)
    params = start(weights(CONFIG), network_of(CONFIG), CONFIG, words(rng, TESTED)[0], jax.random.key(seed))
    rows = []
    kept: dict[tuple[int, int], Any] = {}
    noisy = Noise(weights=TRAINING_NOISE, activations=TRAINING_NOISE, converter=TRAINING_NOISE)
    for bits, noise in (*((bits, Noise()) for bits in GRADUALLY), (NOISY_FROM, noisy)):
        config = replace(CONFIG, weight_bits=bits[0], activation_bits=bits[1])
        params = trained(kept[bits] if noise else params, config, noise, steps if kept else 2 * steps, rng)
        kept[bits] = params
        found = accuracies(params, config, tested)
        rows.append(
            {"weight_bits": bits[0], "activation_bits": bits[1], "trained_with_noise": bool(noise), "accuracy": found}
        )
    return rows


def main() -> None:
    """Trains, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=100, help="of training at each width, twice as many at the first (100)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the words, the first weights and the noise in training (0)"
    )
    parser.add_argument("--json", action="store_true", help="one object a row")
    given = parser.parse_args()
    rows = run(given.steps, given.seed)
    if given.json:
        for row in rows:
            print(json.dumps(row))
        return
    print(
        "| weights | activations | trained with noise | "
        + " | ".join(f"noise {level:g}" for level in NOISE_LEVELS)
        + " |"
    )
    print("|---|---|---|" + "---|" * len(NOISE_LEVELS))
    for row in rows:
        weights_in = "ternary" if row["weight_bits"] == 2 else f"{row['weight_bits']} bits"
        shares = " | ".join(f"{100 * share:.1f} %" for share in row["accuracy"].values())
        with_noise = f"{TRAINING_NOISE:g}" if row["trained_with_noise"] else "no"
        print(f"| {weights_in} | {row['activation_bits']} bits | {with_noise} | {shares} |")


if __name__ == "__main__":
    main()
