"""A prediction says everything that shaped it, and which of it nobody asked for."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import meshcast
from meshcast import predict
from meshcast.cli.app import app
from meshcast.hardware import load_device, parse_conditions
from meshcast.jobs.described import Asked, inputs_of
from meshcast.jobs.described.inputs import RESOLVED, told_options
from meshcast.options.brought import Brought
from meshcast.options.options import Options, option_places
from meshcast.simulate.host import HostCosts
from meshcast.zoo import zoo
from meshcast.zoo.plan import Plan
from tests.options.other_values import other_value
from tests.results.test_printer import ONE

H100 = load_device("h100-sxm")
TINY: dict[str, Any] = {"on": "dgx-h100", "levers": False, "fidelity": "roofline"}
# Values that are no defaults, and where the description must have them: options that are told as what came of them, by another
# name or in other words. All others are told as they are.
SAMPLES: dict[str, tuple[Any, str, Any]] = {
    name: (value, label, list(value) if isinstance(value, tuple) else value)
    for name, label in told_options().items()
    for value in (other_value(name),)
} | {
    "devices": (4, "devices", 1),  # what came of it: the prediction's
    "mesh": ({"data": 4}, "mesh", {}),  # likewise
    "profile": (Path("h200.npz"), "profile", "h200.npz"),
    "conditions": (parse_conditions(slow=["3=0.5"], links=["nvlink:2x1=0"]), "link", {"nvlink:2x1": 0.0}),
    "host_costs": (HostCosts(graphs=False), "host_costs", None),
    "brought": (Brought(stack="megatron", fields=()), "stack", "megatron"),
}


def test_every_field_of_options_is_described() -> None:
    untold = {name for name, place in option_places().items() if place.field.declaration.untold}
    assert set(told_options()) == option_places().keys() - untold
    assert untold >= set(RESOLVED)
    assert set(SAMPLES) >= set(told_options())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_field_is_told_and_is_no_default_where_it_is_set(name: str) -> None:
    value, label, told = SAMPLES[name]
    unset = inputs_of(Options(), None, ONE, H100)
    found = inputs_of(Options(**{name: value}), None, ONE, H100)
    assert label in unset.defaults
    assert label not in found.defaults
    assert found.to_json()[label] == told or name == "host_costs"
    json.dumps(found.to_json())


def test_what_is_written_is_no_default_whatever_its_value() -> None:
    written = Options().changed({"clocks": "sustained"}, where="test")
    assert "clocks" in inputs_of(Options(), None, ONE, H100).defaults
    assert "clocks" not in inputs_of(written, None, ONE, H100).defaults


def test_every_key_of_a_plan_is_described() -> None:
    text = "dp=2,tp=2,sp=1,remat=full,attention=flash"
    asked = Asked(
        builder=zoo()["llama3-tiny"], mode="train", plan=Plan.parse(text), settings={"batch": "8", "layers": "1"},
        said=Plan.names_in(text) | {"batch", "layers"},
    )  # fmt: skip
    found = inputs_of(Options(plan=text), asked, ONE, H100)
    values = found.to_json()
    assert {each.name for each in fields(Plan)} - {"stack"} <= values.keys()
    assert (values["plan"], values["remat"], values["sp"], values["microbatches"]) == (text, "full", True, 4)
    assert {"batch", "layers", "dp", "tp", "sp", "remat", "attention", "plan"}.isdisjoint(found.defaults)
    assert {"seq", "mbs", "zero", "precision", "schedule", "microbatches", "fsdp"} <= set(found.defaults)
    assert {"dp", "sp", "remat"} <= set(found.in_plan)
    assert "remat" not in dict(found.rows())["inputs"].replace(text, "")  # the plan's own text tells it
    assert "layers" in values
    assert values["model"]["dim"] == 64


def test_a_model_without_a_plan_says_its_settings_as_they_were_used() -> None:
    found = predict("gpt2-tiny", settings={"batch": "2"}, **TINY).inputs
    assert found is not None
    values = found.to_json()
    assert (values["batch"], values["seq"], values["mode"]) == (2, values["model"]["positions"], "train")
    assert "batch" not in found.defaults
    assert {"seq", "attention", "remat", "compute_dtype"} <= set(found.defaults)


def test_what_a_stack_brings_is_the_stacks() -> None:
    options = {"plan": "dp=2", "settings": {"batch": "2"}, **TINY}
    found = predict("llama3-tiny", stack="megatron", scheduler="serial", **options).inputs
    assert found is not None
    assert found.values["stack"] == "megatron"
    assert {"attention_library", "layer_arrays"} <= set(found.by_stack)
    assert {"scheduler", "stack", "plan"}.isdisjoint({*found.by_stack, *found.defaults})


def test_two_settings_of_one_name_are_told_apart() -> None:
    values = predict("dlrm-tiny", **TINY).to_json()["inputs"]
    assert (values["placement"], values["set.placement"]) == (None, "table")


def test_text_has_what_was_asked_for_and_the_defaults_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--on", "dgx-h100", "--plan", "fsdp=2", "--set", "batch=2", "--fidelity", "roofline"]
    app(["predict", "llama3-tiny", *flags, "--clocks", "sustained", "--levers", "none"], standalone_mode=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "inputs on=dgx-h100, batch=2, plan(fsdp=2), fidelity=roofline, clocks=sustained" in text
    assert "defaults mode=train, seq=2048" in text
    assert "tokens/s" in text


def test_infeasible_predictions_describe_themselves_too() -> None:
    found = predict("llama3-8b", settings={"batch": "64", "seq": "8192", "layers": "2"}, **TINY)
    assert not found.feasible
    assert found.inputs is not None
    assert found.throughput is None
    assert "batch=64" in str(found)


@pytest.mark.parametrize(
    ("target", "on", "attention", "library"),
    [
        ("llama3-tiny", "h100-sxm", "flash", "cudnn"),
        ("llama3-tiny", "h100-sxm", "plain", None),
        ("llama3-tiny", "tpu-v5p", None, None),
        ("llama3-tiny", "mi300x", None, None),
        ("llama3-tiny", "cpu-generic", None, None),
        ("resnet-tiny", "h100-sxm", None, None),
    ],
)
def test_a_library_of_attention_is_told_where_one_runs(
    target: str, on: str, attention: str | None, library: str | None
) -> None:
    settings = {"attention": attention} if attention is not None else {}
    found = predict(target, on=on, settings=settings, levers=False, fidelity="roofline").inputs
    assert found is not None
    assert found.values["attention_library"] == library
    assert {found.values[name] for name in ("fusion", "layer_arrays")} == (
        {None} if on.startswith("tpu") else {"compiler", "scanned"}
    )


def test_what_a_stack_brings_in_vain_is_not_told_as_its_part() -> None:
    options: dict[str, Any] = {"on": "h100-sxm", "levers": False, "fidelity": "roofline", "stack": "megatron"}
    plain, fused = (
        predict("llama3-tiny", settings={"attention": each}, **options).inputs for each in ("plain", "flash")
    )
    assert plain is not None
    assert fused is not None
    assert "attention_library" in fused.by_stack
    assert "attention_library" not in plain.by_stack
    assert plain.values["attention_library"] is None


def test_a_capture_tells_what_it_knows() -> None:
    found = inputs_of(Options(), None, replace(ONE, facts=(("mode", "train"), ("autocast", "bfloat16"))), H100)
    assert found.rows()[0] == ("inputs", "mode=train, autocast=bfloat16")
    assert found.values["attention_library"] is None  # it does not attend


def test_equal_programs_tell_their_own_captures() -> None:
    """A program that is lowered already is kept by its content, which says nothing of how it was made."""
    program = meshcast.load("tests/fixtures/sharded.mlir")
    for mode in ("train", "forward"):
        found = predict(replace(program, facts=(("mode", mode),)), **TINY).inputs
        assert found is not None
        assert found.values["mode"] == mode
