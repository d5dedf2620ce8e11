"""What lies in the repository is what lint and types look at: no scratch file is left beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Scripts that made measurements lie with these, as they were run.
AS_THEY_WERE_RUN = "data"


def test_every_python_file_is_linted() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py", "*.pyi"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no clone of the repository: nothing says which files are its own")
    command = re.search(r"^\t\$\(BIN\)/ruff check (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert command is not None
    folders = {*command[1].split(), AS_THEY_WERE_RUN}
    files = [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    assert len(files) > 1000
    assert [str(file) for file in files if file.parts[0] not in folders] == []
