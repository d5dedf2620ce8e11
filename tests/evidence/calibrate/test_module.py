"""`python -m meshcast.evidence.calibrate`, for machines that have jax and nothing else of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshcast.estimate.measurements.profile import read_profile
from meshcast.evidence.calibrate.__main__ import main


def test_it_needs_jax_alone() -> None:
    code = "import sys, meshcast.evidence.calibrate.__main__; print(sorted({'typer', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.profile.jsonl.gz"
    monkeypatch.setattr(sys, "argv", ["calibrate", str(path), "--limit", "2", "--families", "transpose"])
    assert main() == 0
    assert "2/2 probes, 0 failed, done" in capsys.readouterr().err
    assert len(read_profile(path).measurements) == 2


def test_mistakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.profile.jsonl.gz"
    path.write_text("no profile\n")
    monkeypatch.setattr(sys, "argv", ["calibrate", str(path), "--limit", "1", "--families", "transpose"])
    assert main() == 2
    assert "meshcast: unreadable-input" in capsys.readouterr().err
