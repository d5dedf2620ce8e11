from __future__ import annotations

import pytest

from meshcast.estimate.measurements.halves import chosen_half, family, is_fitted

NAMES = [f"gemm-bf16-{n}x{n}" for n in range(200)]


@pytest.mark.parametrize(
    ("name", "shared"),
    [("llama3-8b-decode", "llama"), ("gpt2-small-b8", "gpt"), ("unet-infer", "unet"), ("3d-unet", "3d-unet")],
)
def test_variants_of_a_model_share_a_family(name: str, shared: str) -> None:
    assert family(name) == shared


def test_every_program_is_in_one_half() -> None:
    fitted = [name for name in NAMES if chosen_half(name, "fitted")]
    held_out = [name for name in NAMES if chosen_half(name, "held-out")]
    assert sorted(fitted + held_out) == sorted(NAMES)
    assert 70 < len(fitted) < 130
    assert all(chosen_half(name, "all") for name in NAMES)


def test_halves_are_the_same_in_every_version() -> None:
    """By the first byte of the name's SHA-256: a fit of today leaves out what one of last year did."""
    assert is_fitted("gemm-bf16-1x1")
    assert not is_fitted("gpt")
    assert not is_fitted("gpt2-small", whole_model=True)


def test_models_are_split_by_family() -> None:
    assert len({is_fitted(f"llama{n}-8b", whole_model=True) for n in range(20)}) == 1
