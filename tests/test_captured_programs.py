"""The programs that tests keep on disk: read as they were captured, and captured anew for whatever differs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from meshcast.programs import Program
from meshcast.programs.files import from_bytes
from tests.captured_programs import CapturedPrograms, UnknownKindError, described, made_of

TEXT = """module {
  func.func public @main(%x: tensor<4xf32> loc("w")) -> tensor<4xf32> {
    %y = stablehlo.add %x, %x : tensor<4xf32> loc("here")
    return %y : tensor<4xf32>
  }
}"""


@dataclass(frozen=True)
class Asked:
    """Arguments as models have them."""

    size: int
    options: tuple[tuple[str, Any], ...] = ()


class Capturing:
    """A function that captures, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def capture(self, asked: object) -> Program | tuple[Program, ...]:
        self.calls += 1
        program = replace(from_bytes(TEXT.encode(), name="program", where="test"), notes=("a note",))
        return (program, program) if asked == "both" else program


def test_a_program_is_read_as_it_was_captured(tmp_path: Path) -> None:
    """By another store over the same folder, as another worker has one."""
    source = Capturing()
    first = CapturedPrograms(tmp_path).keeping(source.capture)(Asked(1))
    read = CapturedPrograms(tmp_path).keeping(source.capture)(Asked(1))
    assert source.calls == 1
    assert read.module is not first.module
    assert read.text == first.text
    assert "here" in read.module.operation.get_asm(enable_debug_info=True)
    for each in fields(Program):
        assert each.name == "module" or getattr(read, each.name) == getattr(first, each.name), each.name


def test_several_programs_at_once(tmp_path: Path) -> None:
    source = Capturing()
    keeping = CapturedPrograms(tmp_path).keeping(source.capture)
    assert [len(keeping("both")), len(keeping("both")), source.calls] == [2, 2, 1]


def test_what_differs_is_captured_anew(tmp_path: Path) -> None:
    """Also what prints alike; what an argument of an unknown kind stands for nobody knows, so that it is never kept."""
    source = Capturing()
    keeping = CapturedPrograms(tmp_path).keeping(source.capture)
    different = [
        Asked(1),
        Asked(2),
        Asked(1, (("dtype", "1"),)),
        Asked(1, (("dtype", 1),)),
        Asked(1, (("dtype", True),)),
    ]
    for asked in [*different, *different]:
        keeping(asked)
    assert source.calls == len(different)
    keeping(object())
    keeping(object())
    assert source.calls == len(different) + 2
    with pytest.raises(UnknownKindError, match="object"):
        described((1, object()))


def test_programs_of_other_sources_go(tmp_path: Path) -> None:
    """A folder that another digest named; the digest is of this very source."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "program").write_bytes(b"")
    CapturedPrograms(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [made_of()[:16]]


def test_tests_of_a_function_have_it_make_everything(tmp_path: Path) -> None:
    """The store is told that tests of this file are such."""
    source = Capturing()
    keeping = CapturedPrograms(tmp_path).keeping(source.capture, "tests/test_captured")
    keeping(Asked(1))
    keeping(Asked(1))
    assert source.calls == 2
