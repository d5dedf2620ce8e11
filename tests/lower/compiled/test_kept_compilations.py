"""What is kept of a compilation: by the program, whoever wrote it down where, and by what older releases kept it under."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshcast.lower.compiled import compilation_cache as compilation
from meshcast.programs import Program, from_bytes

PROGRAM = """module @net {{
  func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
    %0 = stablehlo.{op} %a : tensor<8xf32> loc({name}"{file}":{line}:1{end})
    return %0 : tensor<8xf32>
  }}
}}
"""
MADE_FROM = {"compiler": "1"}


def written(op: str = "tanh", file: str = "a.py", line: int = 1, name: str = "") -> Program:
    """A program that was written in a file, its op named or not."""
    named = (f'"{name}"(', ")") if name else ("", "")
    text = PROGRAM.format(op=op, file=file, line=line, name=named[0], end=named[1])
    return from_bytes(text.encode(), name="net", where="net.mlir")


def asked(op: str = "tanh", file: str = "a.py", line: int = 1, name: str = "") -> tuple[dict[str, Any], bool]:
    """The entry of that program, and whether it was kept."""
    program = written(op, file, line, name)
    return compilation.compiled_once("xla-test", MADE_FROM, program, lambda: {"hlo": f"{op} of {file}"})


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["", "jit(step)/tanh"])
def test_where_a_program_was_written_does_not_matter(name: str) -> None:
    assert not asked(file="a.py", line=1, name=name)[1]
    found, kept = asked(file="elsewhere/b.py", line=7, name=name)
    assert kept
    assert found["hlo"] == "tanh of a.py"


def test_another_program_is_another_one() -> None:
    asked("tanh")
    assert not asked("sine")[1]


def test_ops_of_other_names_are_another_program() -> None:
    """What is recomputed is told by them, and reports show them."""
    names = ("", "jit(step)/tanh", "jit(step)/rematted_computation/tanh")
    assert [asked(name=name)[1] for name in names] == [False, False, False]
    assert [asked(name=name)[1] for name in names] == [True, True, True]


def test_a_program_without_names_goes_by_its_text() -> None:
    """As what the examples ship of programs that were written without them."""
    program = written()
    compilation.write("xla-test", compilation.entry_key(MADE_FROM, program.text.encode()), {"hlo": "shipped"})
    assert compilation.compiled_once("xla-test", MADE_FROM, program, dict)[0]["hlo"] == "shipped"


def test_an_entry_of_an_older_release_is_found() -> None:
    """They went by the program's bytes, its places among them."""
    program = written(name="jit(step)/tanh")
    compilation.write("xla-test", compilation.entry_key(MADE_FROM, program.bytecode), {"hlo": "kept long ago"})
    found, kept = compilation.compiled_once("xla-test", MADE_FROM, program, dict)
    assert kept
    assert found["hlo"] == "kept long ago"
