"""Child processes: what counts as an answer, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshcast.child import Child, ChildCrashedError, ChildFailedError

SERVED = """
import os, sys
from meshcast.child import serve
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
