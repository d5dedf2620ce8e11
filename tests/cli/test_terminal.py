"""What a person at a terminal sees: colours unless they are switched off, tables that fit, and how far long work is."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import termios
import time

import pytest

from meshcast.base import Said, listening, tell
from meshcast.base.progress import format_wait
from meshcast.cli import patience as patient
from meshcast.cli.patience import counted, patience, progress_line
from meshcast.jobs import predict

COLUMNS = 72
# Parameters of escape sequences that set a colour; bold and dim letters are none.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def _at_a_terminal(*words: str, **environment: str) -> str:
    """What a command prints on a terminal of 72 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, COLUMNS))
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    command = [sys.executable, "-m", "meshcast", *words]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**known, "TERM": "xterm-256color", **environment}
    )
    os.close(theirs)
    said = bytearray()
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    return said.decode()


def _plain(text: str) -> list[str]:
    return [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line).rstrip() for line in text.splitlines()]


def test_no_color_leaves_colours_out_and_tables_fit() -> None:
    told = _at_a_terminal("devices", NO_COLOR="1")
    assert not COLOUR.search(told)
    assert max(map(len, _plain(told))) <= COLUMNS
    assert any("h200" in line for line in _plain(told))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_says_how_far_it_is_and_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(patient, "AFTER_S", 0.01)
    with patience("searching"):
        while "searching" not in screen.getvalue():
            time.sleep(0.005)
        tell("3 of 12 plans", done=3, total=12)
    assert f"searching [{'=' * 6}{' ' * 18}] 25%: 3 of 12 plans (0 s)" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")
    quick = _Terminal()
    monkeypatch.setattr(sys, "stderr", quick)
    monkeypatch.setattr(patient, "AFTER_S", 60.0)
    with patience("searching"):
        tell("1 of 2", done=1, total=2)
    assert quick.getvalue() == "", "what is quick says nothing"


def test_a_line_of_progress_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = Said("17 of 40 points left, about 3 s left")
    said.share = 0.5
    line = progress_line("searching plans of llama3-8b", said, 12.4)
    assert len(line) == 39
    assert line.endswith("..., about 3 s left (12 s)"), "words make room for how long it takes"
    assert progress_line("tracing", None, 3.2) == "tracing (3 s)"


GPT2 = "working on gpt2"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (130, f"{GPT2} [{'=' * 12}{' ' * 12}] 50%: what would help: 3 of 6 changes tried: lowering it, about 9 s left (12 s)"),
        (99, f"{GPT2} [{'=' * 5}{' ' * 5}] 50%: what would help: 3 of 6 changes tried, about 9 s left (12 s)"),
        (80, f"{GPT2} [{'=' * 5}{' ' * 5}] 50%: 3 of 6 changes tried, about 9 s left (12 s)"),
        (66, f"{GPT2} [{'=' * 5}{' ' * 5}] 50%: 3 of 6, about 9 s left (12 s)"),
        (50, f"{GPT2}: 3 of 6, about 9 s left (12 s)"),
    ],
)  # fmt: skip
def test_the_count_stays_where_a_line_of_progress_is_short(
    monkeypatch: pytest.MonkeyPatch, columns: int, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = Said("what would help: 3 of 6 changes tried: lowering it, about 9 s left")
    said.share = 0.5
    assert progress_line(GPT2, said, 12.4) == line


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (110, f"{GPT2} [==                      ] 10%: 27 of 370 kinds of layers, at least 4.9 min left (38 s)"),
        (90, f"{GPT2} [=         ] 10%: 27 of 370 kinds of layers, at least 4.9 min left (38 s)"),
        (74, f"{GPT2} [=         ] 10%: 27 of 370, at least 4.9 min left (38 s)"),
    ],
)
def test_a_shorter_bar_says_what_is_counted(monkeypatch: pytest.MonkeyPatch, columns: int, line: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = Said("27 of 370 kinds of layers, 0 of 752 points decided, 0 predicted, at least 4.9 min left")
    said.share = 0.1
    assert progress_line(GPT2, said, 38.0) == line


def test_stages_of_a_program_count_less_than_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "56")
    for words, count in (
        ("program 2 of 5: stage 1 of 3: capturing it", "2 of 5"),
        ("stage 1 of 3: capturing it", "1 of 3"),
    ):
        said = Said(f"{words}, at least 12 min left")
        assert progress_line(GPT2, said, 12.4) == f"{GPT2}: {count}, at least 12 min left (12 s)"


def test_a_single_prediction_counts_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Said] = []
    with listening(heard.append):
        predict("llama3-tiny", on="h200", lowering="modelled", levers=0)
    assert [word for said in heard for word in re.findall(r"stage \d of 3", said)] == [
        f"stage {n} of 3" for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(("seconds", "said"), [(42.7, "43 s"), (170.0, "170 s"), (600.0, "10 min"), (9000.0, "2.5 h")])
def test_a_long_wait_is_told_in_minutes_or_hours(seconds: float, said: str) -> None:
    assert format_wait(seconds) == said


def test_a_bar_has_a_count_and_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", screen)
    for done in counted(range(3), 3, "programs"):
        assert done in range(3)
    lines = [line for text in _plain(screen.getvalue()) for line in text.split("\r")]
    assert any(re.match(r"programs .*3/3 +\d\d:\d\d left", line) for line in lines), lines
    assert max(map(len, lines)) <= 80
