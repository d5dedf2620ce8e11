"""The picture: well-formed, every answer in it, at its place."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.evidence.comparison.plot import Axis, comparison_svg
from tests.evidence.comparison.cells import answered, compared

SVG = "{http://www.w3.org/2000/svg}"


def test_the_axis_is_logarithmic() -> None:
    axis = Axis(low=1e-3, high=1e-1, left=0.0, right=100.0)
    assert axis.place(1e-3) == 0.0
    assert axis.place(1e-2) == pytest.approx(50.0)
    assert axis.place(1e-1) == pytest.approx(100.0)


@pytest.mark.parametrize("high", [2e-3, 1e-2, 1.0, 1e6])
def test_ticks_are_inside_round_and_few(high: float) -> None:
    axis = Axis(low=0.9e-3, high=high, left=0.0, right=1.0)
    assert axis.ticks
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert len(axis.ticks) <= 10


def test_every_answer_is_a_dot() -> None:
    found = compared(
        {
            "x<y>": {"roofline": {"a": 1.0, "b": 2.0}, "analytical": {"a": 2.0, "b": UnsupportedError("no")}},
            "z": {"roofline": {"a": UnsupportedError("no"), "b": UnsupportedError("no")}},
        }
    )
    found = replace(found, fidelities=(*found.fidelities, "profiled"))
    found = replace(found, cells=(*found.cells, answered("z", "b", "analytical", 3.0, by="roofline")))
    root = ElementTree.fromstring(comparison_svg(found))
    dots = [circle for circle in root.iter(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]
    assert len(dots) == 4
    assert sum(dot.get("fill") == "white" for dot in dots) == 1  # what stood in is hollow
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "x<y>" in texts
    assert "unsupported" in texts
    assert "without an answer: profiled" in texts


def test_a_single_time_has_an_axis() -> None:
    root = ElementTree.fromstring(comparison_svg(compared({"x": {"roofline": {"a": 1e-3}}})))
    assert "1 ms" in [text.text for text in root.iter(f"{SVG}text")]
