"""Products of quantised operands of equal and of two widths: fewer bits are never slower nor larger, on any kind of device."""

from __future__ import annotations

import pytest

import meshcast as mc
from meshcast.lower import Kernel
from meshcast.programs.files import from_bytes
from meshcast.workload import Gemm

BITS = (2, 4, 8)
DEVICES = ("h200", "a100", "b200", "tpu-v5e", "tpu-v6e", "edge-tpu", "aimc-28nm")


def text(m: int, k: int, n: int, *, activations: int, weights: int, along: bool) -> str:
    """A product with sums in i32 and a quantised result; `along`: weights lie as N x K."""
    a = f"tensor<{m}x{k}x!quant.uniform<i{activations}:f32, 0.1>>"
    w = (
        f"tensor<{n}x{k}x!quant.uniform<i{weights}:f32, 0.05>>"
        if along
        else f"tensor<{k}x{n}x!quant.uniform<i{weights}:f32, 0.05>>"
    )
    sums, out = (f"tensor<{m}x{n}x!quant.uniform<i{bits}:f32, 0.1>>" for bits in (32, activations))
    return f"""
    func.func @main(%a: {a}, %w: {w}) -> {out} {{
      %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [{int(along)}] : ({a}, {w}) -> {sums}
      %1 = stablehlo.uniform_quantize %0 : ({sums}) -> {out}
      return %1 : {out}
    }}
    """


def read(*shape: int, activations: int, weights: int, along: bool = True) -> mc.Program:
    made = text(*shape, activations=activations, weights=weights, along=along)
    return from_bytes(made.encode(), name="product", where="product.mlir")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("shape", [(512, 1024, 2048), (16, 4096, 1024)])
def test_fewer_bits_of_either_operand_are_never_slower_nor_larger(
    device: str, along: bool, shape: tuple[int, int, int]
) -> None:
    found = {}
    for a in BITS:
        for w in BITS:
            answer = mc.predict(read(*shape, activations=a, weights=w, along=along), on=device, fidelity="analytical")
            assert answer.step_time_s is not None
            found[a, w] = answer.step_time_s, answer.memory.peak
    for (a, w), (seconds, peak) in found.items():
        for wider in ((2 * a, w), (a, 2 * w), (2 * a, 2 * w)):
            if wider in found:
                assert seconds <= found[wider][0] * (1 + 1e-9), (a, w, wider, found)
                assert peak <= found[wider][1], (a, w, wider, found)


def test_a_product_reads_the_narrower_operand_as_it_is_stored() -> None:
    lowered = read(512, 1024, 2048, activations=8, weights=4).workload().lower()
    first, *_ = (step for step in lowered.schedule.steps if isinstance(step, Kernel))
    assert isinstance(first.geometry, Gemm)
    assert (first.geometry.lhs_dtype, first.geometry.rhs_dtype, first.dtype) == ("i8", "i4", "i8")
    assert first.read_bytes == 512 * 1024 + 1024 * 2048 // 2
