from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshcast.evidence.calibrate.inputs import SPREAD, filler
from meshcast.evidence.calibrate.probe import Indices, ProbeBody


def _filled(*specs: Any, indices: dict[int, Indices] | None = None) -> Any:
    body = ProbeBody(function=lambda *args: args, args=specs, indices=indices or {})
    return jax.jit(filler(body))(jnp.uint32(1))


def test_numbers_are_spread_and_of_their_type() -> None:
    wide, narrow, flags = _filled(
        jax.ShapeDtypeStruct((100, 100), jnp.bfloat16),
        {"a": jax.ShapeDtypeStruct((4096,), jnp.float8_e4m3fn)},
        jax.ShapeDtypeStruct((4096,), jnp.bool_),
    )
    assert wide.dtype == jnp.bfloat16
    values = np.asarray(wide, np.float32)
    assert np.abs(values).max() <= SPREAD * 1.01
    assert abs(values.mean()) < SPREAD / 20
    assert len(set(values.ravel().tolist())) > 500
    assert np.abs(np.asarray(narrow["a"], np.float32)).max() <= 1
    assert 0.4 < np.asarray(flags).mean() < 0.6


def test_indices_are_in_range() -> None:
    drawn = np.asarray(_filled(jax.ShapeDtypeStruct((20_000,), jnp.int32), indices={0: Indices(below=1000)})[0])
    assert drawn.min() >= 0
    assert drawn.max() < 1000
    assert max(Counter(drawn.tolist()).values()) < 60  # 20 on average


def test_zipf_indices_have_hot_rows() -> None:
    drawn = np.asarray(
        _filled(jax.ShapeDtypeStruct((50_000,), jnp.int32), indices={0: Indices(below=10_000, skew=1.2)})[0]
    )
    assert drawn.min() >= 0
    assert drawn.max() < 10_000
    counts = sorted(Counter(drawn.tolist()).values(), reverse=True)
    # The continuous law puts (2^-0.2 - 1) / (10000^-0.2 - 1) = 15 % on the first row, half as much on the second.
    assert 0.12 < counts[0] / 50_000 < 0.19
    assert 1.5 < counts[0] / counts[1] < 3
