"""What a target names: one order for predictions, plans and the list of models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.jobs.planned.target import model_of
from meshcast.programs import load
from meshcast.zoo import hint, model_named, zoo
from meshcast.zoo.other_names import SAME_SHAPE, spelling

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


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Llama-3-70B", "llama3-70b"),
        ("llama3.1-8b", "llama3-8b"),
        ("llama3.1-8b-decode", "llama3-8b-decode"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("resnet-50", "resnet50"),
        ("gpt2", "gpt2-small"),
        ("gpt3-13b", "gpt3-13b"),
        ("DiT-XL/2", "dit-xl2"),
        ("ViT-B/16", "vit-b16"),
        ("black-forest-labs/FLUX.1-schnell", "flux.1-schnell"),
        ("llama31_405b", "llama3-405b"),
        ("qwen25-1.5b", "qwen2.5-1.5b"),
    ],
)
def test_models_go_by_other_names(written: str, name: str) -> None:
    found = model_named(written)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "written",
    ["folder/llama3-8b", "qwen2.5-15b", "megatron-75b", "llama3-9b", "bert", "gpt2-serve", "", "-", "meta-llama/"],
)
def test_other_names_are_no_guesses(written: str) -> None:
    assert model_named(written) is None


def test_no_two_programs_are_spelt_alike() -> None:
    spelt = [spelling(name) for name in (*zoo(), *SAME_SHAPE)]
    assert len(spelt) == len(set(spelt))
    assert set(SAME_SHAPE.values()) <= set(zoo())


def test_a_family_without_a_size_lists_its_sizes() -> None:
    assert hint("bert") == "name its size: bert-tiny, bert-base, bert-large"
