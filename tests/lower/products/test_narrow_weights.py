"""Weights in few bits: what products of few rows read, and who widens them otherwise."""

from __future__ import annotations

import pytest

import meshcast as mc
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.lower.products.narrow_weights import MAX_ROWS
from meshcast.programs.files import from_bytes
from meshcast.workload.graph import Gemm

K, N = 256, 512


def kernels(text: str) -> list[Kernel]:
    program = from_bytes(text.encode(), name="narrow", where="narrow.mlir")
    lowered = program.workload().lower()
    return [step for step in lowered.schedule.steps if isinstance(step, Kernel)]


def product(rows: int, dtype: str, *, scaled: bool = False) -> str:
    """`x w` with weights that are converted, and scaled for each column where asked for."""
    weights = f"""
        %wide = stablehlo.convert %w : (tensor<{K}x{N}x{dtype}>) -> tensor<{K}x{N}xbf16>
        %spread = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<{N}xbf16>) -> tensor<{K}x{N}xbf16>
        %made = stablehlo.multiply %wide, %spread : tensor<{K}x{N}xbf16>
    """
    used = "%made" if scaled else "%wide"
    return f"""
    func.func @main(%x: tensor<{rows}x{K}xbf16>, %w: tensor<{K}x{N}x{dtype}>, %s: tensor<{N}xbf16>)
        -> tensor<{rows}x{N}xbf16> {{
        {weights}
        %y = stablehlo.dot_general %x, {used}, contracting_dims = [1] x [0]
            : (tensor<{rows}x{K}xbf16>, tensor<{K}x{N}xbf16>) -> tensor<{rows}x{N}xbf16>
        return %y : tensor<{rows}x{N}xbf16>
    }}
    """


@pytest.mark.parametrize(("dtype", "bits"), [("i8", 8), ("i4", 4), ("f8E4M3FN", 8)])
def test_products_of_few_rows_read_weights_as_they_are_stored(dtype: str, bits: int) -> None:
    (found,) = kernels(product(8, dtype))
    assert found.kind is KernelKind.GEMM
    assert isinstance(found.geometry, Gemm)
    assert (found.geometry.rhs_dtype, found.geometry.stored_dtype) == ("bf16", dtype)
    assert found.read_bytes == 8 * K * 2 + K * N * bits // 8


def test_scales_are_read_as_small_as_they_are() -> None:
    (found,) = kernels(product(8, "i4", scaled=True))
    assert found.read_bytes == 8 * K * 2 + K * N // 2 + N * 2


def test_products_of_many_rows_multiply_what_is_widened_once() -> None:
    assert len(kernels(product(MAX_ROWS, "i8"))) == 1
    widened, multiplied = kernels(product(MAX_ROWS + 1, "i8"))
    assert (widened.read_bytes, widened.written_bytes) == (K * N, 2 * K * N)
    assert multiplied.read_bytes == 2 * K * (MAX_ROWS + 1 + N)


def test_predicates_are_no_weights() -> None:
    assert len(kernels(product(8, "i1"))) == 2


@pytest.mark.parametrize(("n", "alignment"), [(50257, 2), (50258, 4), (50260, 8), (50264, 16), (50304, 16)])
def test_rows_are_aligned_by_their_bytes(n: int, alignment: int) -> None:
    shape = Gemm(
        batch=1, m=8192, n=n, k=768, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
        lhs_contracting_minor=True, rhs_contracting_minor=True,
    )  # fmt: skip
    assert shape.alignment == alignment


@pytest.mark.parametrize(("n", "measured"), [(50257, 6.67e-3), (50258, 2.59e-3), (50304, 1.06e-3)])
def test_eager_frameworks_do_not_pad_rows(n: int, measured: float) -> None:
    """The head of GPT-2 on an H200, `rows` of data/measured/h200-torch."""
    text = f"""
    func.func @main(%x: tensor<8192x768xbf16>, %w: tensor<{n}x768xbf16>) -> tensor<8192x{n}xbf16> {{
        %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
            : (tensor<8192x768xbf16>, tensor<{n}x768xbf16>) -> tensor<8192x{n}xbf16>
        return %y : tensor<8192x{n}xbf16>
    }}
    """
    program = from_bytes(text.encode(), name="head", where="head.mlir")
    eager = mc.predict(program, mc.Options(on="h200", lowering="modelled", fusion="eager"))
    assert eager.step_time_s == pytest.approx(measured, rel=0.25)
