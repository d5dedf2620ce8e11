"""The programs that tests keep on disk: read as they were captured, and captured anew for whatever differs."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from meshcast.programs import Program
from meshcast.programs.files import from_bytes
from tests import captured_programs
from tests.captured_archive import ARCHIVE, digest_of, pack, packed, unpack
from tests.captured_programs import (
    CapturedPrograms,
    Kept,
    UnknownKindError,
    described,
    full_name,
    made_of,
    meaning,
    name_of,
    written,
)
from tests.conftest import CAPTURING

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
    first = CapturedPrograms(tmp_path, "these").keeping(source.capture)(Asked(1))
    read = CapturedPrograms(tmp_path, "these").keeping(source.capture)(Asked(1))
    assert source.calls == 1
    assert read.module is not first.module
    assert read.text == first.text
    assert "here" in read.module.operation.get_asm(enable_debug_info=True)
    for each in fields(Program):
        assert each.name == "module" or getattr(read, each.name) == getattr(first, each.name), each.name


def test_several_programs_at_once(tmp_path: Path) -> None:
    source = Capturing()
    keeping = CapturedPrograms(tmp_path, "these").keeping(source.capture)
    assert [len(keeping("both")), len(keeping("both")), source.calls] == [2, 2, 1]


def test_what_differs_is_captured_anew(tmp_path: Path) -> None:
    """Also what prints alike; what an argument of an unknown kind stands for nobody knows, so that it is never kept."""
    source = Capturing()
    keeping = CapturedPrograms(tmp_path, "these").keeping(source.capture)
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
    """A folder that another digest named."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "program").write_bytes(b"")
    CapturedPrograms(tmp_path, "these")
    assert [path.name for path in tmp_path.iterdir()] == ["these"]


def test_tests_of_a_function_have_it_make_everything(tmp_path: Path) -> None:
    """The store is told that tests of this file are such."""
    source = Capturing()
    keeping = CapturedPrograms(tmp_path, "these").keeping(source.capture, "tests/test_captured")
    keeping(Asked(1))
    keeping(Asked(1))
    assert source.calls == 2


def test_sources_differ_by_what_they_say() -> None:
    """Not by comments, docstrings and lines."""
    source = 'def size() -> int:\n    """A size."""\n    return 4\n'
    assert meaning(source) == meaning('def size() -> int:\n    """Another text."""\n\n    return 4  # why\n')
    assert meaning(source) != meaning(source.replace("4", "5"))
    assert meaning(source) != meaning(source.replace("int", "float"))


def test_the_digest_is_of_sources_and_releases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = tmp_path / "zoo"
    sources.mkdir()
    (sources / "model.py").write_text("layers = 4\n")
    monkeypatch.setattr(captured_programs, "SOURCES", tmp_path)

    known = tmp_path / "known"
    known.mkdir()

    def digest() -> str:
        found = made_of.__wrapped__(known)
        assert found == made_of.__wrapped__(known) == made_of.__wrapped__()
        return found

    first = digest()
    (sources / "model.py").write_text("layers = 4  # as published\n")
    assert digest() == first
    (sources / "model.py").write_text("layers = 5\n")
    second = digest()
    monkeypatch.setattr(captured_programs, "version", lambda name: "0.0")
    assert len({first, second, digest()}) == 3


def test_an_archive_brings_the_programs_of_its_own_sources_alone(tmp_path: Path) -> None:
    """Those that are there stay as they are; nothing of other sources is read, whatever the archive holds."""
    source = Capturing()
    for folder in ("here", "there", "elsewhere"):
        (tmp_path / folder).mkdir()
    here = CapturedPrograms(tmp_path / "here", "these")
    first = here.keeping(source.capture)(Asked(1))
    archive = tmp_path / "archive.xz"
    assert unpack(archive, here.folder) == 0
    assert pack(here.folder, archive) == 1
    assert digest_of(archive) == "these"
    for folder, made, added, calls in (
        ("there", "these", 1, 1),
        ("there", "these", 0, 1),
        ("elsewhere", "others", 0, 2),
    ):
        there = CapturedPrograms(tmp_path / folder, made)
        assert unpack(archive, there.folder) == added
        assert there.keeping(source.capture)(Asked(1)).bytecode == first.bytecode
        assert source.calls == calls


def test_archived_programs_are_those_that_are_captured() -> None:
    """Bit by bit, one of each function that captures, and one of Shardy's answers: which ones, the sources' digest decides."""
    if digest_of(ARCHIVE) != made_of():
        pytest.skip("the archive is of other sources: nothing of it is read")
    files = packed(ARCHIVE)
    kept = sorted((each for each in map(pickle.loads, files.values()) if each.args is not None), key=made_by)
    chosen = random.Random(made_of())
    by_function = {name: list(archived) for name, archived in itertools.groupby(kept, key=made_by)}
    for captures in (as_it_is(module, name) for module, names in CAPTURING.items() for name in names):
        one = chosen.choice(by_function[full_name(captures)])
        asked = pickle.loads(one.args)
        assert written(captures(*asked)) == one.made, (captures, asked)
    answers = as_it_is("meshcast.partition.shardy", "_answer")
    programs = by_function["meshcast.jobs.planned.target._program"]
    chosen.shuffle(programs)
    questions = ((one.made["module"], (), True) for one in programs)
    asked, file = next((each, files[name]) for each in questions if (name := name_of(answers, each)) in files)
    assert answers(*asked) == pickle.loads(file).made


def made_by(kept: Kept) -> str:
    return kept.function


def as_it_is(module: str, name: str) -> Callable[..., Any]:
    """A function of ours beneath what keeps its results for tests."""
    return inspect.unwrap(getattr(importlib.import_module(module), name))


def test_the_archive_stays_small() -> None:
    """Every clone fetches it, and every archive before it."""
    assert not ARCHIVE.exists() or ARCHIVE.stat().st_size < 8e6
