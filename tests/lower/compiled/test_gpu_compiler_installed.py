"""Where the GPU compiler is looked for and how it comes there, with packages that are empty and a pip that is none."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshcast.base import UnsupportedError, UsageError
from meshcast.cli import doctor
from meshcast.lower.compiled.xla_gpu import installation
from meshcast.lower.compiled.xla_gpu.installation import (
    MEASURED,
    PLUGIN,
    TOOLKIT,
    VARIABLE,
    Installation,
    found_gpu_compiler,
    install_gpu_compiler,
    own_folder,
    wanted_release,
)

ROOT = Path(__file__).parents[3]
JAXLIB = metadata.version("jaxlib")


def put(folder: Path, version: str = JAXLIB) -> None:
    """Lays empty packages out as pip does."""
    (folder / "jax_plugins/xla_cuda12").mkdir(parents=True)
    (folder / "jax_plugins/xla_cuda12/xla_cuda_plugin.so").touch()
    (folder / "nvidia/cuda_nvcc").mkdir(parents=True)
    distribution = folder / f"jax_cuda12_pjrt-{version}.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: {version}\n")


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A Python on Linux that has no packages."""
    found = SimpleNamespace(path=[], platform="linux")
    monkeypatch.setattr(installation, "sys", found)
    return found


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: SimpleNamespace) -> Path:
    """A cache folder that is empty, and nothing that names another place."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


class TestLooking:
    def test_among_this_pythons_packages_where_the_extra_is_installed(
        self, nowhere: Path, python: SimpleNamespace
    ) -> None:
        assert found_gpu_compiler() == "XLA's CUDA compiler is not installed"
        put(nowhere / "site-packages")
        python.path.append(str(nowhere / "site-packages"))
        found = found_gpu_compiler()
        assert isinstance(found, Installation)
        assert found.release == f"jax-cuda12-pjrt {JAXLIB}"
        assert found.library.parent.parent.parent == nowhere / "site-packages"
        assert found.toolkit == nowhere / "site-packages/nvidia/cuda_nvcc"

    def test_its_own_folder_first(self, nowhere: Path, python: SimpleNamespace) -> None:
        put(nowhere / "site-packages")
        put(own_folder())
        python.path.append(str(nowhere / "site-packages"))
        found = found_gpu_compiler()
        assert isinstance(found, Installation)
        assert found.library.is_relative_to(own_folder())

    def test_a_named_folder_alone_or_nowhere(self, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(own_folder())
        monkeypatch.setenv(VARIABLE, str(nowhere / "elsewhere"))
        assert isinstance(found_gpu_compiler(), str)
        monkeypatch.setenv(VARIABLE, "none")
        assert isinstance(found_gpu_compiler(), str)

    def test_a_newer_one_than_jaxlib_is_used_up_to_what_was_tried(self, nowhere: Path, python: SimpleNamespace) -> None:
        put(nowhere / "site-packages", "0.12.9")
        python.path.append(str(nowhere / "site-packages"))
        assert isinstance(found_gpu_compiler(), Installation)
        put(nowhere / "beyond", "0.13.0")
        python.path[:] = [str(nowhere / "beyond")]
        assert found_gpu_compiler() == f"jax-cuda12-pjrt 0.13.0 does not go with jaxlib {JAXLIB}"

    def test_one_older_than_jaxlib_is_not_used(self, nowhere: Path, python: SimpleNamespace) -> None:
        put(nowhere / "site-packages", "0.4.1")
        python.path.append(str(nowhere / "site-packages"))
        assert found_gpu_compiler() == f"jax-cuda12-pjrt 0.4.1 does not go with jaxlib {JAXLIB}"


class TestInstalling:
    @pytest.fixture
    def pip(self, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """What pip is called with; it lays out what it is asked for."""
        calls: list[list[str]] = []

        def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
            calls.append(list(command))
            put(Path(command[command.index("--target") + 1]))
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr("meshcast.base.packages.subprocess.run", run)
        return calls

    @pytest.mark.parametrize(("jaxlib", "wanted"), [("0.10.2", MEASURED), ("0.12.0.1", "0.12.0.1")])
    def test_the_measured_release_or_jaxlibs_own_where_that_is_newer(
        self, monkeypatch: pytest.MonkeyPatch, jaxlib: str, wanted: str
    ) -> None:
        monkeypatch.setattr("meshcast.lower.compiled.xla_gpu.installation._jaxlib_version", lambda: jaxlib)
        assert wanted_release() == wanted

    def test_doctor_brings_it(self, pip: list[list[str]]) -> None:
        doctor._install("gpu-compiler")
        assert pip[0][-2:] == [f"{PLUGIN}=={wanted_release()}", TOOLKIT]
        assert "--no-deps" in pip[0]
        assert isinstance(found_gpu_compiler(), Installation)
        assert [each.name for each in own_folder().parent.iterdir()] == [
            own_folder().name
        ]  # nothing half-made beside it

    def test_no_index_is_told_and_leaves_what_was_there(self, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(own_folder())
        answer = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for jax-cuda12-pjrt\n")
        monkeypatch.setattr("meshcast.base.packages.subprocess.run", lambda *_, **__: answer)
        with pytest.raises(UnsupportedError, match="gpu-compiler cannot be installed: ERROR: No matching distribution"):
            install_gpu_compiler()
        assert isinstance(found_gpu_compiler(), Installation)

    def test_other_platforms_are_told(self, nowhere: Path, python: SimpleNamespace) -> None:
        python.platform = "darwin"
        with pytest.raises(UnsupportedError, match="packages for Linux alone, not for darwin"):
            install_gpu_compiler()

    def test_a_wrong_name_is_told(self) -> None:
        with pytest.raises(UsageError, match="nothing to install is named 'gpu-compilr'") as caught:
            doctor._install("gpu-compilr")
        assert "gpu-compiler" in str(caught.value.fix)

    def test_the_extra_brings_the_same_packages(self) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        named = {re.split(r"[=<>;]", requirement)[0].strip() for requirement in extras["gpu-compiler"]}
        assert named == {PLUGIN, TOOLKIT.split(">")[0]}


def test_doctor_says_where_it_is_or_how_to_have_it(nowhere: Path) -> None:
    missing = doctor._gpu_compiler()
    assert (missing.state, missing.fix) == ("missing", "meshcast doctor --install gpu-compiler")
    put(own_folder())
    there = doctor._gpu_compiler()
    assert there.state == "ok"
    assert str(own_folder()) in there.detail
