"""Of all tiles and splits only those are timed that may be the fastest, and the fastest is among them."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from meshcast.estimate.gpu import tiles
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.estimate.gpu.tiles import TiledProduct, product_time
from meshcast.hardware import load_device


def machine() -> GpuMachine:
    return GpuMachine(device=load_device("h200"), parameters=shipped_gpu_calibration().parameters)


def product(m: int, n: int, k: int, *, split: bool = True) -> TiledProduct:
    return TiledProduct(
        batch=1, m=m, n=n, k=k, width=2, read=2 * k * (m + n), written=2 * m * n, peak=989e12, split=split
    )


def timed_splits(sides: tuple[int, int, int]) -> set[int]:
    with patch.object(tiles, "_summing", side_effect=tiles._summing) as summed:
        product_time(product(*sides), machine())
    return {call.args[1] for call in summed.call_args_list}


def test_splits_that_cannot_be_the_fastest_are_not_timed() -> None:
    """4096 tiles of 128 x 128 keep 132 SMs busy: 64 partial results of 256 MB only lose. One tile keeps one SM busy."""
    assert 1 in timed_splits((8192, 8192, 8192))
    assert not timed_splits((8192, 8192, 8192)) & {8, 16, 32, 64}
    assert timed_splits((64, 64, 65536)) >= {32, 64}


@pytest.mark.parametrize("sides", [(8192, 8192, 8192), (64, 64, 65536), (300, 1000, 4096), (1, 50257, 768)])
def test_what_is_left_out_is_slower(sides: tuple[int, int, int]) -> None:
    """Where all of them are timed, the answer is the same."""
    gpu = machine()
    fastest = product_time(product(*sides), gpu)
    with patch.object(np, "flatnonzero", side_effect=lambda near: np.arange(len(near))):
        assert product_time(product(*sides), gpu) == fastest
