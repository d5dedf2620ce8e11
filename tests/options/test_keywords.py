"""Options as keywords have their types: editors offer them, and type checkers refuse what `predict` would."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import meshcast
from meshcast.options.keywords import ManyKeywords, OptionKeywords, PlacedKeywords
from meshcast.options.options import option_places
from tests.options.keyword_types import COMMAND, WRITTEN, keywords_text

FORGOTTEN = f"options have changed: write their keywords again by `{COMMAND}`"


def test_keywords_are_those_that_are_declared() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == keywords_text(), FORGOTTEN
    assert set(OptionKeywords.__annotations__) == {*option_places(), "stack"}, FORGOTTEN
    assert not OptionKeywords.__required_keys__


@pytest.mark.parametrize(
    ("asking", "keywords"),
    [
        (meshcast.predict, OptionKeywords), (meshcast.trace, OptionKeywords), (meshcast.write_report, OptionKeywords),
        (meshcast.compare_measured, OptionKeywords), (meshcast.compare, ManyKeywords),
        (meshcast.Program.on, PlacedKeywords), (meshcast.LoweredProgram.on, PlacedKeywords),
    ],
)  # fmt: skip
def test_what_asks_for_a_prediction_has_keywords_with_types(asking: Callable[..., Any], keywords: type) -> None:
    *own, flat = inspect.signature(asking).parameters.values()
    assert (flat.kind, flat.annotation) == (inspect.Parameter.VAR_KEYWORD, f"Unpack[{keywords.__name__}]")
    assert not {each.name for each in own} & set(keywords.__annotations__)
    missing = {*option_places(), "stack"} - set(keywords.__annotations__)
    assert missing <= {"on", "fidelity"}, FORGOTTEN
