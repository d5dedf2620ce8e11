"""How far off a retimed step may be: which bound is meant, and how it is said."""

from __future__ import annotations

import pytest

from meshcast.jobs.traced.bounds import FROM_TPU, TO_TPU, WITH_SHAPES, WITHOUT_SHAPES, Bound, bound_of


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.18, 0.16, "from 18 % below to 16 % above"),
        (-0.82, -0.10, "10 to 82 % below"),
        (0.07, 0.22, "7 to 22 % above"),
    ],
)
def test_a_bound_in_words(low: float, high: float, words: str) -> None:
    bound = Bound(low=low, high=high)
    assert bound.words == words
    assert bound.holds(low)
    assert bound.holds((low + high) / 2)
    assert not bound.holds(high + 0.001)
    assert not bound.holds(low - 0.001)


@pytest.mark.parametrize(
    ("shaped", "recorded", "device", "bound"),
    [
        (True, "gpu", "gpu", WITH_SHAPES),
        (True, "tpu", "tpu", WITH_SHAPES),
        (True, "gpu", "tpu", TO_TPU),
        (True, "tpu", "gpu", FROM_TPU),
        (False, "gpu", "gpu", WITHOUT_SHAPES),
        (False, "tpu", "gpu", WITHOUT_SHAPES),
    ],
)
def test_which_bound_is_meant(shaped: bool, recorded: str, device: str, bound: Bound) -> None:
    assert bound_of(shaped=shaped, recorded=recorded, device=device) == bound
