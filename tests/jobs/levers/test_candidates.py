"""What is tried: changes as the user would write them, of words and types that the model and the device have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.base.errors import UsageError
from meshcast.hardware import parse_conditions, resolve
from meshcast.hardware.conditions import HEALTHY
from meshcast.jobs.described import Asked
from meshcast.jobs.levers import Question
from meshcast.jobs.levers.hardware import of_hardware
from meshcast.jobs.levers.models import of_model, recomputing_less
from meshcast.jobs.levers.plans import of_plan
from meshcast.jobs.planned import Plan
from meshcast.options.options import Options
from meshcast.simulate import Breakdown
from meshcast.zoo import zoo
from tests.results.test_printer import ONE, TIMED


def question(model: str = "llama3-tiny", remat: str = "full", plan: str | None = None, **options: object) -> Question:
    """A model that recomputes half of its arithmetic, on a DGX H100."""
    chosen = Options(on="dgx-h100", plan=plan, settings={"remat": remat} if plan is None else {}).changed(
        options, where="test"
    )
    builder = zoo()[model]
    asked = Asked(
        builder=builder,
        mode="train",
        plan=Plan.parse(plan) if plan is not None else None,
        settings=chosen.program.settings,
        said=frozenset(),
    )
    timed = replace(
        TIMED, breakdown=Breakdown(compute=1.0), step_time_s=1.0, mfu=0.2, hfu=0.4, matrix_types=("f16", "bf16")
    )
    found = replace(ONE, timed=timed)
    return Question(options=chosen, asked=asked, prediction=found, cluster=resolve("dgx-h100"))


def words(asked: Question) -> list[str]:
    found = [*of_model(asked), *of_plan(asked)]
    return [each.change.partition(" ")[0].removeprefix("remat=") for each in found if each.change.startswith("remat=")]


@pytest.mark.parametrize(
    ("model", "less"), [("llama3-tiny", ["none", "attention", "selective"]), ("bert-tiny", ["autodiff", "selective"])]
)
def test_plans_and_settings_have_the_same_words_for_recomputing_less(model: str, less: list[str]) -> None:
    assert words(question(model)) == words(question(model, plan="dp=1,remat=full")) == less


@pytest.mark.parametrize("now", ["none", "autodiff"])
def test_nothing_recomputes_less_than_nothing(now: str) -> None:
    asked = question()
    assert recomputing_less(asked, now) == []
    assert (
        recomputing_less(replace(asked, prediction=replace(ONE, timed=replace(TIMED, mfu=0.2, hfu=0.2))), "full") == []
    )


def test_without_its_flag_a_state_is_not_asked_for() -> None:
    slow = parse_conditions(slow=["3=0.5"], links=[], background=[])
    asked = question(conditions=slow)
    assert "conditions" in asked.options.asked
    (healthy,) = (each for each in of_hardware(asked) if each.flag == "without --slow")
    assert healthy.options.network.conditions == HEALTHY
    assert "conditions" not in healthy.options.asked


def test_the_doubled_rate_is_that_of_the_types_that_run() -> None:
    found = [each for each in of_hardware(question()) if "arithmetic" in each.change]
    rate = resolve("dgx-h100").device.matrix_flops["bf16"]
    doubled = f"{2e-12 * rate:.10g}TFLOP/s"
    assert [(each.change, each.flag) for each in found] == [
        ("twice the f16 arithmetic rate", f"--on dgx-h100+matrix.f16={doubled}+matrix.bf16={doubled}")
    ]


def test_a_change_is_checked_as_an_option_is() -> None:
    with pytest.raises(UsageError, match="no setting 'chanels'"):
        question().changed(chanels=1)
    with pytest.raises(UsageError, match="no setting 'written'"):
        question().changed(written=())
