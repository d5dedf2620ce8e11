"""Ratios, orders, agreement and exit codes of comparisons small enough to work out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from meshcast.base.errors import BugError, InputError, UnsupportedError
from meshcast.evidence.comparison import Comparison
from meshcast.evidence.comparison.plot import comparison_svg
from meshcast.evidence.comparison.tables import comparison_text, order_words
from tests.evidence.comparison.cells import answered, compared, infeasible

UNSUPPORTED = UnsupportedError("b is not a GPU")


@pytest.fixture
def three() -> Comparison:
    """Three devices; `fine` puts b before a by a little, and c far behind."""
    return compared({"x": {"roofline": {"a": 1.0, "b": 2.0, "c": 4.0}, "analytical": {"a": 3.0, "b": 2.0, "c": 16.0}}})


def test_ratios(three: Comparison) -> None:
    cell = three.cell("x", "c", "roofline")
    assert cell is not None
    assert three.ratio_to_best(cell) == 4.0
    assert three.ratio_to_finest(cell) == 4.0 / 16.0
    finest = three.finest("x", "c")
    assert finest is not None
    assert finest.ask.fidelity == "analytical"
    assert three.ratio_to_finest(finest) == 1.0


def test_orders(three: Comparison) -> None:
    assert [on for on, _ in three.order("x", "roofline")] == ["a", "b", "c"]
    assert [on for on, _ in three.order("x", "analytical")] == ["b", "a", "c"]
    assert order_words((("a", 1.0), ("b", 1.0), ("c", 2.0))) == ("a", "=", "b", "<", "c")


def test_agreement_and_swaps(three: Comparison) -> None:
    (pair,) = three.agreements
    assert pair.fidelities == ("roofline", "analytical")
    assert pair.cells == 3
    # One of three pairs of devices is turned round.
    assert pair.kendall == pytest.approx(1 / 3)
    assert pair.within == pytest.approx(1 / 3)
    # Ranks 1, 2, 3 against 2, 1, 3.
    assert pair.spearman == pytest.approx(0.5)
    assert pair.ratio == pytest.approx(((1 / 3) * 1 * (1 / 4)) ** (1 / 3))
    assert pair.device_pairs == 3
    (swap,) = pair.swaps
    assert (swap.first, swap.second) == ("a", "b")
    assert swap.leads == pytest.approx((2.0, 1.5))
    assert swap.weight == pytest.approx(1.5)


def test_the_same_ratio_everywhere_is_no_spread() -> None:
    (pair,) = compared({"x": {"roofline": {"a": 1.0, "b": 2.0}, "analytical": {"a": 3.0, "b": 6.0}}}).agreements
    assert pair.ratio == pytest.approx(1 / 3)
    assert pair.spread == pytest.approx(1.0)
    two = compared({"x": {"roofline": {"a": 1.0, "b": 1.0}, "analytical": {"a": 2.0, "b": 8.0}}}).agreements[0]
    # ln ratios lie ln 2 on either side of their mean.
    assert two.spread == pytest.approx(2.0)


def test_equal_devices_neither_keep_nor_change_their_order() -> None:
    (pair,) = compared({"x": {"roofline": {"a": 1.0, "b": 1.0}, "analytical": {"a": 1.0, "b": 2.0}}}).agreements
    assert (pair.device_pairs, pair.swaps) == (0, ())
    assert pair.kendall is None


def test_programs_of_different_sizes_hide_what_devices_do() -> None:
    found = compared(
        {
            "small": {"roofline": {"a": 1.0, "b": 2.0}, "analytical": {"a": 2.0, "b": 1.0}},
            "large": {"roofline": {"a": 100.0, "b": 200.0}, "analytical": {"a": 200.0, "b": 100.0}},
        }
    )
    (pair,) = found.agreements
    # Of six pairs of cells the two within a target are turned round.
    assert pair.kendall == pytest.approx((4 - 2) / 6)
    assert pair.within == pytest.approx(-1.0)
    assert len(found.swaps) == 2


def test_cells_without_a_time_take_no_part_and_are_named() -> None:
    found = compared({"x": {"roofline": {"a": 1.0, "b": 2.0}, "analytical": {"a": 2.0, "b": UNSUPPORTED}}})
    full = infeasible("x", "c", "roofline", demand=3 * 2**30, bound=2**30)
    found = replace(found, on=("a", "b", "c"), cells=(*found.cells, full))
    (pair,) = found.agreements
    assert (pair.cells, pair.kendall, pair.device_pairs) == (1, None, 0)
    assert found.not_run == 1
    text = comparison_text(found)
    assert "unsupported" in text
    assert "b is not a GPU" in text
    assert "does not fit" in text
    assert "needs 3 GiB of memory, there is 1 GiB" in text
    assert "not run" in text
    assert found.exit_code == 0


def test_what_stood_in_is_marked_and_takes_no_part() -> None:
    found = compared({"x": {"analytical": {"a": 1.0, "b": 2.0}, "profiled": {"a": 1.0}}})
    found = replace(found, cells=(*found.cells, answered("x", "b", "profiled", 2.0, by="analytical")))
    assert found.agreements[0].cells == 1
    assert "2 s*" in comparison_text(found)
    assert "profiled is mostly analytical" in comparison_text(found)
    finest = found.finest("x", "b")
    assert finest is not None
    assert finest.ask.fidelity == "analytical"


def test_a_program_that_does_nothing_has_no_ratios() -> None:
    found = compared({"x": {"roofline": {"a": 0.0, "b": 0.0}, "analytical": {"a": 1.0, "b": 0.0}}})
    assert [row["ratio_to_best"] for row in found.table() if row["fidelity"] == "roofline"] == [None, None]
    assert found.agreements[0].cells == 0
    json.dumps(found.to_json(), allow_nan=False)
    comparison_svg(found)


@pytest.mark.parametrize(
    ("times", "named", "code"),
    [
        ({"x": {"roofline": {"a": 1.0}, "analytical": {"a": UNSUPPORTED}}}, (), 0),
        ({"x": {"roofline": {"a": 1.0}, "analytical": {"a": UNSUPPORTED}}}, ("roofline", "analytical"), 4),
        ({"x": {"analytical": {"a": 1.0, "b": UNSUPPORTED}}}, ("analytical",), 0),
        ({"x": {"roofline": {"a": 1.0}}, "y": {"roofline": {"a": InputError("no such file")}}}, (), 2),
        ({"x": {"analytical": {"a": UNSUPPORTED}}}, (), 4),
        ({"x": {"roofline": {"a": 1.0, "b": BugError("KeyError: 1")}}}, (), 1),
    ],
)
def test_exit_codes(times: dict, named: tuple[str, ...], code: int) -> None:  # type: ignore[type-arg]
    assert compared(times, named=frozenset(named)).exit_code == code


def test_a_target_that_fits_nowhere_is_infeasible() -> None:
    found = compared({"x": {"roofline": {}}})
    cells = tuple(infeasible("x", on, "roofline", demand=2.0, bound=1.0) for on in ("a", "b"))
    assert replace(found, on=("a", "b"), cells=cells).exit_code == 3


def test_the_table_is_flat_and_complete(three: Comparison) -> None:
    rows = three.table()
    assert len(rows) == 6
    assert rows[0]["target"] == "x"
    assert rows[0]["step_time_low_s"] == pytest.approx(0.9)
    assert all(not isinstance(value, (dict, list)) for row in rows for value in row.values())
    assert len({tuple(row) for row in rows}) == 1


def test_json_says_what_the_object_says(three: Comparison) -> None:
    summary = json.loads(json.dumps(three.to_json(), allow_nan=False))
    assert summary["schema"] == "meshcast.comparison/1"
    assert summary["statuses"] == {"answered": 6, "infeasible": 0, "unsupported": 0, "failed": 0}
    assert [item["on"] for item in summary["orders"]["x"]["analytical"]] == ["b", "a", "c"]
    (pair,) = summary["agreements"]
    assert pair["kendall_within_targets"] == pytest.approx(1 / 3)
    assert pair["swaps"][0]["leads"] == pytest.approx([2.0, 1.5])
    assert math.isclose(three.cell_json(three.cells[0])["ratio_to_best"], 1.0)


def test_it_prints_in_a_terminal_and_a_notebook(three: Comparison) -> None:
    assert "Devices that change places" in str(three)
    assert "<table>" in three._repr_html_()
