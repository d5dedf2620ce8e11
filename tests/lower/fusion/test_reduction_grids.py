"""How many blocks and threads XLA:GPU launches for reductions, worked out by hand from its emitters."""

from __future__ import annotations

import pytest

from meshcast.lower.fusion.reduction_grids import LaunchGrid, reduction_grid
from meshcast.workload import Reduction


@pytest.mark.parametrize(
    ("shape", "dims", "grid"),
    [
        ((32, 8192), (1,), LaunchGrid(32, 512)),  # 8192 / 16 threads a row
        ((1000, 100), (1,), LaunchGrid(125, 256)),  # a warp a row, eight rows a block
        ((1000, 64), (1,), LaunchGrid(125, 256)),  # a power of two, but two elements a thread would leave cores idle
        ((100_000, 64), (1,), LaunchGrid(12_500, 256)),
        ((4096, 512), (0,), LaunchGrid(8, 1024)),  # strips of 64 columns
        ((16, 4096, 8), (1,), LaunchGrid(16, 128)),  # fewer columns than a warp: a block for each
        ((64, 16, 128), (0, 2), LaunchGrid(2, 256)),  # the first dimension goes thread by thread
    ],
)
def test_launches(shape: tuple[int, ...], dims: tuple[int, ...], grid: LaunchGrid) -> None:
    assert reduction_grid(Reduction(shape=shape, dims=dims)) == grid


def test_columns_of_what_has_no_order_of_its_own_are_rows() -> None:
    assert reduction_grid(Reduction(shape=(4, 4096, 256), dims=(1,)), by_rows=True) == LaunchGrid(1024, 256)
