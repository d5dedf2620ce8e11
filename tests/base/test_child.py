"""Child processes: what counts as an answer, and what only looks like one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshcast.base.child import Child, ChildCrashedError, ChildFailedError, child_environment
from meshcast.estimate.outside.environment import Environment
from meshcast.evidence.validate.programs import in_processes

SERVED = """
import os, sys
from meshcast.base.child import serve
def answer(request, data):
{body}
serve(answer)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Child]]:
    """A child that runs the given source."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[Child] = []

    def start(source: str) -> Child:
        name = f"served_{len(started)}"
        (tmp_path / f"{name}.py").write_text(source)
        started.append(Child(name))
        return started[-1]

    yield start
    for each in started:
        each.close()


def _served(*body: str) -> str:
    return SERVED.format(body="\n".join(f"    {line}" for line in body))


def test_answers_and_errors(child: Callable[[str], Child]) -> None:
    echo = child(_served("if request['fail']: raise ValueError('no')", "return data * 2"))
    assert echo.request({"fail": False}, b"ab") == b"abab"
    with pytest.raises(ChildFailedError, match="no"):
        echo.request({"fail": True}, b"")
    assert echo.request({"fail": False}, b"") == b""


def test_what_the_child_prints_is_no_answer(child: Callable[[str], Child]) -> None:
    noisy = child(_served("os.write(1, b'native words ')", "print('python words', flush=True)", "return data"))
    for data in (b"one", b"two"):
        assert noisy.request({}, data) == data


def test_half_an_answer_is_a_crash(child: Callable[[str], Child]) -> None:
    broken = child("import os\nos.write(1, b'{\"ok\": true, \"bytes\": 100}\\n' + b'x' * 40)\nos._exit(3)\n")
    with pytest.raises(ChildCrashedError, match="exit 3"):
        broken.request({}, b"")


def test_words_instead_of_an_answer_are_a_crash(child: Callable[[str], Child]) -> None:
    garbled = child("import os, time\nos.write(1, b'WARNING: hello\\n')\ntime.sleep(60)\n")
    with pytest.raises(ChildCrashedError):
        garbled.request({}, b"")


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules in it whose names ours import; none of them was run."""
    folder, mark = tmp_path / "data", tmp_path / "was-run"
    folder.mkdir()
    for name in ("json", "runpy", "typing", "multiprocessing", "venv", "pip", "jaxlib"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__name__)\n")
    monkeypatch.chdir(folder)
    yield folder
    assert not mark.exists(), mark.read_text()


@pytest.mark.usefixtures("data_folder")
def test_a_child_does_not_import_from_the_current_folder(child: Callable[[str], Child]) -> None:
    which = child(_served("import json, typing", "return (json.__file__ + typing.__file__).encode()"))
    assert b"data" not in which.request({}, b"")


@pytest.mark.parametrize("before", ["", "{folder}:", ":{folder}"])
def test_an_empty_entry_of_the_search_path_is_not_passed_on(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", before.format(folder="/somewhere"))
    entries = child_environment()["PYTHONPATH"].split(os.pathsep)
    assert "" not in entries
    assert ("/somewhere" in entries) == bool(before)


@pytest.mark.usefixtures("data_folder")
def test_processes_of_a_pool_do_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert list(in_processes(str.upper, ["a", "b"], 2)) == ["A", "B"]
    assert "PYTHONSAFEPATH" not in os.environ


def test_an_outside_simulator_does_not_either(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data_folder / "lies_around-0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lies-around\nVersion: 0.0\n")
    outside = Environment(name="nowhere", distribution="lies-around", purpose="a test", below=(4, 0))
    monkeypatch.setenv(outside.variable, sys.executable)
    assert outside.release() is None


def test_the_module_form_leaves_the_current_folder(data_folder: Path) -> None:
    """`python -m` itself looks there for what it needs before any line of ours runs; nothing that we import does."""
    (data_folder / "runpy.py").unlink()
    answer = subprocess.run([sys.executable, "-m", "meshcast", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("meshcast ")
