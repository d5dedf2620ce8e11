"""The wheel: all that the package reads is in it, and an environment with nothing of this clone predicts with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meshcast"
ASKED = ["predict", "step.mlir", "--on", "h200", "--fidelity", "roofline", "--levers", "none", "--json"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip builds it, without fetching anything; of a copy, because setuptools leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=unwanted)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(source)],
        capture_output=True, text=True,
    )  # fmt: skip
    if built.returncode and "No module named pip" in built.stderr:
        pytest.skip("this environment has no pip, which builds the wheel")
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    """Catalogues, stacks, measurements, locks, doors, pages: whatever lies beside the modules is there to be read."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    lying = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert len(lying) > 900
    assert lying - packed == set()
    assert {name.split("/")[0] for name in packed} == {"meshcast", wheel.name.rpartition("-py3")[0] + ".dist-info"}


def test_an_empty_environment_with_the_wheel_predicts(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are read from this environment: what is tried is the package, not the index."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    home = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install, str(wheel)], check=True)
    # No `addsitedir`: it would read this environment's .pth files too, and with them the clone.
    (home / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.copy(ROOT / "tests" / "fixtures" / "tanh.mlir", tmp_path / "step.mlir")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def answered(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = answered(str(python), "-c", "import meshcast; print(meshcast.__file__)")
    assert Path(where.strip()).is_relative_to(home), f"the clone was imported: {where}"
    prediction = json.loads(answered(str(environment / "bin" / "meshcast"), *ASKED))
    here = json.loads(answered(sys.executable, "-m", "meshcast", *ASKED))
    assert prediction["feasible"]
    assert prediction["step_time_s"] == here["step_time_s"] > 0
    assert prediction["on"]["device"] == "h200"
