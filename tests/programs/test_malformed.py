"""Broken input of any form: a typed error or a program, never anything else; large input: an answer in seconds."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest

from meshcast.base.errors import InputError, MeshcastError, UnsupportedError, UsageError
from meshcast.programs import from_bytes, mlir
from meshcast.programs.bytecode import size_of_ops
from meshcast.programs.constants import shortened
from meshcast.programs.files import SIZE_LIMIT_VARIABLE
from tests.programs.conftest import Step, forms

ADD = """module {{
  func.func @main(%a: tensor<{type}>) -> tensor<{type}> {{
    %0 = stablehlo.constant dense<{value}> : tensor<{type}>
    %1 = stablehlo.add %a, %0 : tensor<{type}>
    return %1 : tensor<{type}>
  }}
}}
"""


@pytest.mark.parametrize("form", ["text", "bytecode", "portable", "exported", "hlo", "gz"])
def test_truncation_anywhere_is_an_error(step: Step, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = gzip.compress(forms(step)["text"]) if form == "gz" else forms(step)[form]
    cuts = {len(data) * part // 40 for part in range(40)} | {1, 4, 5, 20, 30}
    for cut in sorted(cuts):
        with pytest.raises(MeshcastError):
            from_bytes(data[:cut], name="x", where="x")
    for cut in range(1, 9):  # what ends a text may be blank, what ends an export padding
        try:
            from_bytes(data[:-cut], name="x", where="x")
        except MeshcastError:
            continue
    assert capfd.readouterr().err == ""


def test_a_truncated_text_is_called_so(step: Step) -> None:
    text = step.lowered.as_text()
    with pytest.raises(InputError, match="the text ends in the middle"):
        from_bytes(text[: text.index("stablehlo.dot_general") + 14].encode(), name="x", where="x")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            ADD.format(type="4xf32", value="1.0").replace("stablehlo.add", "stablehlo.ad"),
            UnsupportedError,
            "stablehlo.ad",
        ),
        ('func.func @main() { "my.op"() : () -> ()\n return }', UnsupportedError, "'my.op'"),
        ("func.func @main(%a: tensor<4x!quant.any<i8:f32>>) { return }", UnsupportedError, "says no integers"),
        ("func.func @main(%a: !my.type) { return }", UnsupportedError, "!my.type"),
        ("module attributes {x = #my.attr<1>} { func.func @main() { return } }", UnsupportedError, "#my.attr"),
        ("module { func.func private @main(tensor<4xf32>) }", InputError, "empty"),
        ("module { func.func @a() { return }\n func.func @b() { return } }", InputError, "no function named @main"),
        ("once upon a time", InputError, "'once' is no op"),
        ('{"version": 3}', InputError, "not a valid MLIR module"),
    ],
)
def test_messages(text: str, error: type[MeshcastError], words: str) -> None:
    with pytest.raises(error) as caught:
        from_bytes(text.encode(), name="x", where="x.mlir")
    assert words in str(caught.value)
    assert str(caught.value).startswith("x.mlir")


def test_unknown_ops_in_bytecode_are_named() -> None:
    context = mlir.make_context()
    context.allow_unregistered_dialects = True
    with context:
        data = mlir.to_bytecode(mlir.ir.Module.parse('func.func @main() { "my.op"() : () -> ()\n return }'))
    with pytest.raises(UnsupportedError, match="dialect 'my'"):
        from_bytes(data, name="x", where="x")


def test_newer_artifacts_are_read_unless_an_op_is_newer(step: Step) -> None:
    data = forms(step)["portable"]
    newer = data.replace(b"StableHLO_v1.", b"StableHLO_v9.")
    assert from_bytes(newer, name="x", where="x").devices == 1
    with pytest.raises(InputError, match=r"dialect version .* written as StableHLO_v9\."):
        from_bytes(newer.replace(b"tanh_v2", b"tanh_v9"), name="x", where="x")
    bytecode = bytearray(forms(step)["bytecode"])
    bytecode[4] = 0xCD
    with pytest.raises(InputError, match="dialect version"):
        from_bytes(bytes(bytecode), name="x", where="x")


@pytest.mark.parametrize(
    ("kind", "first", "digits"),
    [
        ("f32", "0000803F", 8),
        ("bf16", "803F", 4),
        ("i1", "FF", 0),
        ("f8E4M3FN", "38", 2),
        ("complex<f32>", "0000803F00000040", 16),
    ],
)
def test_large_constants_are_cut_to_one_element(kind: str, first: str, digits: int) -> None:
    count = 40_000
    if kind == "i1":  # eight to a byte
        count, first = 320_000, "55"
    data = first * 40_000
    text = ADD.format(type=f"{count}x{kind}", value=f'"0x{data}"')
    short = shortened(text, keep=0)
    assert len(short) < 1000
    assert f'dense<"0x{first[:digits] or "00"}">' in short
    assert f"{count}x{kind}" in from_bytes(text.encode(), name="x", where="x").text


def test_tables_that_differ_stay_different_until_there_are_many() -> None:
    """A compiler computes once what is computed with equal constants: cut, both of these would be zeros."""
    tables = [f"{i:08X}".join(["00000000"] * 9_000) + f"{i:08X}" for i in (1, 2)]
    values = [ADD.format(type="17999xf32", value=f'"0x{data[: 8 * 17_999]}"') for data in tables]
    text = "".join(values)
    assert shortened(text) == text
    first_alone = shortened(text, keep=len(values[0]))
    assert first_alone.startswith(values[0])
    assert len(first_alone) < len(values[0]) + 1000


def test_large_lists_and_resources_are_cut() -> None:
    numbers = ", ".join("1.5" if i % 2 else "2.5" for i in range(30_000))
    assert "dense<2.5> : tensor<30000xf32>" in shortened(ADD.format(type="30000xf32", value=f"[{numbers}]"), keep=0)
    blob = ADD.format(type="30000xf32", value="0").replace("dense<0>", "dense_resource<w>")
    blob += '{-# dialect_resources: { builtin: { w: "0x04000000' + "0000803F" * 30_000 + '" } } #-}\n'
    assert len(shortened(blob, keep=0)) < 1000
    assert from_bytes(blob.encode(), name="x", where="x").devices == 1
    assert shortened(ADD.format(type="4xf32", value="[1.0, 2.0, 3.0, 4.0]")).count("1.0, 2.0") == 1


def test_bytecode_is_measured_by_its_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = "0000803F" * 9_999 + "00000040"
    weights = mlir.to_bytecode(mlir.parse_module(ADD.format(type="10000xf32", value=f'"0x{numbers}"'), where="x"))
    lines = "".join(f"%{i + 1} = stablehlo.add %{i}, %{i} : tensor<4xf32>\n" for i in range(4_000))
    ops = mlir.to_bytecode(mlir.parse_module(f"func.func @main(%0: tensor<4xf32>) {{\n{lines}return\n}}", where="x"))
    assert 0 < size_of_ops(weights) < 200 < 40_000 < size_of_ops(ops) < len(ops)
    assert size_of_ops(ops[:8]) == size_of_ops(b"ML\xefR") == 0
    monkeypatch.setenv(SIZE_LIMIT_VARIABLE, "100000")
    assert from_bytes(weights, name="x", where="x").devices == 1
    with pytest.raises(InputError, match="larger than"):
        from_bytes(ops, name="x", where="x")


def test_the_limit_can_be_changed(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    data = forms(step)["text"]
    monkeypatch.setenv(SIZE_LIMIT_VARIABLE, "1000")
    with pytest.raises(InputError, match=SIZE_LIMIT_VARIABLE):
        from_bytes(data, name="x", where="x")
    with pytest.raises(InputError, match="larger than"):  # a small file that unpacks to a large one
        from_bytes(gzip.compress(b" " * 20_000), name="x", where="x")
    monkeypatch.setenv(SIZE_LIMIT_VARIABLE, "many")
    with pytest.raises(UsageError, match="number of bytes"):
        from_bytes(data, name="x", where="x")


def test_200_megabytes_are_answered_in_seconds_and_2_gigabytes() -> None:
    code = f"""
import resource, sys
from meshcast.programs import from_bytes
from meshcast.base.errors import InputError
text = {ADD!r}.format(type="26214400xf32", value='"0x' + "0000803F" * 26214399 + '0000903F"')
assert len(text) > 200 * 2**20
assert "26214400xf32" in from_bytes(text.encode(), name="x", where="x").text
del text
ops = "    %1 = stablehlo.add %0, %0 : tensor<1024x1024xf32>\\n" * 4_000_000
ops = "func.func @main(%0: tensor<1024x1024xf32>) {{\\n" + ops + "    return\\n}}\\n"
assert len(ops) > 200 * 2**20
try:
    from_bytes(ops.encode(), name="x", where="x")
except InputError as error:
    assert "larger than" in str(error)
else:
    raise AssertionError("read")
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kilobytes, processor_seconds = map(float, done.stdout.split())
    assert kilobytes < 2_000_000
    assert processor_seconds < 30
