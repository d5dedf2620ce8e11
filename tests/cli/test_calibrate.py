"""`meshcast calibrate`, on the CPU that runs the tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from meshcast.cli.app import run
from meshcast.estimate.measurements.profile import read_profile
from meshcast.evidence.calibrate import request
from meshcast.hardware import load_device
from tests.evidence.calibrate.small_cpu import measure_little


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_little(monkeypatch)


def _meshcast(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["meshcast", "calibrate", *map(str, arguments)])
    with pytest.raises(SystemExit) as leaving:
        run()
    return int(leaving.value.code or 0)


def test_a_profile_with_its_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.profile.jsonl.gz"
    code = _meshcast(
        monkeypatch, "--profile", "-o", path, "--on", "my-cpu", "--limit", 3, "--families", "rows,transpose", "--json"
    )
    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (said["rows"], said["failed"], said["not_lowered"], said["left"]) == (3, 0, 0, 0)
    profile = read_profile(path)
    assert profile.header.device == "my-cpu"
    assert profile.header.lowered_by
    assert sum(1 for _ in profile.lowered()) == 3
    assert load_device(tmp_path / "my-cpu.toml").facts["memory.bandwidth"].source == "measured"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.profile.jsonl.gz", "my-cpu.toml"]
    assert _meshcast(monkeypatch, "--relower", path) == 0
    assert "3 rows, 0 could not be lowered" in capsys.readouterr().out


def test_a_cpus_profile_predicts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From measuring to predicting, as the guide says it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "mine.profile.jsonl.gz"
    assert (
        _meshcast(
            monkeypatch,
            "--profile",
            "-o",
            path,
            "--on",
            "my-cpu",
            "--limit",
            10,
            "--families",
            "gemm,elementwise",
            "--json",
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["paired"] > 0
    on = ("predict", "mlp-tiny", "--on", str(tmp_path / "my-cpu.toml"), "--fidelity", "profiled", "--json")
    monkeypatch.setattr(sys, "argv", ["meshcast", *on, "--profile", str(path)])
    with pytest.raises(SystemExit) as leaving:
        run()
    said = json.loads(capsys.readouterr().out)
    assert leaving.value.code == 0
    assert said["fidelity"] == "profiled"
    assert said["step_time_s"] > 0
    assert said["provenance"]["interpolated"] + said["provenance"]["extrapolated"] > 0
    monkeypatch.setattr(sys, "argv", ["meshcast", *on])
    with pytest.raises(SystemExit) as leaving:
        run()
    assert leaving.value.code == 4
    assert "--profile FILE" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(request, "measure", interrupted)
    path = tmp_path / "mine.profile.jsonl.gz"
    assert _meshcast(monkeypatch, "--profile", "-o", path, "--limit", 1, "--families", "rows") == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert (tmp_path / "mine.profile.jsonl").is_file()


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _meshcast(monkeypatch, "--list", "--families", "gemm", "--limit", 5) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("gemm:m=") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--profile"),
        (("--profile", "--list"), "one of"),
        (("--list", "--families", "gems"), "did you mean 'gemm'"),
        (("--profile", "--minutes", "0"), "--minutes"),
        (("--relower", "none.jsonl.gz"), "none.jsonl.gz"),
        (("--list", "--hlo", "somewhere"), "--keep-hlo"),
        (("--profile", "--limit", "0"), "--limit"),
    ],
)
def test_mistakes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert _meshcast(monkeypatch, *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_host_is_measured_where_torch_finds_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("meshcast.programs.has_gpu", lambda: False, raising=False)
    assert _meshcast(monkeypatch, "--torch-host") == 4
    told = capsys.readouterr().err
    assert "torch is not installed here" in told or "torch finds no GPU here" in told
