"""Experts that tensor ranks share out whole, beside those of which they split the width."""

from __future__ import annotations

from meshcast.jobs import predict
from meshcast.results import Prediction


def predicted(*, whole: bool) -> Prediction:
    """A small model of experts on two replicas, two expert ranks and two tensor ranks."""
    return predict(
        "mixtral-tiny",
        on="dgx-h100",
        devices=8,
        plan="dp=2,ep=2,tp=2,sp=1",
        settings={"seq": 64, "batch": 8, "dispatch": "gather", "group": 32, "whole_experts": whole},
    )


def test_tokens_of_a_share_of_the_positions_go_to_experts_on_all_ranks() -> None:
    """Half the tokens leave each device, to three others in place of one: `S/2 x 3/4` for `S x 1/2`."""
    sent = {}
    for whole in (False, True):
        (exchange,) = (each for each in predicted(whole=whole).collectives if each.kind == "all_to_all")
        sent[exchange.group_size] = exchange.bytes_sent
    assert sent.keys() == {2, 4}
    assert sent[4] / sent[2] == (1 / 2 * 3 / 4) / (1 / 2)


def test_both_ways_multiply_as_much() -> None:
    split, whole = predicted(whole=False), predicted(whole=True)
    assert abs(whole.flops / split.flops - 1) < 0.05
