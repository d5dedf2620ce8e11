"""Products of integers of less than a byte, as XLA's GPU compiler has them, and as quantised types have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate import load_estimator, load_simulator
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.programs import from_bytes
from meshcast.workload import Gemm, Reduction


def plain(left: str, right: str, *, wide: str = "") -> str:
    """A product of plain integers; `wide`: both are converted to it first."""
    a, w, out = f"tensor<64x256x{left}>", f"tensor<128x256x{right}>", "tensor<64x128xi32>"
    lines, names = "", ["%a", "%w"]
    if wide:
        for place, (kind, name) in enumerate(((a, "a"), (w, "w"))):
            if f"x{wide}>" not in kind:
                made = kind.rpartition("x")[0] + f"x{wide}>"
                lines += f"%{place} = stablehlo.convert %{name} : ({kind}) -> {made}\n"
                names[place] = f"%{place}"
        a, w = (kind.rpartition("x")[0] + f"x{wide}>" for kind in (a, w))
    head = f"func.func public @main(%a: tensor<64x256x{left}>, %w: tensor<128x256x{right}>) -> {out} {{\n"
    dot = f"%5 = stablehlo.dot_general {names[0]}, {names[1]}, contracting_dims = [1] x [1] : ({a}, {w}) -> {out}\n"
    return f"{head}{lines}{dot}return %5 : {out}\n}}\n"


def kernels(text: str) -> list[Kernel]:
    program = from_bytes(text.encode(), name="p", where="p.mlir")
    return [kernel for kernel, _ in program.workload().lower().schedule.walk()]


@pytest.mark.parametrize("kind", ["i4", "i2"])
def test_plain_packed_operands_are_multiplied_out(kind: str) -> None:
    """64 x 128 x 256 pairs, one kernel that reads both matrices packed, and no unit for matrices."""
    (kernel,) = kernels(plain(kind, kind))
    assert kernel.kind is KernelKind.REDUCTION
    assert kernel.geometry == Reduction(shape=(1, 64, 128, 256), dims=(3,))
    bits = int(kind[1])
    assert kernel.read_bytes == (64 + 128) * 256 * bits // 8
    assert (kernel.matrix_flops, kernel.vector_flops) == (0, 2 * 64 * 128 * 256)
    assert kernel.stored_bits == (bits, bits)


@pytest.mark.parametrize(("left", "right"), [("i8", "i4"), ("i4", "i4"), ("i2", "i4")])
def test_what_is_converted_to_bytes_is_a_product_that_reads_it_packed(left: str, right: str) -> None:
    (kernel,) = kernels(plain(left, right, wide="i8"))
    assert kernel.kind is KernelKind.GEMM
    assert isinstance(kernel.geometry, Gemm)
    assert (kernel.geometry.lhs_dtype, kernel.geometry.rhs_dtype) == (left, right)
    assert kernel.dtype == max(left, right)


def test_quantised_products_are_those_of_a_unit_or_widened() -> None:
    """Of four bits on an H200, which has no unit for them: no more than the conversion, and far from being multiplied out."""
    q, sums = "!quant.uniform<i4:f32, 0.5>", "!quant.uniform<i32:f32, 0.5>"
    quantised = (
        f"func.func public @main(%a: tensor<64x256x{q}>, %w: tensor<128x256x{q}>) -> tensor<64x128x{sums}> {{\n"
        f"%0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [1] : (tensor<64x256x{q}>, tensor<128x256x{q}>) "
        f"-> tensor<64x128x{sums}>\nreturn %0 : tensor<64x128x{sums}>\n}}\n"
    )
    (kernel,) = kernels(quantised)
    assert kernel.kind is KernelKind.GEMM
    assert kernel.dtype == "i4"


def test_a_compilers_fusion_that_widens_an_operand_costs_what_widens_it() -> None:
    """As our own lowering has it, where the fusion says which bits it reads."""
    shape = Gemm(
        batch=1, m=512, n=4096, k=4096, lhs_dtype="i8", rhs_dtype="i8", out_dtype="i32", lhs_contracting_minor=True,
        rhs_contracting_minor=True,
    )  # fmt: skip
    fused = Kernel(
        name="gemm_fusion", kind=KernelKind.GEMM, dtype="i8", matrix_flops=2.0 * 512 * 4096 * 4096,
        read_bytes=512 * 4096 + 4096 * 2048,
        written_bytes=512 * 4096 * 4, geometry=shape, stored_bits=(8, 4),
    )  # fmt: skip
    ours = replace(fused, geometry=replace(shape, rhs_dtype="i4"), stored_bits=())
    device = load_device("h200")
    for estimator in (load_estimator("analytical"), load_simulator(None, device, None)):
        times = [float(each) for each in estimator.estimate([fused, ours], device).time]
        assert times[0] == pytest.approx(times[1], rel=1e-6), estimator.name
        assert times[0] > 1.5 * float(estimator.estimate([replace(fused, stored_bits=())], device).time[0])
