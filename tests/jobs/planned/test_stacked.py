"""A plan that names its software: the same as the stack asked for by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from meshcast import predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.cli.app import app
from meshcast.jobs import one_program, resolve_job
from meshcast.jobs.planned import Plan, plan_target
from meshcast.jobs.planned.stacked import with_stack
from meshcast.options.options import Options
from meshcast.options.stacks import load_stack

SETTINGS = {"seq": "128"}


def test_a_plan_s_stack_is_that_of_its_name() -> None:
    megatron = load_stack("megatron")
    plain = Options(plan="dp=2,mbs=2")
    asked = with_stack(Options(plan="dp=2,mbs=2,stack=megatron"))
    assert asked == plain.with_stack(megatron)
    assert asked == with_stack(plain, "megatron") == with_stack(plain, megatron)
    assert with_stack(asked) == asked
    assert str(with_stack(Options(plan="dp=2,stack=megatron"), "megatron").program.plan) == "dp=2"


def test_what_is_chosen_stays() -> None:
    """What differs from the defaults, or what the caller says that it has chosen, be it the default."""
    options = Options(plan="dp=2,stack=pytorch-fsdp")
    stack = load_stack("pytorch-fsdp")
    assert with_stack(options.having(channels=7)).run.channels == 7
    assert with_stack(options).lowering.overlap.text == stack.overlap != Options().lowering.overlap.text
    assert with_stack(options, but=("overlap",)).lowering.overlap == Options().lowering.overlap


def test_two_stacks_or_none_of_that_name_are_refused() -> None:
    with pytest.raises(UsageError, match="the plan says stack=megatron, and nemo is asked for"):
        with_stack(Options(plan="dp=2,stack=megatron"), "nemo")
    with pytest.raises(UnsupportedError, match="no stack 'megatorn'"):
        with_stack(Options(plan="dp=2,stack=megatorn"))


def test_it_is_no_part_of_the_program() -> None:
    plan = Plan(dp=2)
    with_it = plan_target("llama3-tiny", replace(plan, stack="megatron"), settings=SETTINGS)
    assert with_it is plan_target("llama3-tiny", plan, settings=SETTINGS)
    job = resolve_job("llama3-tiny", Options(on="dgx-h100", plan="dp=2,stack=megatron", settings=SETTINGS))
    assert one_program(job).options.lowering.fusion == load_stack("megatron").fusion


def test_three_ways_to_ask_have_one_answer() -> None:
    options = Options(on="dgx-h100", settings=SETTINGS, levers=False)
    named = predict("llama3-tiny", options, plan="dp=2", stack="megatron")
    planned = predict("llama3-tiny", options, plan="dp=2,stack=megatron")
    words = [
        "predict",
        "llama3-tiny",
        "--on",
        "dgx-h100",
        "--plan",
        "stack=megatron,dp=2",
        "--set",
        "seq=128",
        "--levers",
        "none",
        "--json",
    ]
    told = json.loads(CliRunner().invoke(app, words).stdout)
    assert named.step_time_s == planned.step_time_s == told["step_time_s"]
    assert named.step_time_s != predict("llama3-tiny", options, plan="dp=2").step_time_s


def test_prompts_are_split_by_position_and_answers_are_not() -> None:
    options = Options(on="dgx-h100", settings={"mode": "serve", "prompt": "64", "output": "8"}, levers=False)
    split, whole = (predict("llama3-tiny", options, plan=plan).serving for plan in ("tp=2,sp=1", "tp=2"))
    assert split is not None
    assert whole is not None
    assert split.tpot_s == whole.tpot_s
    assert split.ttft_s != whole.ttft_s


def test_a_plan_stays_in_the_words_that_it_was_written_in() -> None:
    """A key that is written is no default, also where its value is one."""
    assert str(with_stack(Options(plan="dp=2, mbs=1"), "megatron").program.plan) == "dp=2,mbs=1"
    assert str(with_stack(Options(plan="mbs=1,stack=megatron,dp=2")).program.plan) == "mbs=1,dp=2"
    assert str(with_stack(Options(plan="stack=megatron")).program.plan) == str(Plan())
    options = Options(on="dgx-h100", settings=SETTINGS, levers=False, fidelity="roofline")
    found = predict("llama3-tiny", options, plan="dp=2,mbs=1", stack="megatron").inputs
    assert found is not None
    assert "mbs" not in found.defaults
