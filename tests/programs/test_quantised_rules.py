"""Ops on quantised types that StableHLO's specification forbids are refused, with what is wrong and where."""

from __future__ import annotations

import pytest

from meshcast.base import InputError
from meshcast.programs import from_bytes
from meshcast.programs.quantised import with_integers

A, B = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.25>"
A4, ZERO = "!quant.uniform<i4:f32, 0.5>", "!quant.uniform<i8:f32, 0.5:3>"
HALF, RANGE = "!quant.uniform<i8:f16, 0.5>", "!quant.uniform<i8<-8:7>:f32, 0.5>"
ROWS, COLUMNS = "!quant.uniform<i8:f32:0, {0.5, 0.25}>", "!quant.uniform<i8:f32:1, {0.5, 0.25}>"
DOT = "%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : "
PAD = "%2 = stablehlo.pad %0, %1, low = [1], high = [1], interior = [0] : "
SUM = "%2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0] : "
CONV = "%2 = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} : "


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"%1 = stablehlo.reshape %0 : (tensor<4x{A}>) -> tensor<2x2x{B}>", "from i8 of 0.5 to i8 of 0.25"),
        (f"%1 = stablehlo.reshape %0 : (tensor<4x{A}>) -> tensor<2x2xf32>", "quantised values and of f32"),
        (f"%1 = stablehlo.reshape %0 : (tensor<4x{A}>) -> tensor<2x2x{RANGE}>", r"from i8<-128:127> for f32 to i8<-8:7>"),
        (f"%1 = stablehlo.reshape %0 : (tensor<2x6x{ROWS}>) -> tensor<6x2x{COLUMNS}>", "other elements"),
        (f"%1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x2x{ROWS}>) -> tensor<2x2x{ROWS}>", "in dimension 1, its"),
        (f"%1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<2x{ROWS}>) -> tensor<2x2x{ROWS}>", "in dimension 1"),
        (f"%2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<2x{A}>, tensor<2x{B}>) -> tensor<4x{A}>", "changes scales"),
        (f"{PAD}(tensor<2x{A}>, tensor<{B}>) -> tensor<4x{A}>", "changes scales"),
        (f"%1 = stablehlo.slice %0 [0:2] : (tensor<4x{A}>) -> tensor<2x{B}>", "changes scales"),
        (f'%2 = "stablehlo.add"(%0, %1) : (tensor<4x{A}>, tensor<4x{A4}>) -> tensor<4x{A}>', "i8 for f32 and i4 for f32"),
        (f'%2 = "stablehlo.add"(%0, %1) : (tensor<4x{A}>, tensor<4xf32>) -> tensor<4x{A}>', "quantised values and of f32"),
        (f'%2 = "stablehlo.multiply"(%0, %1) : (tensor<4x{A}>, tensor<4x{RANGE}>) -> tensor<4x{A}>', "must be stored in one way"),
        (f"%2 = stablehlo.multiply %0, %1 : tensor<2x4x{ROWS}>", "not one for every slice of dimension 0"),
        (f"%1 = stablehlo.convert %0 : (tensor<4x{A}>) -> tensor<4xf32>", "use uniform_quantize or uniform_dequantize"),
        (f"%1 = stablehlo.not %0 : tensor<4x{A}>", "stablehlo.not takes no quantised"),
        (f"%1 = stablehlo.uniform_quantize %0 : (tensor<4xf16>) -> tensor<4x{A}>", "between f16 and f32"),
        (f"%1 = stablehlo.uniform_dequantize %0 : (tensor<4x{A}>) -> tensor<4xf16>", "between f32 and f16"),
        (f"{DOT}(tensor<4x8x{A}>, tensor<8x4x{ZERO}>) -> tensor<4x4x{A}>", "zero point 3"),
        (f"{DOT}(tensor<4x2x{A}>, tensor<2x4x{ROWS}>) -> tensor<4x4x{A}>", "sums over dimension 0"),
        (f"{DOT}(tensor<4x8x{A}>, tensor<8x4xf32>) -> tensor<4x4xf32>", "the right one must be"),
        (f"{DOT}(tensor<4x8x{A}>, tensor<8x4x{A}>) -> tensor<4x4xf32>", "both must be quantised, or neither"),
        (f"{DOT}(tensor<4x8x{HALF}>, tensor<8x4x{A}>) -> tensor<4x4x{A}>", "stand for f16 and f32"),
        (f"{DOT}(tensor<2x8x{ROWS}>, tensor<8x4x{A}>) -> tensor<2x4x{A}>", "one scale for its left operand"),
        (f"{CONV}(tensor<1x8x2x{A}>, tensor<1x2x2x{COLUMNS}>) -> tensor<1x8x2x{A}>", "output features, dimension 2"),
        (f"{SUM}(tensor<4x{A}>, tensor<{B}>) -> tensor<{A}>", "changes scales"),
        (f"%3 = stablehlo.select %p, %0, %1 : tensor<4xi1>, tensor<4x{A}>", None),
    ],
)  # fmt: skip
def test_what_the_specification_forbids(line: str, said: str | None) -> None:
    if said is None:
        with_integers(line, where="x.mlir")
        return
    with pytest.raises(InputError, match=said) as raised:
        with_integers(f"module {{\n{line}", where="x.mlir")
    assert "x.mlir:2" in str(raised.value)


@pytest.mark.parametrize(
    "line",
    [
        f"%1 = stablehlo.reshape %0 : (tensor<4x{A}>) -> tensor<2x2x{A.replace('0.5', '5e-1')}>",
        f"%1 = stablehlo.reshape %0 : (tensor<2x6x{ROWS}>) -> tensor<1x2x6x{COLUMNS}>",
        f"%1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x2x{ROWS}>) -> tensor<2x2x{COLUMNS}>",
        f'%1 = "stablehlo.transpose"(%0) {{permutation = array<i64: 1, 0>}} : (tensor<2x2x{ROWS}>) -> tensor<2x2x{COLUMNS}>',
        f'%2 = "stablehlo.add"(%0, %1) : (tensor<4x{A}>, tensor<4x{B}>) -> tensor<4x{ZERO}>',
        f'%2 = "stablehlo.multiply"(%0, %1) : (tensor<4x{A}>, tensor<4x{B}>) -> tensor<4x{ZERO}>',
        f"%1 = stablehlo.uniform_quantize %0 : (tensor<4x{A}>) -> tensor<4x{A4}>",
        f"{DOT}(tensor<4x8x{ZERO}>, tensor<8x2x{COLUMNS}>) -> tensor<4x2x{COLUMNS}>",
        f"{DOT}(tensor<4x8xf32>, tensor<8x2x{COLUMNS}>) -> tensor<4x2xf32>",
        f"{CONV}(tensor<1x8x2x{A}>, tensor<1x2x2x{A}>) -> tensor<1x8x2x{A}>",
        f"%2:2 = stablehlo.optimization_barrier %0, %1 : tensor<4x{A}>, tensor<4x{B}>",
        f"%2 = stablehlo.dynamic_slice %0, %1, sizes = [2] : (tensor<4x{A}>, tensor<i32>) -> tensor<2x{A}>",
    ],
)
def test_what_it_allows(line: str) -> None:
    assert with_integers(line, where="x.mlir")[1] == ()


def test_a_value_has_one_type() -> None:
    """Behind this reader types are integers: nothing else would see that a scale changed between two lines."""
    text = f"func.func @main(%a: tensor<4x{A}>) -> tensor<4x{B}> {{\n  %1 = stablehlo.negate %a : tensor<4x{B}>"
    with pytest.raises(InputError, match="%a is read in another quantised type than line 1 says"):
        with_integers(text, where="x.mlir")


def test_products_of_two_widths_are_read_with_a_note() -> None:
    text = (
        f"func.func @main(%0: tensor<4x8x{A}>, %1: tensor<8x4x{A4}>) -> tensor<4x4x{A}> {{\n"
        f"  {DOT}(tensor<4x8x{A}>, tensor<8x4x{A4}>) -> tensor<4x4x{A}>\n  return %2 : tensor<4x4x{A}>\n}}\n"
    )
    program = from_bytes(text.encode(), name="q", where="q.mlir")
    (note,) = program.notes
    assert "stablehlo.dot_general of i8 and i4: the specification has products of one storage type alone" in note
