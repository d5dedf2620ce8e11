"""Quantised types are read as the integers that values are stored in."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from meshcast import Options, predict
from meshcast.base import InputError, MeshcastError
from meshcast.programs import from_bytes
from meshcast.programs.quantised import without_quantised_types
from meshcast.programs.quantised_types import quantised_type

FIXTURE = Path(__file__).parents[1] / "fixtures" / "quantised.mlir"
Q8 = "!quant.uniform<i8:f32, 0.5:3>"


def rewritten(*lines: str) -> list[str]:
    """The ops that lines become, which stand behind each other on the line of the one that they are made of."""
    made = without_quantised_types("\n".join(lines), where="x").split("\n")
    return [op.strip() for line in made for op in re.split(r"\s(?=%\w+ = )", line) if op.strip()]


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


def ops(*lines: str) -> list[str]:
    """The ops that lines become, but for constants and what spreads them."""
    found = [
        line.partition("stablehlo.")[2].replace('"', " ").replace("(", " ").split()[0] for line in rewritten(*lines)
    ]
    return [op for op in found if op not in ("constant", "broadcast_in_dim")]


DEQUANTISED = ["convert", "subtract", "multiply"]
QUANTISED = ["divide", "add", "clamp", "round_nearest_even", "convert"]


def test_conversions_are_written_out() -> None:
    """As the specification defines them; a zero point of 0 takes no op."""
    other = Q8.replace("0.5", "0.25")
    lines = rewritten(f"%1 = stablehlo.uniform_quantize %0 : (tensor<4xf32>) -> tensor<4x{Q8}>")
    assert ops(f"%1 = stablehlo.uniform_quantize %0 : (tensor<4xf32>) -> tensor<4x{Q8}>") == QUANTISED
    assert lines[-1].startswith("%1 = ")
    assert lines[-1].endswith("(tensor<4xf32>) -> tensor<4xi8>")
    assert ops(f"%1 = stablehlo.uniform_dequantize %0 : (tensor<4x{Q8}>) -> tensor<4xf32>") == DEQUANTISED
    plain = Q8.replace(":3", "")
    assert ops(f"%1 = stablehlo.uniform_dequantize %0 : (tensor<4x{plain}>) -> tensor<4xf32>") == [
        "convert",
        "multiply",
    ]
    requantised = f'%1 = "stablehlo.uniform_quantize"(%0) : (tensor<4x{Q8}>) -> tensor<4x{other}>'
    assert ops(requantised) == DEQUANTISED + QUANTISED


def test_conversions_cost_what_they_do_in_floats() -> None:
    """16 elements through five ops of f32, and through three; bytes are those stored."""
    text = (
        f"func.func public @main(%a: tensor<16xf32>) -> tensor<16x{Q8}> {{\n"
        f"  %0 = stablehlo.uniform_quantize %a : (tensor<16xf32>) -> tensor<16x{Q8}>\n  return %0 : tensor<16x{Q8}>\n}}\n"
    )
    (kernel,) = (
        kernel for kernel, _ in from_bytes(text.encode(), name="q", where="q").workload().lower().schedule.walk()
    )
    assert (kernel.dtype, kernel.vector_flops) == ("f32", 80)
    assert (kernel.read_bytes, kernel.written_bytes) == (64, 16)


def test_scales_of_an_axis_are_spread_along_it() -> None:
    by_axis = "!quant.uniform<i8:f32:1, {0.5, 1e-1:2, 2}>"
    lines = rewritten(f"%1 = stablehlo.uniform_dequantize %0 : (tensor<4x3x{by_axis}>) -> tensor<4x3xf32>")
    assert any("dense<[0.5, 1.0e-1, 2.0]> : tensor<3xf32>" in line for line in lines)
    assert any("dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>" in line for line in lines)
    with pytest.raises(InputError, match="3 scales along dimension 1 of"):
        rewritten(f"%1 = stablehlo.uniform_dequantize %0 : (tensor<4x5x{by_axis}>) -> tensor<4x5xf32>")


def test_products_sum_in_32_bits() -> None:
    dot = "%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : "
    w8 = Q8.replace(":3", "")
    first, *others = rewritten(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{w8}>) -> tensor<4x4x{Q8}>")
    assert first.endswith("(tensor<4x8xi8>, tensor<8x4xi8>) -> tensor<4x4xi32>")
    assert others[-1].startswith('%2 = "stablehlo.convert"')
    assert ops(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{w8}>) -> tensor<4x4x{Q8}>")[1:] == ["convert", *QUANTISED]
    sums = Q8.replace("i8", "i32")
    (only,) = rewritten(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{w8}>) -> tensor<4x4x{sums}>")
    assert only.endswith("-> tensor<4x4xi32>")
    widened = rewritten(f"{dot}(tensor<4x8x{Q8}>, tensor<8x4x{w8.replace('i8', 'i4')}>) -> tensor<4x4x{sums}>")
    assert [line.partition(" : ")[2] for line in widened] == [
        "(tensor<8x4xi4>) -> tensor<8x4xi8>",
        "(tensor<4x8xi8>, tensor<8x4xi8>) -> tensor<4x4xi32>",
    ]
    assert ops(f"{dot}(tensor<4x8xf32>, tensor<8x4x{w8}>) -> tensor<4x4xf32>") == ["convert", "multiply", "dot_general"]


def test_products_of_packed_matrices_are_written_in_bytes() -> None:
    """What widens them belongs to the product; XLA's GPU compiler has none of plain i4 by i4."""
    q4, sums = "!quant.uniform<i4:f32, 0.5>", "!quant.uniform<i32:f32, 0.5>"
    kinds = f"(tensor<4x8x{q4}>, tensor<8x4x{q4}>) -> tensor<4x4x{sums}>"
    dot = f"%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : {kinds}"
    assert ops(dot) == ["convert", "convert", "dot_general"]
    assert rewritten(dot)[-1].endswith("(tensor<4x8xi8>, tensor<8x4xi8>) -> tensor<4x4xi32>")


def test_arithmetic_is_that_of_the_numbers_meant() -> None:
    assert ops(f"%2 = stablehlo.add %0, %1 : tensor<4x{Q8}>") == [*DEQUANTISED, *DEQUANTISED, "add", *QUANTISED]
    (larger,) = rewritten(f"%2 = stablehlo.maximum %0, %1 : tensor<4x{Q8}>")
    assert larger.endswith("(tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>")
    clamp = f"%3 = stablehlo.clamp %0, %1, %2 : (tensor<{Q8}>, tensor<4x{Q8}>, tensor<{Q8}>) -> tensor<4x{Q8}>"
    assert ops(clamp) == ["clamp"]
    assert len(ops(clamp.replace("0.5", "0.25", 1))) > 1  # bounds in another type are other numbers


def test_scalars_are_integers_where_a_reduction_is_told_by_them_alone() -> None:
    (added,) = rewritten(f"%2 = stablehlo.add %0, %1 : tensor<{Q8}>")
    assert added.endswith("(tensor<i8>, tensor<i8>) -> tensor<i8>")
    assert ops(f"%1 = stablehlo.tanh %0 : tensor<{Q8}>") == [*DEQUANTISED, "tanh", *QUANTISED]


def test_comments_say_nothing() -> None:
    assert rewritten("%1 = stablehlo.tanh %0 : tensor<4xf32> // was tensor<4x!quant.any>") == [
        "%1 = stablehlo.tanh %0 : tensor<4xf32>"
    ]
    located = '%1 = stablehlo.tanh %0 : tensor<4xf32> loc("http://a \\"b\\" // c")'
    assert rewritten(located + "  // !quant.x = tensor", "// !q = !quant.any") == [located]


def test_names_of_types_may_be_made_of_one_another() -> None:
    """Each is written out where it is used, and every line keeps its number."""
    text = f"!q = {Q8}\n\n!t = tensor<4x!q>\n!tq = tensor<2xf32>\n%1 = stablehlo.maximum %0, %0 : !t"
    assert without_quantised_types(text, where="x").split("\n") == [
        "", "", "", "!tq = tensor<2xf32>", '%1 = "stablehlo.maximum"(%0, %0) : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi8>',
    ]  # fmt: skip


def test_a_long_constant_before_a_comment_takes_no_time_of_its_own() -> None:
    """One look at every character: millions of them were looked through again for each."""
    line = f'%0 = stablehlo.constant dense<"0x{"00" * 1_000_000}"> : tensor<1000000xi8>'
    assert without_quantised_types(f"{line} // {Q8}", where="x") == line


def test_unsigned_storage_keeps_its_sign() -> None:
    q = "!quant.uniform<u8:bf16, 0.5>"
    assert rewritten(f"%1 = stablehlo.reshape %0 : (tensor<4x{q}>) -> tensor<2x2x{q}>") == [
        "%1 = stablehlo.reshape %0 : (tensor<4xui8>) -> tensor<2x2xui8>"
    ]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("!quant.uniform<i3:f32, 0.5>", "no integer of 2, 4, 8, 16 or 32 bits"),
        ("!quant.uniform<i8:i32, 0.5>", "no float"),
        ("!quant.uniform<i8:f32, -0.5>", "must be positive"),
        ("!quant.uniform<i8:f32, 0.5:200>", "zero point 200"),
        ("!quant.uniform<i8<-200:100>:f32, 0.5>", "no range of i8"),
        ("!quant.uniform<i8:f32:1, 0.5>", "a scale for the tensor"),
        ("!quant.uniform<i8:f32>", "a scale for the tensor"),
        ("!quant.uniform<i8:f32, 1e400>", "1e400 must be positive and finite"),
        ("!quant.uniform<i8:f32:5, {0.1,0.2}>", "scales along dimension 5"),
        ("!quant.uniform<i8:f32:0, {0.1,0.2,0.3,0.4,0.5}>", "5 scales along dimension 0"),
        ("!quant.uniform<i8:f32, 0.1:3junk>", "'0.1:3junk' is no scale"),
        ("!quant.uniform<i8:f32, 0x1p-3>", "'0x1p-3' is no scale"),
        ("!quant.uniform<i8:f32:0, {0.1, 0.2 0.3}>", "'0.2 0.3' is no scale"),
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


def test_a_parsers_lines_are_those_of_the_file() -> None:
    broken = FIXTURE.read_text().replace("return %6 :", "return %7 :")
    (line,) = (number for number, text in enumerate(broken.split("\n"), 1) if "return %7" in text)
    with pytest.raises(InputError, match=rf"q\.mlir:{line}:\d+: not a valid MLIR module: use of undeclared"):
        from_bytes(broken.encode(), name="q", where="q.mlir")


PIECES = (
    "!quant.uniform<", "!quant.any<i8>", "!quant.uniform<i8:f32>", "<", ">", "{", "}", ",", ":", "-", "i1", "i64", "u8",
    "f32", "0.0", "1e400", "nan", "?x", "tensor<", "%0", " : ", " -> ", "(", ")", "\n", "//", '"', "loc(", "!act", "9" * 30,
    "{0:1,1:4}", "{{0.1}}", "<7:-8>", "\\", "\x00", "stablehlo.",
)  # fmt: skip


def test_broken_texts_are_errors_of_the_input_and_nothing_else() -> None:
    """Hundreds of texts with pieces cut out, doubled or put in, most of them inside types: read, or refused in words."""
    whole, chance, said = FIXTURE.read_text(), random.Random(7), []
    marks = [found.start() for found in re.finditer("!", whole)]
    for _ in range(400):
        at = chance.choice(marks) + chance.randrange(40)
        end = at + chance.choice((0, 1, 5, 20))
        piece = chance.choice((*PIECES, whole[at:end], ""))
        try:
            without_quantised_types(whole[:at] + piece + whole[end:], where="broken.mlir")
        except MeshcastError as error:
            said.append(str(error))
    assert len(said) > 100
    assert all("broken.mlir:" in each for each in said)


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "h200", "tpu-v6e"])
@pytest.mark.parametrize("fidelity", ["roofline", "analytical"])
def test_fewer_bits_are_never_slower_where_a_unit_takes_them(device: str, fidelity: str, tmp_path: Path) -> None:
    """A product of 4096 x 4096 by as many, in types of ever fewer bits.

    An A100 has units for 4 and 8 bits, an H200 for 8: the first type that is widened costs that on GPUs.
    """
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
    widened = {"a100-sxm-80gb": 2, "h200": 1}.get(device) if fidelity == "analytical" else None
    assert all(times[place] <= times[place - 1] for place in (1, 2) if place != widened)


@pytest.mark.parametrize("zero_point", ["", ":1"])
def test_an_op_over_several_lines_is_the_op_on_one(zero_point: str) -> None:
    """As the specification's examples are laid out: its sums are quantised, its rules checked; lines keep their numbers."""
    head = '%2 = "stablehlo.dot_general"(%0, %1) {'
    dims = [
        "dot_dimension_numbers = #stablehlo.dot<",
        "lhs_contracting_dimensions = [1],",
        "rhs_contracting_dimensions = [0]",
    ]
    right = Q8.replace(":3", zero_point)
    types = [f"> }} : (tensor<4x8x{Q8}>, tensor<8x2x{right}>)", f"-> tensor<4x2x{Q8}>"]
    behind = f"%3 = stablehlo.uniform_dequantize %2 : (tensor<4x2x{Q8}>) -> tensor<4x2xf32>"
    broken, whole = [head, *dims, *types, behind], [" ".join([head, *dims, *types]), behind]
    if zero_point:
        with pytest.raises(InputError, match=r"x:1: .*zero point 1 \(C15\)"):
            without_quantised_types("\n".join(broken), where="x")
        return
    assert rewritten(*broken) == rewritten(*whole)
    assert ops(*broken) == ["dot_general", "convert", *QUANTISED, *DEQUANTISED]
    lines = without_quantised_types("\n".join(broken), where="x").split("\n")
    assert [n for n, line in enumerate(lines) if line] == [0, len(broken) - 1]


def test_an_op_with_a_region_stays_on_its_lines() -> None:
    """What a region holds are ops of their own."""
    lines = [
        '%1 = "stablehlo.reduce"(%0, %c) ({',
        f"^bb0(%a: tensor<{Q8}>, %b: tensor<{Q8}>):",
        f"  %s = stablehlo.maximum %a, %b : tensor<{Q8}>",
        f'  "stablehlo.return"(%s) : (tensor<{Q8}>) -> ()',
        f"}}) {{dimensions = array<i64: 0>}} : (tensor<4x{Q8}>, tensor<{Q8}>) -> tensor<{Q8}>",
    ]
    made = without_quantised_types("\n".join(lines), where="x").split("\n")
    assert len(made) == len(lines)
    assert all(made)


@pytest.mark.parametrize(
    ("expressed", "bits"),
    [
        ("f32", "0x3F000000"),
        ("f16", "0x3800"),
        ("bf16", "0x3F00"),
        ("f64", "0x3FE0000000000000"),
        ("f32", "0x3fe0000000000000"),
    ],
)
def test_scales_may_be_bit_patterns(expressed: str, bits: str) -> None:
    """`QuantizationScale ::= FloatLiteral`, of hexadecimal digits the bits; 16 of them are those of an f64, as MLIR reads it."""
    found = [quantised_type(f"!quant.uniform<i8:{expressed}, {scale}:3>") for scale in (bits, "0.5")]
    assert found[0] == found[1]
    lines = "%1 = stablehlo.uniform_dequantize %0 : (tensor<4x!quant.uniform<i8:f32, {}>>) -> tensor<4xf32>"
    assert rewritten(lines.format("0x3F000000")) == rewritten(lines.format("0.5"))


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        ("0x3F00", "is no bit pattern of f32, which has 8 digits"),
        ("0x7F800000", "must be positive and finite"),
        ("0x7FC00000", "must be positive and finite"),
        ("0xBF000000", "must be positive and finite"),
        ("0x", "is no scale"),
    ],
)
def test_bit_patterns_that_are_no_scale(bits: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        quantised_type(f"!quant.uniform<i8:f32, {bits}>")


def test_a_parsers_column_is_that_of_the_file_or_left_out() -> None:
    """The parser sees the rewritten line, where columns are others; lines without quantised types are as they were."""
    q = "tensor<{}x!quant.uniform<i8:f32, 0.1>>"
    a, b = q.format("4x8"), q.format("4x9")
    quantised = f"%0 = stablehlo.add %a, %b : ({a}, {b}) -> {a}"
    plain = "%0 = stablehlo.add %c, %c : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>"
    for op, place in ((quantised, "x:3"), (plain, "x:3:24")):
        text = f"module {{\nfunc.func @main(%a: {a}, %b: {b}, %c: tensor<2xf32>) {{\n{op}\nreturn\n}}\n}}"
        with pytest.raises(InputError) as refused:
            from_bytes(text.encode(), name="x", where="x")
        assert refused.value.where == place
