"""`meshcast systolic` at the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.cli.app import run
from meshcast.estimate.systolic import ArrayBuffer, Layer, LayerResult, SystolicArray, simulate
from meshcast.estimate.systolic.files import config_text

ARRAY = ("--rows", "4", "--cols", "3", "--dataflow", "ws")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["meshcast", "systolic", *arguments])
    with pytest.raises(SystemExit) as leaving:
        run()
    return int(leaving.value.code or 0)


def test_one_layer_in_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, *ARRAY, "--gemm", "10,7,5", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["compute_cycles"] == 2 * 3 * (2 * 4 + 3 + 10 - 2) - 1
    assert answer["stall_cycles"] == 0
    assert 0 < answer["utilisation"] < answer["mapping_efficiency"] <= 1


def test_layers_of_a_file_on_the_array_of_a_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = ArrayBuffer(words=1024, bandwidth=1)
    array = SystolicArray(rows=4, columns=3, dataflow="ws", ifmap=small, filter=small, ofmap=small)
    (tmp_path / "a.cfg").write_text(config_text(array))
    (tmp_path / "a.csv").write_text("Layer, M, N, K,\none, 100, 40, 30,\ntwo, 10, 7, 5,\n")
    files = ("--layers", str(tmp_path / "a.csv"), "--config", str(tmp_path / "a.cfg"), "--json")
    assert call(monkeypatch, *files) == 0
    one, two = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["stall_cycles"] > two["stall_cycles"] == 0
    assert one["total_cycles"] == one["compute_cycles"] + one["stall_cycles"]
    assert call(monkeypatch, *files, "--bandwidth", "1000", "--sram", "64") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["stall_cycles"] == 0


def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, *ARRAY, "--conv", "8,8,3,3,2,4,1", "--conv", "8,8,3,3,2,4", "--bandwidth", "1,2,3") == 0
    printed = capsys.readouterr().out
    assert "4 x 3 cells, ws; 1, 2, 3 words a cycle" in printed
    assert "8,8,3,3,2,4,1" in printed


def test_another_simulator_is_named_and_has_our_answer_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doubled(layers: Sequence[Layer], array: SystolicArray) -> list[LayerResult]:
        return [replace(each, compute_cycles=2 * each.compute_cycles) for each in simulate(layers, array)]

    monkeypatch.setattr(
        "meshcast.cli.systolic.layer_simulator", lambda name: doubled if name == "scalesim" else simulate
    )
    assert call(monkeypatch, *ARRAY, "--gemm", "10,7,5", "--simulator", "scalesim") == 0
    title, heading, row = capsys.readouterr().out.splitlines()
    assert title.endswith("; by scalesim")
    assert heading.split()[-2:] == ["total,", "ours"]
    theirs, ours = (int(row.split()[place].replace(",", "")) for place in (1, -1))
    assert theirs == 2 * ours


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ARRAY,), "no layer is given"),
        (("--rows", "4", "--gemm", "1,2,3"), "--cols and --dataflow missing"),
        ((*ARRAY, "--gemm", "1,2"), "2 numbers"),
        ((*ARRAY, "--gemm", "1,2,x"), "not a positive integer"),
        ((*ARRAY, "--conv", "3,3,4,4,1,1,1"), "larger than the map"),
        ((*ARRAY, "--gemm", "1,2,3", "--sram", "1,2"), "2 numbers"),
        ((*ARRAY, "--gemm", "1,2,3", "--simulator", "gem5"), "no simulator"),
        (("--rows", "4", "--cols", "3", "--dataflow", "rs", "--gemm", "1,2,3"), "no dataflow"),
        ((*ARRAY, "--layers", "/no/such/file"), "/no/such/file"),
    ],
)
def test_mistakes_exit_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err
