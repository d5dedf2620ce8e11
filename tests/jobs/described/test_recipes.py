"""What a stack's recipes choose and a plan leaves unsaid: one warning, in words that the plan takes."""

from __future__ import annotations

import pytest

from meshcast import predict
from meshcast.hardware import load_device
from meshcast.jobs.described import asked_of, unsaid_recipes
from meshcast.jobs.planned.stacked import with_stack
from meshcast.options.options import Options
from meshcast.zoo import zoo

SETTINGS = {"seq": "128"}


def _told(plan: str, stack: str = "megatron", model: str = "llama3-tiny", **settings: str) -> tuple[str, ...]:
    options = with_stack(Options(on="dgx-h100", plan=plan, settings={**SETTINGS, **settings}), stack)
    return unsaid_recipes(asked_of(zoo()[model], options, load_device("h100-sxm")), options.brought)


def _words(told: tuple[str, ...]) -> str:
    (line,) = told
    return line.partition(" also have ")[2].partition(", which")[0]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("tp=2,dp=2", "sp=1,zero=1,gradients=bf16"),
        ("dp=2", "zero=1,gradients=bf16"),  # no tensors are split
        ("tp=2", "sp=1,gradients=bf16"),  # no replicas
        ("dp=2,fsdp=2", "gradients=bf16"),  # what is stored in shares has its state in shares
        ("tp=2,dp=2,sp=0,zero=0", "gradients=bf16"),  # a default that is said is meant
        ("tp=2,dp=2,pp=2,microbatches=2", "sp=1,zero=1,gradients=bf16"),
    ],
)
def test_what_differs_and_can_be_said_is_named(plan: str, words: str) -> None:
    assert _words(_told(plan)) == words
    assert _told(f"{plan},{words}") == ()


def test_recomputation_is_in_the_plan_s_own_word() -> None:
    assert _words(_told("fsdp=2", "maxtext")) == "remat=full"


def test_nothing_is_said_where_recipes_have_the_plan_s_defaults_or_the_model_does_not_train() -> None:
    assert _told("tp=2,dp=2", "xla") == ()
    assert _told("tp=2", mode="prefill") == ()


def test_words_that_the_sizes_refuse_are_not_offered() -> None:
    """Sequence parallelism splits 129 positions over two devices in no way."""
    assert _words(_told("tp=2", seq="129")) == "gradients=bf16"


def test_following_the_warning_gives_the_recipe_s_figure_and_no_warning() -> None:
    options = Options(on="dgx-h100", settings=SETTINGS, levers=False)
    bare = predict("llama3-tiny", options, plan="tp=2,dp=2", stack="megatron")
    told = tuple(each for each in bare.warnings if "recipes also have" in each)
    followed = predict("llama3-tiny", options, plan=f"tp=2,dp=2,{_words(told)}", stack="megatron")
    recipe = predict("llama3-tiny", options, plan="dp=2,tp=2,sp=1,zero=1,gradients=bf16,stack=megatron")
    assert not any("recipes also have" in each for each in followed.warnings)
    assert followed.step_time_s == recipe.step_time_s != bare.step_time_s
    without = predict("llama3-tiny", options, plan="tp=2,dp=2")
    assert not any("recipes" in each for each in without.warnings)


def test_a_stack_in_the_plan_leaves_its_other_words_as_they_are() -> None:
    assert str(with_stack(Options(plan="dp=2, zero=0 ,stack=megatron")).program.plan) == "dp=2,zero=0"
    assert str(with_stack(Options(plan="stack=megatron")).program.plan) == "dp=1"
