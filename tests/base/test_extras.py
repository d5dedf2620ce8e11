"""The line that adds an extra, from every place that meshcast may have been installed from."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from meshcast.base import extras, how_to_install

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", "/my env/python")

    def install(origin: dict[str, Any] | None) -> None:
        monkeypatch.setattr(extras, "_origin", lambda: origin)

    return install


def test_a_package_index_is_asked_for_the_extra(installed_from: Any) -> None:
    installed_from(None)
    assert how_to_install("tpu") == "'/my env/python' -m pip install 'meshcast[tpu]'"


def test_a_clone_is_named_as_the_current_folder_has_it(installed_from: Any, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed_from({"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert how_to_install("tpu").endswith(" -m pip install -e 'my clone[tpu]'")
    installed_from({"url": tmp_path.as_uri(), "dir_info": {}})
    assert how_to_install("tpu").endswith(" -m pip install '.[tpu]'")


def test_wheels_and_repositories_are_named_by_their_address(installed_from: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "meshcast-1-py3-none-any.whl"
    wheel.touch()
    installed_from({"url": wheel.as_uri(), "archive_info": {}})
    assert how_to_install("tpu").endswith(f" 'meshcast[tpu] @ {wheel.as_uri()}'")
    git = {"url": "https://example.org/meshcast", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    installed_from(git)
    assert how_to_install("tpu").endswith(" 'meshcast[tpu] @ git+https://example.org/meshcast@abc'")


def test_where_the_place_is_gone_the_requirements_themselves_are_named(
    installed_from: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    declared = ["numpy>=2", 'libtpu>=1; sys_platform == "linux" and extra == "tpu"', 'x>=2; extra == "other"']
    monkeypatch.setattr(metadata, "requires", lambda _: declared)
    installed_from({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}})
    assert how_to_install("tpu").endswith(""" -m pip install 'libtpu>=1; sys_platform == "linux"'""")
    assert extras.requirements_of(None) == ["numpy>=2"]


def test_without_pip_uv_installs(installed_from: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert how_to_install("tpu") == "uv pip install --python '/my env/python' 'meshcast[tpu]'"


def test_what_pip_has_noted_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noted:
        def read_text(self, _: str) -> str:
            return json.dumps({"url": "file:///nowhere", "dir_info": {}})

    monkeypatch.setattr(metadata, "distribution", lambda _: Noted())
    assert extras._origin() == {"url": "file:///nowhere", "dir_info": {}}


def test_every_extra_that_the_code_or_a_page_names_is_declared() -> None:
    """Extras are named once, in `pyproject.toml`; all else refers to them."""
    named: dict[str, set[str]] = {}
    for path in [*ROOT.glob("src/meshcast/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8")
        found = re.findall(
            r"""(?:how_to_install\(["']|^EXTRA = "|meshcast\[(?!NAME)|'\.\[)([\w-]+)""", text, re.MULTILINE
        )
        if found:
            named[path.name] = set(found)
    assert len(named) > 8
    assert {name: each - set(DECLARED) for name, each in named.items() if each - set(DECLARED)} == {}
