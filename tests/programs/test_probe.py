"""What ends the process that reads it ends a child's: the command goes on, and says what it was."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from meshcast.base.child import last_words
from meshcast.base.errors import InputError
from meshcast.programs import from_bytes, hlo_text, mlir, probe
from meshcast.programs.reading_ahead import needs_reader
from tests.cli.conftest import Meshcast
from tests.cli.conftest import meshcast as meshcast

FIXTURES = Path(__file__).parents[1] / "fixtures"
TANH = (FIXTURES / "tanh.mlir").read_text()
NUMBERED = "HloModule m\nENTRY main {\n  p = f32[8]{0} parameter(7)\n  ROOT a = f32[8]{0} add(p, p)\n}\n"
OPAQUE = "HloModule m\nENTRY main {\n  p = opaque[8]{0} parameter(0)\n  ROOT a = opaque[8]{0} add(p, p)\n}\n"
NAMED = TANH.replace("%a : tensor<16x64xf32>", '%a : tensor<16x64xf32> loc("a\\FFb")')
ARGUMENT = TANH.replace("%a: tensor<16x64xf32>", '%a: tensor<16x64xf32> loc("\\FF")')
NESTED = TANH.replace(
    ") -> tensor<16x64xf32> {", f") -> tensor<16x64xf32> attributes {{x = {'[' * 20000}{']' * 20000}}} {{"
)
CRASHING = {
    "numbered.hlo": (NUMBERED.encode(), "param_no"),
    "opaque.hlo": (OPAQUE.encode(), "Check failed"),
    "debug_name.jaxexport": ((FIXTURES / "damaged/debug_name.jaxexport").read_bytes(), "conversion error"),
    "debug_name.mlir": (NAMED.encode(), "conversion error"),
    "argument.mlir": (ARGUMENT.encode(), "conversion error"),
    "debug_name.mlirbc": (mlir.to_bytecode(mlir.parse_module(NAMED, where="test")), "conversion error"),
    "nested.mlir": (NESTED.encode(), "SIGSEGV"),
}


@pytest.mark.parametrize("name", CRASHING)
def test_what_crashes_a_reader_is_an_error(name: str) -> None:
    data, words = CRASHING[name]
    with pytest.raises(InputError, match="crashed on it") as caught:
        from_bytes(data, name="x", where=name)
    assert words in caught.value.message
    assert caught.value.where == name


def test_memory_that_is_not_the_readers_is_an_error() -> None:
    """XLA reads beyond its own memory here: which signal ends it, or whether it sees an error, the heap decides."""
    with pytest.raises(InputError, match=r"crashed on it \(|fails on it") as caught:
        from_bytes((FIXTURES / "damaged/segfault.hlo").read_bytes(), name="x", where="segfault.hlo")
    assert caught.value.where == "segfault.hlo"


def test_other_targets_are_answered(meshcast: Meshcast) -> None:
    for name in ("numbered.hlo", "debug_name.mlir"):
        Path(name).write_bytes(CRASHING[name][0])
    Path("tanh.mlir").write_text(TANH)
    answer = meshcast("predict", "numbered.hlo", "tanh.mlir", "debug_name.mlir", "tanh.mlir", "--on", "h200", "--json")
    assert answer.code == 2
    assert [line.get("error", {}).get("code") for line in answer.lines] == ["unreadable-input", None] * 2


@pytest.mark.parametrize("name", [r"\C3\A9", "é", "plain"])
def test_names_that_are_text_are_read(name: str) -> None:
    program = from_bytes(ARGUMENT.replace(r"\FF", name).encode(), name="x", where="x")
    assert program.arguments[0].name == ("plain" if name == "plain" else "é")


def test_bytes_in_attributes_are_no_damage() -> None:
    """Compressed kernels travel so, in the configuration of custom calls."""
    text = TANH.replace("%a : tensor<16x64xf32>", '%a {config = "\\FF\\80"} : tensor<16x64xf32>')
    for data in (text.encode(), mlir.to_bytecode(mlir.parse_module(text, where="test"))):
        assert from_bytes(data, name="x", where="x").devices == 1


def test_ordinary_text_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_asked", lambda *given, **more: pytest.fail("the child was asked"))
    from_bytes(TANH.encode(), name="x", where="x")


def test_hlo_is_converted_in_the_child_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlo_text, "to_stablehlo", lambda *given, **more: pytest.fail("converted here"))
    good = NUMBERED.replace("parameter(7)", "parameter(0)")
    assert "stablehlo.add" in from_bytes(good.encode(), name="x", where="x").text


def test_errors_of_the_conversion_keep_their_kind_and_place() -> None:
    with pytest.raises(InputError) as caught:
        from_bytes(NUMBERED.replace("add(p, p)", "ad(p, p)").encode(), name="x", where="x.hlo")
    assert caught.value.where == "x.hlo:4:22"
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "depth"), [("", 0), ("f(a) -> {[<x>]}", 3), ("((()))(", 3), ("a -> b -> c", 0), (")))(((", 0)]
)
def test_nesting(text: str, depth: int) -> None:
    assert probe.nesting(text) == depth


def test_last_words_are_the_reason_not_the_stack() -> None:
    printed = "F0000 00:00:1794795988.1 18783 shape.h:852] Check failed: x == y\n*** Check failure stack trace:\n    @ 0x7f f()\n"
    assert last_words(printed) == "shape.h:852] Check failed: x == y"
    assert last_words("one\n\ntwo\nthree\nfour\n") == "two | three | four"
    assert last_words("") == ""


@pytest.mark.parametrize(
    ("name", "data", "needed"),
    [
        ("a.txt", b"HloModule m\n", True),
        ("a.hlo.gz", gzip.compress(b"\n HloModule m\n", mtime=0), True),
        ("a.mlirbc", mlir.to_bytecode(mlir.parse_module(TANH, where="test")), True),
        ("a.jaxexport", b"\0", True),
        ("a.mlir", TANH.encode(), False),
        ("a.gz", b"\x1f\x8b", False),
        ("a.et", b"\x08\xff", False),
    ],
)
def test_the_command_knows_which_files_need_the_child(tmp_path: Path, name: str, data: bytes, needed: bool) -> None:
    (tmp_path / name).write_bytes(data)
    assert needs_reader(str(tmp_path / name)) is needed
    assert not needs_reader(str(tmp_path))
    assert not needs_reader("a" * 300)


def test_bytecode_of_others_is_read_by_the_child_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage may survive the reading and end the process later (`free(): corrupted unsorted chunks`)."""
    theirs = mlir.to_bytecode(mlir.parse_module(TANH, where="test")).replace(b"MLIR", b"RLIM", 1)  # who wrote it
    portable = bytes(mlir.stablehlo.serialize_portable_artifact_str(TANH, mlir.stablehlo.get_current_version()))
    read: list[str | bytes] = []
    parse = mlir.parse_module

    def parse_and_note(source: str | bytes, *, where: str) -> Any:
        read.append(source)
        return parse(source, where=where)

    monkeypatch.setattr(mlir, "parse_module", parse_and_note)
    monkeypatch.setattr(mlir, "deserialize_portable", lambda *given, **more: pytest.fail("read here"))
    for data in (theirs, portable):
        assert "stablehlo.tanh" in from_bytes(data, name="x", where="x").text
        assert read.pop() != data
