"""Fewer bits are never slower and never larger where the hardware has the unit: all devices, several shapes and widths."""

from __future__ import annotations

import pytest

from meshcast.estimate import load_estimator
from meshcast.estimate.rates import catalogue_key
from meshcast.hardware import Device, device_names
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm, element_bytes

SHAPES = ((4096, 4096, 4096), (1024, 1024, 1024), (128, 4096, 4096), (8, 4096, 14336), (1, 4096, 4096), (300, 700, 500))
INTEGERS = ("i8", "i4", "i2")
LAUNCH = 2e-6  # of the second of two loops
ROUNDED = 1 + 1e-12  # sums of equal parts in another order


def product(dtype: str, m: int, k: int, n: int, *, out: str, k_minor: bool = True) -> Kernel:
    width, result = element_bytes(dtype), element_bytes(out)
    left, right, written = int(m * k * width), int(k * n * width), int(m * n * result)
    return Kernel(
        name="product", kind=KernelKind.GEMM, dtype=dtype, matrix_flops=2.0 * m * k * n, read_bytes=left + right,
        written_bytes=written, operand_bytes=(left, right), elements=m * n, shape=(m, n),
        geometry=Gemm(
            batch=1, m=m, n=n, k=k, lhs_dtype=dtype, rhs_dtype=dtype, out_dtype=out, lhs_contracting_minor=True,
            rhs_contracting_minor=k_minor,
        ),
    )  # fmt: skip


def seconds(kernels: list[Kernel], device: Device, fidelity: str) -> list[float]:
    estimator = load_estimator(fidelity)
    return [float(each) for each in estimator.estimate(kernels, device).time]


def widening(dtype: str, m: int, k: int, n: int) -> Kernel:
    """A loop that makes bytes of both operands."""
    elements = m * k + k * n
    return Kernel(
        name="widened", kind=KernelKind.LOOP_FUSION, dtype="i8", read_bytes=int(elements * element_bytes(dtype)),
        written_bytes=elements, elements=elements, shape=(elements,), vector_flops=float(elements), ops=("stablehlo.convert",),
    )  # fmt: skip


@pytest.mark.parametrize("fidelity", ["roofline", "analytical"])
def test_narrower_integers_are_never_slower_but_for_what_widens_them(fidelity: str) -> None:
    """Where the unit takes both, or neither; a GPU that has no unit for them pays no more than a loop that widens them first."""
    for name in device_names():
        device = Device.load(name)
        if fidelity == "analytical" and (device.kind == "cpu" or "i8" not in device.matrix_flops):
            continue  # without a unit, conversions cost what they cost
        free = fidelity == "roofline" or device.kind != "gpu"  # elsewhere they hide beside the arrays
        for shape in SHAPES:
            for k_minor in (True, False):
                for outs in (INTEGERS, ("i32",) * 3):
                    kernels = [
                        product(dtype, *shape, out=out, k_minor=k_minor)
                        for dtype, out in zip(INTEGERS, outs, strict=True)
                    ]
                    byte, half, quarter = seconds(kernels, device, fidelity)
                    has_half = "i4" in device.matrix_flops
                    costs = (
                        [0.0, 0.0]
                        if free
                        else seconds([widening(dtype, *shape) for dtype in INTEGERS[1:]], device, fidelity)
                    )
                    where = (name, shape, k_minor, outs, byte, half, quarter)
                    assert half <= byte * ROUNDED + (0.0 if has_half else 1.1 * costs[0] + LAUNCH), where
                    assert quarter <= half * ROUNDED + (1.1 * costs[1] + LAUNCH if has_half and not free else 0.0), (
                        where
                    )


def test_a_byte_is_never_slower_than_two_where_its_unit_is_faster() -> None:
    # Behind operands that lie along what is summed up, as tensor cores take bytes; XLA transposes others first, which costs more
    # than the unit gains in small products (docs/low-bit.md).
    for name in device_names():
        device = Device.load(name)
        if device.kind == "cpu":
            continue
        for byte in ("i8", "f8E4M3FN"):
            key = catalogue_key(byte)
            wide = device.matrix_flops.get("bf16", device.matrix_flops.get("f16", 0.0))
            if device.matrix_flops.get(key, 0.0) <= wide or not wide:
                continue
            for shape in SHAPES:
                two, one = (product(dtype, *shape, out=dtype) for dtype in ("bf16", byte))
                slow, fast = seconds([two, one], device, "analytical")
                assert fast <= slow, (name, byte, shape, slow, fast)


def test_b200_has_the_integer_rate_of_its_data_sheet() -> None:
    # DGX B200 datasheet: 72 POP/s with sparsity of 8 GPUs.
    b200 = Device.load("b200")
    assert b200.matrix_flops["i8"] == pytest.approx(72e15 / 2 / 8)
    assert b200.matrix_flops["i8"] == 2 * b200.matrix_flops["f16"]
