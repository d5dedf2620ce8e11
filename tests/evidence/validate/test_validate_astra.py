"""`validate astra`: answers of ASTRA-sim itself, an answer that is off, and files that are wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.cli.app import run
from meshcast.evidence.validate.astra import COLUMNS, AstraSetting, read_astra_rows

FIXTURE = Path(__file__).parents[2] / "fixtures" / "astra_sim.csv"
GOOD = "Unaware,Ring,4,50,500,ring,1,10,all_reduce,65536,4990"
HEADER = ",".join(COLUMNS) + "\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int | str | None]:
    """Runs a command of ours and gives its exit code."""

    def called(*arguments: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", ["meshcast", *arguments])
        with pytest.raises(SystemExit) as left:
            run()
        return left.value.code

    return called


def test_the_contract(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("validate", "astra", str(FIXTURE), "--json") == 0
    *rows, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert summary["schema"] == "meshcast.validation/1"
    assert summary["kind"] == "astra"
    assert summary["rows"] == summary["equal"] == len(rows) == 96
    assert summary["failed"] == 0
    assert summary["max_error"] == summary["geomean_error"] == 0
    assert summary["max_error_by_backend"] == {"Unaware": 0, "Aware": 0}
    assert set(summary["by"]) == {"backend", "topology", "algorithm", "collective"}
    assert {"id", "measured", "predicted", "unit", "error"} <= set(rows[0])


def test_tables_say_how_far_the_worst_is_off(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        HEADER + GOOD + "\n" + GOOD.replace("4990", "5000") + "\n" + GOOD.replace("ring,1", "tree,1") + "\n"
    )
    assert command("validate", "astra", str(path)) == 0
    printed = capsys.readouterr().out
    assert "0.2000%" in printed
    assert "no collective algorithm 'tree'" in printed


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Unaware", "unaware", "'unaware'"),
        ("Ring", "Rings", "'Rings'"),
        (",4,50", ",4x4,50", "has 1 dimensions"),
        (",4,50", ",one,50", "npus_count is 'one'"),
        (",4,50", ",1,50", "a dimension of 1 NPUs"),
        ("all_reduce", "reduce", "'reduce'"),
        ("4990", "0", "finish_ns is 0"),
    ],
)
def test_cells_that_are_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + GOOD.replace(old, new) + "\n")
    with pytest.raises(InputError, match=words) as raised:
        read_astra_rows(path, AstraSetting())
    assert raised.value.where == f"{path}: row 1"


def test_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text, words in (("a,b\n", "no column backend"), (HEADER, "no rows")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_astra_rows(path, AstraSetting())
    with pytest.raises(InputError, match="cannot be read"):
        read_astra_rows(tmp_path / "none.csv", AstraSetting())


@pytest.mark.parametrize("flag", ["--by", "--collective-optimization"])
def test_choices_are_checked(command: Callable[..., int], flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("validate", "astra", str(FIXTURE), flag, "guess") == 2
    assert flag in capsys.readouterr().err


def test_rows_without_the_program_fail_by_name(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command("validate", "astra", str(FIXTURE), "--by", "astra-sim", "--limit", "2", "--json") == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["failed"] == 2
    assert all("is not on the PATH" in why for why in summary["failures"].values())
    assert summary["max_error"] is None
