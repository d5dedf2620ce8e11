"""Quantised types are read as the integers that values are stored in."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import Options, predict
from meshcast.base import InputError, MeshcastError
from meshcast.programs import from_bytes
from meshcast.programs.quantised import without_quantised_types

FIXTURE = Path(__file__).parents[1] / "fixtures" / "quantised.mlir"
Q8 = "!quant.uniform<i8:f32, 0.5:3>"


def rewritten(*lines: str) -> list[str]:
    return [line.strip() for line in without_quantised_types("\n".join(lines), where="x").split("\n") if line.strip()]


def test_a_whole_network_is_parsed_and_lowered() -> None:
    """Activations of four bits, ternary weights by channel, an alias, a reduction, weights alone in a product."""
    program = from_bytes(FIXTURE.read_bytes(), name="q", where="q")
    kernels = [kernel for kernel, _ in program.workload().lower().schedule.walk()]
    (convolution,) = (kernel for kernel in kernels if kernel.kind.value == "convolution")
    assert convolution.dtype == "i4"
    step = predict(FIXTURE, Options(on="h200", fidelity="roofline", levers=False)).step_time_s
    assert step is not None


def test_arguments_take_their_stored_bits() -> None:
    """8 x 32 x 32 x 16 floats, 3 x 3 x 16 x 32 numbers of two bits, 32 x 10 of eight."""
    found = predict(FIXTURE, Options(on="h200", fidelity="roofline", levers=False)).memory
    assert found.arguments == pytest.approx(8 * 32 * 32 * 16 * 4 + 3 * 3 * 16 * 32 / 4 + 320, rel=1e-3)


def test_conversions() -> None:
    other = Q8.replace("0.5", "0.25")
    assert rewritten(f"%1 = stablehlo.uniform_quantize %0 : (tensor<4xf32>) -> tensor<4x{Q8}>") == [
        "%1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xi8>"
    ]
    requantised = rewritten(f'%1 = "stablehlo.uniform_quantize"(%0) : (tensor<4x{Q8}>) -> tensor<4x{other}>')
    assert [line.partition(" : ")[2] for line in requantised] == [
        "(tensor<4xi8>) -> tensor<4xf32>",
        "(tensor<4xf32>) -> tensor<4xi8>",
    ]


def test_products_sum_in_32_bits() -> None:
    dot = "%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : "
    first, second = rewritten(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{Q8}>) -> tensor<4x4x{Q8}>")
    assert first.endswith("(tensor<4x8xi8>, tensor<8x4xi8>) -> tensor<4x4xi32>")
    assert second.startswith("%2 = stablehlo.convert")
    sums = Q8.replace("i8", "i32")
    (only,) = rewritten(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{Q8}>) -> tensor<4x4x{sums}>")
    assert only.endswith("-> tensor<4x4xi32>")


def test_arithmetic_is_that_of_the_numbers_meant() -> None:
    lines = rewritten(f"%2 = stablehlo.add %0, %1 : tensor<4x{Q8}>")
    assert len(lines) == 4
    assert lines[2].endswith("(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>")
    (larger,) = rewritten(f"%2 = stablehlo.maximum %0, %1 : tensor<4x{Q8}>")
    assert larger.endswith("(tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>")


def test_scalars_are_integers_where_a_reduction_is_told_by_them_alone() -> None:
    (added,) = rewritten(f"%2 = stablehlo.add %0, %1 : tensor<{Q8}>")
    assert added.endswith("(tensor<i8>, tensor<i8>) -> tensor<i8>")
    numbers = rewritten(f"%1 = stablehlo.tanh %0 : tensor<{Q8}>")
    assert numbers[1].endswith("(tensor<f32>) -> tensor<f32>")


def test_unsigned_storage_keeps_its_sign() -> None:
    assert rewritten("%1 = stablehlo.reshape %0 : (tensor<4x!quant.uniform<u8:bf16, 0.5>>) -> tensor<4xf32>") == [
        "%1 = stablehlo.reshape %0 : (tensor<4xui8>) -> tensor<4xf32>"
    ]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("!quant.uniform<i3:f32, 0.5>", "no integer of 2 to 32 bits"),
        ("!quant.uniform<i8:i32, 0.5>", "no float"),
        ("!quant.uniform<i8:f32, -0.5>", "must be positive"),
        ("!quant.uniform<i8:f32, 0.5:200>", "zero point 200"),
        ("!quant.uniform<i8<-200:100>:f32, 0.5>", "no range of i8"),
        ("!quant.uniform<i8:f32:1, 0.5>", "a scale for the tensor"),
        ("!quant.uniform<i8:f32>", "a scale for the tensor"),
        ("!quant.uniform<i8<f32", "has no end"),
        ("!quant.calibrated<f32<0:1>>", "says no integers"),
    ],
)
def test_what_is_no_quantised_type(bad: str, said: str) -> None:
    with pytest.raises(MeshcastError, match=said) as raised:
        without_quantised_types(f"module {{\n  %1 = stablehlo.tanh %0 : tensor<4x{bad}>", where="x.mlir")
    assert "x.mlir:2" in str(raised.value)


def test_operands_and_types_must_be_as_many() -> None:
    with pytest.raises(InputError, match="1 operands and 2 types"):
        rewritten(f'%2 = "stablehlo.add"(%0) : (tensor<4x{Q8}>, tensor<4x{Q8}>) -> tensor<4x{Q8}>')


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "h200", "tpu-v6e"])
@pytest.mark.parametrize("fidelity", ["roofline", "analytical"])
def test_fewer_bits_are_never_slower(device: str, fidelity: str, tmp_path: Path) -> None:
    """A product of 4096 x 4096 by as many, in types of ever fewer bits."""
    path = tmp_path / "dot.mlir"
    times = []
    for kind in ("i8", "i4", "i2"):
        q = f"tensor<4096x4096x!quant.uniform<{kind}:f32, 0.5>>"
        wide = "tensor<4096x4096x!quant.uniform<i32:f32, 0.5>>"
        path.write_text(
            f"func.func public @main(%a: {q}, %b: {q}) -> {wide} {{\n"
            f"  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({q}, {q}) -> {wide}\n"
            f"  return %0 : {wide}\n}}\n"
        )
        step = predict(path, Options(on=device, fidelity=fidelity, lowering="modelled", levers=False)).step_time_s
        assert step is not None
        times.append(step)
    assert times[0] >= times[1] >= times[2]
