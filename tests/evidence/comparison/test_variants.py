"""Plans, batches and stacks side by side: what is tried, what each gets done, and for how much."""

from __future__ import annotations

import json

import pytest

import meshcast
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.evidence.comparison.gains import gains_of
from meshcast.evidence.comparison.gains_table import gains_sections
from meshcast.evidence.comparison.variants import variants_of
from meshcast.hardware import Price
from meshcast.options.options import Options
from tests.cli.conftest import Meshcast
from tests.cli.conftest import meshcast as command

__all__ = ["command"]
PLANS = "plan=fsdp=2,mbs=1,remat=full;tp=2,mbs=1,remat=full"


def test_every_combination_is_tried_in_order() -> None:
    found = variants_of(["plan=fsdp=2; tp=2,sp=1", "batch=4", "batch=8"])
    assert [dict(each.values) for each in found] == [
        {"plan": "fsdp=2", "batch": "4"}, {"plan": "fsdp=2", "batch": "8"},
        {"plan": "tp=2,sp=1", "batch": "4"}, {"plan": "tp=2,sp=1", "batch": "8"},
    ]  # fmt: skip
    assert found[0].named("m") == "m, plan fsdp=2, batch 4"
    assert [each.named("m") for each in variants_of([])] == ["m"]


def test_options_settings_and_stacks_are_told_apart() -> None:
    (variant,) = variants_of(["plan=fsdp=2", "devices=2", "batch=4", "stack=megatron"])
    found = variant.options(Options(settings={"seq": "64", "batch": "1"}))
    assert (str(found.program.plan), found.devices) == ("fsdp=2", 2)
    assert dict(found.program.settings) == {"seq": "64", "batch": "4"}
    assert found.brought is not None
    assert found.brought.stack == "megatron"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["batch"], "is not NAME=VALUE"),
        (["batch=;"], "is not NAME=VALUE"),
        (["on=h200"], "on is not tried here"),
        (["batch=4;4"], "batch=4 is tried twice"),
        (["batch=4", "batch=4"], "batch=4 is tried twice"),
    ],
)
def test_what_cannot_be_tried_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        variants_of(texts)


def test_mistakes_are_found_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="a plan has no 'fsd'"):
        meshcast.compare("gpt2-tiny", on="dgx-h100", fidelities="roofline", tried=["plan=fsd=2"])
    with pytest.raises(UnsupportedError, match="no stack 'megatorn'"):
        meshcast.compare("gpt2-tiny", on="dgx-h100", fidelities="roofline", tried=["stack=megatorn"])
    with pytest.raises(UsageError, match="no setting 'bacth' in mode train, did you mean 'batch'") as told:
        meshcast.compare("gpt2-tiny", on="dgx-h100", fidelities="roofline", tried=["bacth=64;32"])
    assert told.value.where == "--try"
    with pytest.raises(UsageError, match="batch"):
        meshcast.compare("gpt2-tiny", on="dgx-h100", fidelities="roofline", tried=["batch=4;many"])


def test_every_answer_is_predict_s_own_with_what_it_gets_done() -> None:
    found = meshcast.compare(
        "gpt2-tiny", on="dgx-h100", fidelities="roofline", tried=[PLANS, "batch=4;8"], price=3.6, settings={"seq": "64"}
    )
    assert len(found.cells) == 4
    for cell in found.cells:
        tried = found.tried[cell.ask.target]
        settings = {"seq": "64", "batch": tried["batch"]}
        alone = meshcast.predict(
            "gpt2-tiny", on="dgx-h100", fidelity="roofline", plan=tried["plan"], settings=settings, levers=False
        )
        assert cell.step_time_s == alone.step_time_s
        assert cell.prediction is not None
        assert cell.step_time_s is not None
        rate = cell.prediction["throughput"]["per_s"]
        assert rate == pytest.approx(int(tried["batch"]) * 64 / cell.step_time_s)
        gains = found.gains(cell)
        # 3.6 dollars an hour are a dollar for 1000 seconds of a device, and there are two.
        assert gains.usd_per_million == pytest.approx(2e-3 / rate * 1e6)
        assert gains.joules_per_unit == pytest.approx(alone.energy_j * 2 / (int(tried["batch"]) * 64))  # type: ignore[operator]
    text = str(found)
    assert "Throughput and cost" in text
    assert "tp=2,mbs=1,remat=full" in text
    (table,) = gains_sections(found)
    first = dict(zip([each.title for each in table.columns], table.rows[0], strict=True))
    gains = found.gains(found.cells[0])
    assert first["J/token"] == f"{gains.joules_per_unit:.3g}"
    assert first["$/million tokens"] == f"{gains.usd_per_million:.3g}"
    row = found.table()[0]
    assert (row["try.batch"], row["usd_per_million_units"]) == (
        "4",
        pytest.approx(found.gains(found.cells[0]).usd_per_million),
    )


def test_without_an_answer_or_a_price_there_are_no_figures() -> None:
    found = meshcast.compare(
        "gpt2-tiny", on="tpu-v5e", fidelities="roofline", tried=["batch=4"], settings={"seq": "64"}
    )
    (cell,) = found.cells
    assert found.gains(cell).usd_per_million is None  # nobody lists a price of TPUs
    assert gains_of(cell, Price(usd_per_hour=1.0, said="as given")).usd_per_million is not None
    assert "no list price of tpu-v5e" in str(found)


def test_the_command_takes_all_of_it(command: Meshcast) -> None:
    answer = command(
        "compare", "gpt2-tiny", "--on", "dgx-h100", "--try", PLANS, "--set", "seq=64", "--set", "batch=4", "--fidelity",
        "roofline", "--price", "2", "--no-folder", "--json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    *cells, summary = answer.lines
    assert [cell["tried"] for cell in cells] == [{"plan": plan} for plan in PLANS.removeprefix("plan=").split(";")]
    assert all(cell["usd_per_million_units"] > 0 and 0 < cell["memory_share"] < 1 for cell in cells)
    assert summary["prices"]["dgx-h100"]["usd_per_device_hour"] == 2
    assert json.loads(json.dumps(summary)) == summary
