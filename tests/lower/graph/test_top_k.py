"""The largest of rows: XLA's own kernel, or a sort of whole rows with what is before and behind it."""

from __future__ import annotations

import jax
import pytest

from meshcast.lower import KernelKind
from tests.lower.programs import kernels, lower_function, spec


@pytest.mark.parametrize(
    ("length", "top", "dtype", "expected"),
    [
        (4096, 8, "float32", [(8, 1)]),
        (4096, 64, "float32", [(None, 2)]),  # too many of them
        (64, 8, "float32", [(None, 2)]),  # rows too short
        (64, 8, "bfloat16", [(None, 1)]),  # value and place in one number
        (4096, 8, "float16", [(None, 1)]),  # no type of XLA's kernel
    ],
)
def test_rows_are_sorted_whole_where_there_is_no_kernel(
    length: int, top: int, dtype: str, expected: list[tuple[int | None, int]]
) -> None:
    made = kernels(lower_function(lambda x: jax.lax.top_k(x, top), spec(512, length, dtype=dtype)))
    sorts = [kernel for kernel in made if kernel.kind is KernelKind.SORT]
    assert [(sort.geometry.top, sort.geometry.operands) for sort in sorts] == expected  # type: ignore[union-attr]


def test_places_are_written_before_and_the_first_cut_off_behind() -> None:
    made = kernels(lower_function(lambda x: jax.lax.top_k(x, 64), spec(512, 4096)))
    assert [kernel.kind for kernel in made] == [KernelKind.LOOP_FUSION, KernelKind.SORT, *[KernelKind.LOOP_FUSION] * 2]
    places, sort, *cut = made
    assert places.written_bytes == 512 * 4096 * 4
    assert sort.written_bytes == 2 * 512 * 4096 * 4
    assert [kernel.read_bytes for kernel in cut] == [512 * 64 * 4] * 2


def test_16_bit_values_are_packed_with_their_places() -> None:
    made = kernels(lower_function(lambda x: jax.lax.top_k(x, 8), spec(512, 64, dtype="bfloat16")))
    packed, sort, *apart = made
    assert packed.written_bytes == sort.written_bytes == 512 * 64 * 4
    assert sort.dtype == "i32"
    assert [kernel.written_bytes for kernel in apart] == [512 * 8 * 2, 512 * 8 * 4]
