"""`meshcast plan`: the best plans in one command, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Meshcast

ASKED = (
    "plan", "gpt2-tiny", "--on", "dgx-h100", "--devices", "4", "--set", "batch=8", "--set", "seq=64",
    "--fidelity", "analytical", "--engine", "in-process", "--try", "remat=full", "--try", "mbs=1", "--plan", "pp=1",
)  # fmt: skip


def test_the_best_plans_in_json(meshcast: Meshcast) -> None:
    answer = meshcast(*ASKED, "--json", "--tokens", "1B", "--price", "2")
    assert answer.code == 0, answer.err
    (found,) = answer.lines
    assert found["schema"] == "meshcast.exploration/1"
    assert found["space"] >= found["evaluated"] > 0
    steps = [each["step_time_s"] for each in found["best"]]
    assert steps == sorted(steps)
    first = found["best"][0]
    assert first["plan"]
    grid = found["accounts"]["grid"]
    assert first["carbon_kg"] == pytest.approx(first["energy_kwh"] * grid["kg_per_kwh"])
    assert grid["said"]
    # tokens / rate; dollars of four devices at two an hour.
    assert first["days"] == pytest.approx(1e9 / first["units_per_s"] / 86400)
    assert first["cost_usd"] == pytest.approx(first["days"] * 24 * 4 * 2)
    assert first["units_per_s"] == pytest.approx(8 * 64 / first["step_time_s"])


def test_trying_all_plans_finds_what_bounds_find(meshcast: Meshcast) -> None:
    pruned, tried = (meshcast(*ASKED, *more, "--top", "1", "--json").lines[0] for more in ((), ("--exhaustive",)))
    assert tried["evaluated"] == tried["space"] == pruned["space"] > pruned["evaluated"]
    same = ("plan", "step_time_s", "memory_bytes")
    assert [tried["best"][0][name] for name in same] == [pruned["best"][0][name] for name in same]


def test_plans_without_an_answer_are_not_told_as_too_large(meshcast: Meshcast) -> None:
    asked = ("plan", "resnet-tiny", "--on", "dgx-h100", "--devices", "2", "--set", "batch=8", "--engine", "in-process")
    told = meshcast(*asked, "--fidelity", "roofline", "--plan", "mbs=4").out
    assert "dp=2,mbs=4" in told
    assert "1 failed" in told  # fsdp=2: its mesh has no such axis
    assert "does not fit" not in told


def test_settings_may_stand_behind_one_flag(meshcast: Meshcast) -> None:
    asked = ("plan", "gpt2-tiny", "--on", "h100-sxm", "--devices", "1", "--set", "batch=4", "seq=64")
    more = ("--fidelity", "roofline", "--engine", "in-process", "--try", "remat=full", "--plan", "mbs=4", "--json")
    first = meshcast(*asked, *more).lines[0]["best"][0]
    assert (first["set.batch"], first["set.seq"]) == ("4", "64")


def test_the_first_plan_is_what_predict_says_of_it(meshcast: Meshcast) -> None:
    first = meshcast(*ASKED, "--json").lines[0]["best"][0]
    told = meshcast(
        "predict", "gpt2-tiny", "--on", "dgx-h100", "--plan", first["plan"], "--set", "batch=8", "--set", "seq=64",
        "--fidelity", "analytical", "--levers", "none", "--json",
    ).lines[0]  # fmt: skip
    assert told["step_time_s"] == first["step_time_s"]
    assert told["memory_bytes"]["peak"] == first["memory_bytes"]
    assert told["mfu"] == first["mfu"]


def test_the_table_says_why_and_what_was_looked_at(meshcast: Meshcast) -> None:
    answer = meshcast(*ASKED, "--price", "list", "--top", "2")
    assert answer.code == 0
    assert "why the first plan wins" in answer.out
    assert "against the second" in answer.out
    assert "predicted" in answer.out
    assert "price of h100-sxm: $10 an hour" in answer.out


def test_the_fewest_devices_for_a_step_time(meshcast: Meshcast) -> None:
    alone = meshcast(*ASKED, "--json", "--top", "1").lines[0]["best"][0]["step_time_s"]
    asked = [word if word != "4" else "1,2,4" for word in ASKED]
    found = meshcast(*asked, "--within", f"{alone * 1.01:.9f} s", "--json").lines[0]["best"][0]
    assert found["devices"] <= 4
    assert found["step_time_s"] <= alone * 1.01
    nothing = meshcast(*asked, "--within", "1 ns", "--json")
    assert nothing.code == 3
    assert nothing.lines[0]["best"] == []


def test_the_largest_microbatch_that_fits(meshcast: Meshcast) -> None:
    found = meshcast(*ASKED, "--largest", "mbs", "--json").lines[0]["best"][0]
    assert "mbs=8" in found["plan"], "a batch of 8 on one shard, or 2 on four"


def test_the_largest_microbatch_keeps_to_a_step_time_where_one_is_given(meshcast: Meshcast) -> None:
    nothing = meshcast(*ASKED, "--largest", "mbs", "--within", "1 ns", "--json")
    assert nothing.code == 3, "no microbatch has so short a step"
    answer = meshcast(*ASKED, "--largest", "mbs", "--within", "1 s")
    assert "largest mbs that fits and keeps to a step of 1 s: 8" in answer.out


def test_numbers_of_devices_count_once(meshcast: Meshcast) -> None:
    once, twice = ([word if word != "4" else devices for word in ASKED] for devices in ("2", "2,2"))
    found = [meshcast(*asked, "--json").lines[0]["space"] for asked in (once, twice)]
    assert found[0] == found[1] > 0


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--try", "tensor=2"), 2, "tensor"),
        (("--try", "mbss=2"), 2, '"where": "--try"'),
        (("--within", "2"), 2, "--within '2 s'"),
        (("--try", "tp"), 2, "KEY=VALUE"),
        (("--for", "speed"), 2, "no objective 'speed'"),
        (("--for", "cost"), 2, "price"),
        (("--price", "cheap"), 2, "no price"),
        (("--tokens", "many"), 2, "no number of tokens"),
        (("--largest", "width"), 2, "width"),
        (("--set", "batch=7"), 2, "batch"),
        (("--try", "pp=1,2"), 2, "--plan decides pp, and --try has values"),
        (("--price", "list,h10-sxm=3"), 2, "did you mean 'h100-sxm'?"),
        (("--address", "auto"), 2, "--engine ray"),
    ],
)
def test_what_is_refused_says_why(meshcast: Meshcast, more: tuple[str, ...], code: int, said: str) -> None:
    answer = meshcast(*ASKED, *more, "--json")
    assert answer.code == code, answer.err
    error = answer.lines[-1]["error"]
    assert said in json.dumps(error)


def test_a_batch_that_no_plan_divides_has_no_plan(meshcast: Meshcast) -> None:
    asked = [word if word != "batch=8" else "batch=1" for word in ASKED]
    answer = meshcast(*asked, "--json", "--try", "dp=4")
    assert answer.code == 3
    assert answer.lines[-1]["error"]["code"] == "infeasible"
    assert "leave open what --plan pp=1 decides" in answer.lines[-1]["error"]["fix"]


def test_a_program_has_no_plans(meshcast: Meshcast) -> None:
    answer = meshcast("plan", "step.mlir", "--on", "dgx-h100", "--devices", "4", "--json")
    assert answer.code == 2
    assert "step.mlir" in answer.lines[-1]["error"]["message"]


def test_without_a_device_it_is_the_default(meshcast: Meshcast) -> None:
    plan = ("--plan", "tp=1,pp=1,cp=1,mbs=1,remat=none", "--fidelity", "roofline")
    found = meshcast(
        "plan", "llama3-tiny", "--devices", "2", "--set", "batch=4", *plan, "--engine", "in-process", "--json"
    )
    assert found.code == 0
    assert found.lines[-1]["best"][0]["on"] == "h100-sxm"


def test_what_is_decided_is_not_searched_for(meshcast: Meshcast) -> None:
    asked = ("plan", "gpt2-tiny", "--on", "dgx-h100", "--devices", "4", "--set", "batch=8", "--plan", "mbs=2", "--json")
    answer = meshcast(*asked, "--largest", "mbs")
    assert answer.code == 2
    assert "--plan decides mbs, and the largest is searched for" in answer.lines[-1]["error"]["message"]
