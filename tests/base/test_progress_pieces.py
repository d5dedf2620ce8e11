"""Pieces of a larger work tell how far the whole is."""

from __future__ import annotations

import time

import pytest

from meshcast.base import Said, aside, listening, piece, tell, told_each


def test_a_piece_tells_its_share_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of four pieces, half of it done after three seconds: three eighths, and five seconds are left.

    Words that count nothing do not put it back.
    """
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    heard: list[Said] = []
    with listening(heard.append):
        with piece("program 2 of 4", done=1, total=4):
            now = 103.0
            tell("lowering it", done=1, total=2)
            tell("compiling")
        tell("putting it together")
    assert heard == [
        "program 2 of 4", "program 2 of 4: lowering it, about 5 s left", "program 2 of 4: compiling, about 5 s left",
        "putting it together",
    ]  # fmt: skip
    assert [said.share for said in heard] == [0.25, 0.375, 0.375, None]


def test_work_beside_the_counted_one_does_not_move_the_whole() -> None:
    """A prediction of its own, told from nothing to two thirds, between the first and the second of seven pieces."""
    heard: list[Said] = []
    with listening(heard.append):
        with piece("predicting", done=0, total=7):
            tell("estimating", done=2, total=4)
        with aside("the same, modelled"):
            tell("capturing", done=0, total=3)
            tell("estimating", done=2, total=3)
        with piece("1 of 6", done=1, total=7):
            tell("capturing")
    shares = [said.share for said in heard if said.share is not None]
    assert shares == sorted(shares)
    assert heard[4] == "the same, modelled: estimating"
    assert heard[4].share == pytest.approx(0.5 / 7)


def test_items_are_told_as_they_pass() -> None:
    heard: list[Said] = []
    with listening(heard.append):
        assert list(told_each("ab", 2, "ranks written")) == ["a", "b"]
    assert heard == ["0 of 2 ranks written", "1 of 2 ranks written"]
    with piece("to nobody", done=0, total=1):
        tell("nor this")
