"""Tables of a search over settings, money and plans at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.explore import Accounts, Exploration, Found, Outcome, Point, Tally, objective_named
from meshcast.explore.measures import Known
from meshcast.explore.tables import exploration_sections
from meshcast.hardware import Price
from meshcast.results.sections import sections_text

PLANS = ("fsdp=16,mbs=4,remat=selective", "fsdp=16,mbs=2,remat=selective")


def _searched() -> Exploration:
    found = []
    for number, plan in enumerate(PLANS):
        outcome = Outcome(
            status="answered", step_time_s=0.7 + number, units_per_s=3e5, unit="tokens", mfu=0.4, devices=16, device="b200",
            memory_bytes=60 << 30, capacity_bytes=180 << 30, energy_j=1e4, breakdown_s={"compute": 0.7},
        )  # fmt: skip
        found.append(
            Found(
                point=Point(number=number, target="m", asked={"plan": plan}), outcome=outcome, allowed=True,
                known=Known(devices=16, units=2e5, capacity_bytes=19e10, price=16.0),
                values={"on": "dgx-b200", "set.batch": 64, "set.seq": 4096},
            )
        )  # fmt: skip
    accounts = Accounts(tokens=1e12, prices={"b200": Price(usd_per_hour=16.0, said="ours")})
    wanted = tuple(map(objective_named, ("cost", "time")))
    return Exploration(found=tuple(found), tally=Tally(), objectives=wanted, accounts=accounts)


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_is_told_whole_before_what_a_run_costs(width: int) -> None:
    text = sections_text(exploration_sections(_searched(), title="best"), width=width)
    table = text.split("why the first")[0]
    for plan in PLANS:
        assert any(plan in line for line in table.splitlines())
    assert "$237,000" in table  # what was searched for: 16 devices at 16 USD an hour for 1e12 / 3e5 seconds
    assert max(map(len, text.splitlines())) <= width


def test_what_a_search_was_counted_with_can_be_read_again() -> None:
    accounts = _searched().accounts
    assert Accounts.from_json(_searched().to_json()["accounts"]) == accounts


def test_points_that_only_a_prediction_ruled_out_are_not_counted_twice() -> None:
    tally = Tally(space=81, evaluated=72, infeasible=12, bounded=0)
    text = sections_text(exploration_sections(replace(_searched(), tally=tally), title="best"))
    assert "81 points: 72 predicted, 12 cannot run (3 of them by a prediction), 0 left out by bounds" in text
    tally = Tally(space=40, evaluated=37, infeasible=3)
    text = sections_text(exploration_sections(replace(_searched(), tally=tally), title="best"))
    assert "40 points: 37 predicted, 3 cannot run, 0 left out by bounds" in text
