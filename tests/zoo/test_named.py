"""What a target names: one order for predictions, plans and the list of models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.jobs.planned.target import model_of
from meshcast.programs import load
from meshcast.zoo import model_named

CONFIG = Path(__file__).parents[1] / "fixtures" / "huggingface" / "gpt2.json"


def test_a_folder_that_is_no_model_hides_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2-tiny").mkdir()
    assert load("gpt2-tiny").name == model_of("gpt2-tiny").name == "gpt2-tiny"
    Path("other").mkdir()
    assert model_named("other") is None
    with pytest.raises(InputError, match=r"has no config\.json"):
        load("other")


def test_a_configuration_goes_before_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2-tiny").mkdir()
    shutil.copy(CONFIG, "gpt2-tiny/config.json")
    found = model_named("gpt2-tiny")
    assert found is not None
    assert found == model_of("gpt2-tiny")
    assert found.config.layers == 12


def test_files_and_objects_are_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2-tiny").write_text("module {}")
    assert model_named("gpt2-tiny") is None
    assert model_named(object()) is None
    assert model_named(CONFIG) is not None
