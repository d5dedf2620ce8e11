"""FLOPs of whole programs against the field's formulas and published tables."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast import load
from meshcast.workload import read_workload
from meshcast.zoo import models


def matrix_flops(name: str, **settings: Any) -> float:
    """By the program that every command gets of a model, which tests keep (`tests/captured_programs.py`)."""
    program = load(name, settings={key: str(value) for key, value in settings.items()})
    return sum(read_workload(program).totals.matrix_flops.values())


# Without recomputation; experts with exactly the room that their tokens need, tokens moved without products.
EXACT = {"remat": "autodiff"}
ROUTED = {**EXACT, "dispatch": "gather", "capacity_factor": 1.0}


@pytest.mark.parametrize(
    ("name", "settings", "seq", "unused"),
    [
        # Parameters that no product sees: positions, and an embedding that is not the output projection too.
        ("gpt2-xl", EXACT, 1024, 1024 * 1600),
        ("megatron-1t", EXACT, 2048, 2048 * 25600),
        ("llama3-405b", EXACT, 8192, 128256 * 16384),
        ("qwen2.5-7b", EXACT, 2048, 152064 * 3584),
        ("qwen3-0.6b", EXACT, 2048, 0),
        ("gemma-7b", EXACT, 2048, 0),
        ("gemma2-9b", EXACT, 4096, 0),
        # Of eight experts two are active.
        ("mixtral-8x7b", ROUTED, 2048, 32000 * 4096 + 32 * 6 * 3 * 4096 * 14336),
    ],
)
def test_training_is_six_per_parameter_and_token(name: str, settings: dict[str, Any], seq: int, unused: int) -> None:
    """6 N + 12 L (heads x width) s FLOP a token (Kaplan 2020; Chowdhery 2022, appendix B), N as a product sees them."""
    model = models()[name]
    config = model.config
    width = config.heads * config.head_dim if hasattr(config, "head_dim") else config.dim
    expected = 6 * (model.parameters() - unused) + 12 * config.layers * width * seq
    assert matrix_flops(name, batch=1, seq=seq, **settings) / seq == pytest.approx(expected, rel=0.01)


def test_latent_attention_and_its_experts() -> None:
    """DeepSeek-V3 activates 37B of 671B; its heads score with 192 numbers and sum 128."""
    model, seq = models()["deepseek-v3"], 2048
    c = model.config
    idle = (c.layers - c.dense_layers) * (c.experts - c.active) * 3 * c.dim * c.expert_ffn
    active = model.parameters() - idle - c.vocab * c.dim
    assert active == pytest.approx(37e9, rel=0.02)
    expected = 6 * active + 6 * c.layers * c.heads * (192 + 128) * seq
    assert matrix_flops("deepseek-v3", batch=1, seq=seq, **ROUTED) / seq == pytest.approx(expected, rel=0.01)


def test_megatrons_formula() -> None:
    """72 B s l h^2 (1 + s / 6h + V / 12lh) without recomputation (Narayanan 2021, section 5.1).

    Recomputing a layer repeats its forward products, but for the last, 8 B s h^2, whose result no gradient needs.
    """
    batch, s, layers, h, v = 2, 2048, 96, 12288, 51200
    expected = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert matrix_flops("gpt3-175b", batch=batch, vocab=v) == pytest.approx(expected, rel=0.01)
    again = batch * s * layers * ((24 - 8) * h**2 + 4 * s * h)
    assert matrix_flops("gpt3-175b", batch=batch, vocab=v, remat="full") == pytest.approx(expected + again, rel=0.01)


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds"),
    [
        # torchvision's tables of weights, and Peebles 2023, appendix.
        ("vit-l16", 61.55), ("dit-s2", 6.06), ("dit-xl8", 7.39), ("swin-tiny", 4.50), ("swin-base", 15.44),
    ],
)  # fmt: skip
def test_one_image_forward(name: str, giga_multiply_adds: float) -> None:
    assert matrix_flops(f"{name}-forward", batch=1) / 2e9 == pytest.approx(giga_multiply_adds, rel=0.01)


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds"),
    [("resnet18", 1.81), ("resnet50", 4.09), ("efficientnet-b0", 0.386), ("convnext-tiny", 4.46)],
)
def test_convolutions_forward(name: str, giga_multiply_adds: float) -> None:
    """Torchvision's tables count products with the border's zeros too: eight times the side has an eighth of them."""
    wide = matrix_flops(f"{name}-forward", batch=1, image=8 * 224) / 2e9
    assert wide / 64 == pytest.approx(giga_multiply_adds, rel=0.01)
    assert 0.9 * giga_multiply_adds < matrix_flops(f"{name}-forward", batch=1) / 2e9 < giga_multiply_adds


def test_decoding_reads_every_weight_once() -> None:
    """2 N a token, and 4 L (heads x width) per position of the context."""
    model = models()["llama3-8b"]
    expected = 2 * (model.parameters() - 128256 * 4096) + 4 * 32 * 4096 * 8192
    assert matrix_flops("llama3-8b-decode", batch=16, context=8192) / 16 == pytest.approx(expected, rel=0.01)


def test_a_prompt_needs_one_row_of_logits() -> None:
    prompt = matrix_flops("llama3-8b-prefill", batch=1, seq=2048)
    scored = matrix_flops("llama3-8b-forward", batch=1, seq=2048)
    assert scored - prompt == 2 * 2047 * 4096 * 128256


def test_a_window_costs_two_windows_a_position() -> None:
    """Local layers of Gemma 2 at three windows and more: 2 W scores a position instead of s."""
    settings: dict[str, Any] = {"batch": 1, "seq": 16384, "layers": 2}
    local, whole = (matrix_flops("gemma2-2b-forward", **settings, **more) for more in ({}, {"global_every": 1}))
    assert whole - local == 4 * 8 * 256 * 16384 * (16384 - 2 * 4096)


def test_accumulating_changes_no_flops() -> None:
    whole, parts = (matrix_flops("gpt2-tiny", batch=8, accumulate=n) for n in (1, 4))
    assert whole == parts


def test_a_layer_without_a_gate_has_two_products() -> None:
    """6 FLOP a weight and token: the gate's dim x ffn of every layer are gone."""
    settings = {"batch": 1, "seq": 64, "layers": 2, "activation": "relu", **EXACT}
    gated, plain = (matrix_flops("llama3-tiny", **settings, gated=gate) for gate in (True, False))
    assert gated - plain == 6 * 2 * 64 * 128 * 64
