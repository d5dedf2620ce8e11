"""What is worked out once and asked for again."""

from __future__ import annotations

import pytest

from meshcast.base import AnsweredOnce, KeptBeside, UsageError


def test_an_answer_is_worked_out_once_for_each_key() -> None:
    kept, asked = AnsweredOnce(), []

    def work(name: str) -> str:
        asked.append(name)
        return name.upper()

    assert [kept.answer(name, lambda name=name: work(name)) for name in ("a", "b", "a")] == ["A", "B", "A"]  # type: ignore[misc]
    assert asked == ["a", "b"]


def test_nothing_is_an_answer_too() -> None:
    kept, asked = AnsweredOnce(), []
    for _ in range(2):
        assert kept.answer("none", lambda: asked.append(1)) is None
    assert asked == [1]


def test_an_error_of_ours_is_raised_again_and_others_are_tried_again() -> None:
    kept, asked = AnsweredOnce(), []

    def refused() -> None:
        asked.append("refused")
        raise UsageError("no such thing")

    def broken() -> None:
        asked.append("broken")
        raise KeyError("oops")

    for _ in range(2):
        with pytest.raises(UsageError, match="no such thing"):
            kept.answer("refused", refused)
        with pytest.raises(KeyError):
            kept.answer("broken", broken)
    assert asked == ["refused", "broken", "broken"]


def test_what_is_known_of_an_object_is_kept_beside_it_the_latest_ones() -> None:
    kept: KeptBeside[int] = KeptBeside(2)
    asked: list[str] = []

    def count(things: list[str]) -> int:
        asked.append(things[0])
        return len(things)

    first, equal, other = ["a"], ["a"], ["b", "b"]
    for things in (first, first, equal, first, other, first, equal):
        assert kept.of(things, "count", lambda things=things: count(things)) == len(things)  # type: ignore[misc]
    # The equal list is another object, and was forgotten when the third came.
    assert asked == ["a", "a", "b", "a"]
    kept.clear()
    kept.of(first, "count", lambda: count(first))
    assert len(asked) == 5
