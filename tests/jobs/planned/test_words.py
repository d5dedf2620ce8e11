"""What a mesh refuses, in the words of plans."""

from __future__ import annotations

from meshcast.base.errors import UndividedError
from meshcast.jobs.planned.target import _in_words_of_plans
from meshcast.zoo import zoo


def said(**split: int) -> str:
    refused = UndividedError("rows", 12, split, fix="change the mesh")
    return str(_in_words_of_plans(refused, zoo()["gpt2-tiny"]))


def test_one_axis_has_its_nearest_degrees() -> None:
    assert (
        said(tensor=5)
        == "--plan: gpt2-tiny, rows: 12 is not divisible by tp=5\n  fix: use tp=4 or 6, or change the size"
    )


def test_several_axes_have_the_nearest_products() -> None:
    text = said(fsdp=2, context=4)
    assert "rows: 12 is not divisible by fsdp=2 x cp=4" in text
    assert "fsdp and cp that make 6 or 12 together" in text
