"""`meshcast models`, and a Hugging Face configuration on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshcast.zoo import models
from tests.cli.conftest import Meshcast

FIXTURES = Path(__file__).parents[1] / "fixtures" / "huggingface"


def test_models_are_listed_with_their_parameters(meshcast: Meshcast) -> None:
    listed = meshcast("models", "--json").lines[0]["models"]
    found = {each["name"]: each for each in listed}
    assert found["llama3-8b"]["parameters"] == found["llama3-8b-decode"]["parameters"] == 8_030_261_248
    assert (found["llama3-8b-decode"]["model"], found["llama3-8b-decode"]["mode"]) == ("llama3-8b", "decode")
    table = meshcast("models").out
    assert "671,026,419,200" in table


@pytest.mark.parametrize("width", ["40", "60", "100"])
def test_names_stay_whole_in_a_narrow_terminal(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = meshcast("models").out.splitlines()
    assert max(map(len, lines)) <= int(width)
    first = {line.split(" ")[0] for line in lines}
    assert set(models()) <= first


def test_a_models_settings(meshcast: Meshcast) -> None:
    answer = meshcast("models", "llama3-8b-decode", "--json").lines[0]
    assert answer["settings"]["context"] == 2048
    assert answer["settings"]["kv_heads"] == 8
    assert "seq" not in answer["settings"]
    text = meshcast("models", "resnet50").out
    assert "3,4,6,3" in text
    assert "modes: train, forward" in text
    answer = meshcast("models", str(FIXTURES / "gpt2.json"), "--json").lines[0]
    assert (answer["name"], answer["parameters"]) == ("gpt2", 124_439_808)


def test_an_unknown_model(meshcast: Meshcast) -> None:
    answer = meshcast("models", "lama3-8b")
    assert answer.code == 2
    assert "did you mean 'llama3-8b'" in answer.err


@pytest.mark.parametrize("mode", ["train", "forward", "prefill", "decode"])
def test_a_configuration_is_predicted_as_the_zoos_model(meshcast: Meshcast, mode: str) -> None:
    length = "context=64" if mode == "decode" else "seq=64"
    settings = ["--set", "batch=2", "--set", length, "--set", "layers=2"]
    common = ["--on", "h200", "--fidelity", "roofline", "--levers", "none", "--json"]
    config = meshcast("predict", str(FIXTURES / "gpt2.json"), "--set", f"mode={mode}", *settings, *common)
    name = "gpt2-small" if mode == "train" else f"gpt2-small-{mode}"
    zoo = meshcast("predict", name, *settings, *common)
    assert (config.code, zoo.code) == (0, 0), config.err
    for key in ("step_time_s", "flops", "memory_bytes"):
        assert config.lines[0][key] == zoo.lines[0][key]


def test_lists_of_sizes(meshcast: Meshcast) -> None:
    settings = ["--set", "blocks=1,1,1,1", "--set", "batch=1", "--fidelity", "roofline", "--levers", "none", "--json"]
    small = meshcast("predict", "resnet50-forward", *settings)
    whole = meshcast("predict", "resnet50-forward", *settings[2:])
    assert small.lines[0]["flops"] < whole.lines[0]["flops"]


def test_weights_in_fewer_bits_are_warned_of(meshcast: Meshcast) -> None:
    """Beside the same model without: the two are one program, and only one has the warning."""
    common = ["--on", "h200", "--fidelity", "roofline", "--levers", "none", "--json"]
    common += ["--set", "mode=decode", "--set", "layers=1"]
    plain = json.loads((FIXTURES / "gpt2.json").read_text())
    Path("plain.json").write_text(json.dumps(plain))
    Path("awq.json").write_text(json.dumps(plain | {"quantization_config": {"quant_method": "awq", "bits": 4}}))
    told = [
        meshcast("predict", name, *common).lines[0]["warnings"] for name in ("plain.json", "awq.json", "plain.json")
    ]
    assert [len([each for each in warnings if "(awq, 4 bits)" in each]) for warnings in told] == [0, 1, 0]
    assert "(awq, 4 bits)" in meshcast("models", "awq.json").out.replace("\n", " ")


def test_names_that_are_no_models(meshcast: Meshcast) -> None:
    Path("empty").mkdir()
    folder = meshcast("models", "empty")
    assert folder.code == 2
    assert "has no config.json" in folder.err
    for command in (["models", "bert-base-decode"], ["predict", "bert-base-decode", "--on", "h200"]):
        assert "its modes are train, forward" in meshcast(*command).err


def test_a_configuration_that_is_not_understood(meshcast: Meshcast) -> None:
    Path("config.json").write_text('{"model_type": "whisper"}')
    answer = meshcast("predict", "config.json", "--on", "h200")
    assert answer.code == 4
    assert "'whisper'" in answer.err
    assert "qwen3_moe" in answer.err
    Path("config.json").write_text('{"model_type": "llama"}')
    answer = meshcast("predict", ".", "--on", "h200", "--json")
    assert answer.code == 2
    assert "needs the key" in answer.lines[0]["error"]["message"]


def test_recommenders_go_by_other_spellings_and_say_their_own_settings(meshcast: Meshcast) -> None:
    assert meshcast("models", "DCNv2-Criteo", "--json").lines[0]["name"] == "dcnv2-criteo"
    told = meshcast("models", "dlrm-hstu", "--json").lines[0]["settings"]
    assert (told["batch"], told["precision"], told["wire"]) == ("256", "bfloat16", "bf16")
