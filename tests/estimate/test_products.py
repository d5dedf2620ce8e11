"""What a systolic array sees of a kernel, by hand; both of the models that ask see the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import pytest

from meshcast.estimate.products import ArrayProduct, product_of
from meshcast.estimate.simulated import Simulated
from meshcast.estimate.tpu import TpuAnalytical
from meshcast.hardware import load_device
from meshcast.lower import Kernel
from meshcast.workload.graph import Gemm, Reduction
from tests.estimate.conformance import gemm
from tests.lower.programs import lower_function, spec

V6E = load_device("tpu-v6e")


def multiplied(function: Callable[..., Any], *arguments: jax.ShapeDtypeStruct) -> Kernel:
    """The one kernel of a function that multiplies."""
    lowered = lower_function(function, *arguments, backend="xla-tpu")
    (found,) = [kernel for kernel, _ in lowered.schedule.walk() if product_of(kernel.geometry) is not None]
    return found


def convolution(
    stride: int = 1, dilation: int = 1, groups: int = 1, batch_groups: int = 1, pad: int = 0
) -> Callable[..., Any]:
    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(pad, pad), (pad, pad)], lhs_dilation=(dilation, dilation),
            feature_group_count=groups, batch_group_count=batch_groups, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    return function


def flops(product: ArrayProduct | None) -> float:
    assert product is not None
    return 2.0 * product.results * product.k


def ragged(rows: int, groups: int, k: int = 256, n: int = 512) -> Kernel:
    sizes = jax.ShapeDtypeStruct((groups,), "int32")
    return multiplied(jax.lax.ragged_dot, spec(rows, k), spec(groups, k, n), sizes)


IMAGES = spec(8, 30, 30, 64)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (gemm(1000, 300, 200, batch=6), ArrayProduct(count=6, m=1000, n=300, k=200)),
        (ragged(4096, 64), ArrayProduct(count=64, m=64, n=512, k=256)),
        (multiplied(convolution(), IMAGES, spec(3, 3, 64, 96)), ArrayProduct(count=1, m=8 * 28 * 28, n=96, k=9 * 64)),
        (multiplied(convolution(2), IMAGES, spec(3, 3, 64, 96)), ArrayProduct(count=1, m=8 * 14 * 14, n=96, k=9 * 64)),
        (
            multiplied(convolution(groups=16), IMAGES, spec(3, 3, 4, 96)),
            ArrayProduct(count=16, m=8 * 28 * 28, n=6, k=9 * 4),
        ),
        # 64 images of 14 x 14 in 8 groups of 8, each of which makes 32 of the 256 channels.
        (
            multiplied(convolution(batch_groups=8), spec(64, 14, 14, 32), spec(1, 1, 32, 256)),
            ArrayProduct(count=8, m=8 * 14 * 14, n=32, k=32),
        ),
    ],
)
def test_products_by_hand(kernel: Kernel, expected: ArrayProduct) -> None:
    assert product_of(kernel.geometry) == expected
    assert flops(expected) == kernel.matrix_flops


def test_taps_on_padding_and_on_inserted_zeros_are_not_multiplied() -> None:
    """Of 3 taps, 28 outputs of a padded side meet 82 elements; those of a side with every other element a zero 1.5."""
    padded = multiplied(convolution(pad=1), spec(8, 28, 28, 64), spec(3, 3, 64, 96))
    assert product_of(padded.geometry) == ArrayProduct(count=1, m=8 * 28 * 28, n=96, k=round(64 * (82 / 28) ** 2))
    dilated = multiplied(convolution(dilation=2, pad=1), spec(8, 28, 28, 64), spec(3, 3, 64, 96))
    found = product_of(dilated.geometry)
    assert found is not None
    assert found.m == 8 * 55 * 55
    assert found.k == pytest.approx(1.5**2 * 64, rel=0.05)
    for kernel in (padded, dilated):
        assert flops(product_of(kernel.geometry)) == pytest.approx(kernel.matrix_flops, rel=0.5 / 128)


def test_more_groups_than_rows_leave_some_without_any() -> None:
    assert product_of(ragged(16, 64).geometry) == ArrayProduct(count=16, m=1, n=512, k=256)
    # Rows that groups do not divide are counted as whole rows.
    assert product_of(ragged(100, 64).geometry) == ArrayProduct(count=64, m=2, n=512, k=256)


def test_what_multiplies_nothing_is_no_product() -> None:
    assert product_of(None) is None
    assert product_of(Reduction(shape=(8, 8), dims=(0,))) is None
    empty = gemm(0, 64, 64)
    assert product_of(empty.geometry) is None
    assert TpuAnalytical().estimate([empty], V6E).time[0] < 1e-6
    assert Simulated().supports(empty, V6E).level == "no"


def test_groups_cost_both_models_their_own_weights() -> None:
    """64 groups of 16 rows load 64 times the weights of one product of 1024 rows."""
    grouped = ragged(1024, 64, k=4096, n=4096)
    assert isinstance(grouped.geometry, Gemm)
    plain = replace(grouped, geometry=replace(grouped.geometry, groups=1))
    for model in (TpuAnalytical(), Simulated()):
        times = model.estimate([grouped, plain], V6E).compute_time
        assert times[0] > 1.5 * times[1]
