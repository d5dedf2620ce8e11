"""Layers that are computed again beside layers that are kept."""

from __future__ import annotations

import pytest

from meshcast.jobs import predict
from meshcast.results import Prediction
from meshcast.zoo.shapes.decoder import DecoderConfig


def predicted(recomputed: int, plan: str = "dp=2,mbs=1,remat=full") -> Prediction:
    settings = {"layers": 8, "seq": 256, "batch": 8, "recomputed": recomputed}
    return predict("llama3-tiny", on="dgx-h100", devices=2, plan=plan, settings=settings, stack="megatron")


def test_each_layer_that_is_kept_saves_its_forward_pass_and_costs_its_memory() -> None:
    all_again, none = predicted(0), predicted(0, "dp=2,mbs=1,remat=none")
    half = predicted(4)
    assert none.flops < half.flops < all_again.flops
    assert half.flops == pytest.approx((none.flops + all_again.flops) / 2, rel=0.02)
    assert all_again.memory.peak < half.memory.peak < none.memory.peak
    assert predicted(8).flops == pytest.approx(all_again.flops)


def test_stacks_are_cut_where_layers_are_kept() -> None:
    config = DecoderConfig(layers=8, recomputed=4, dim=64, heads=4, kv_heads=4, ffn=128, window=32, global_every=3)
    found = [(stack.name, stack.count, len(stack.windows), stack.kept) for stack in config.stacks()]
    assert found == [("layers", 1, 3, False), ("kept_layers", 1, 3, True), ("last_layers", 1, 2, True)]
    assert [stack.remat("full") for stack in config.stacks()] == ["full", "none", "none"]
    assert sum(stack.count * len(stack.windows) for stack in config.stacks()) == 8
