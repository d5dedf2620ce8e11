"""Blocks on SMs: starts, waves, shared units and bandwidths, by hand."""

from __future__ import annotations

import pytest

from meshcast.estimate.multiprocessors import events
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.events import play
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.hardware import load_device

H200 = Chip(device=load_device("h200"), parameters=SmParameters(cold_starts=1.0))
SMS = 132


def cycles(count: int, *phases: Phase, resident: int = 1, start: float = 0.0) -> float:
    """From the first block to the last."""
    return play(BlockGrid(blocks=((count, phases),), resident=resident, start=start), H200).cycles


def test_an_sms_first_block_starts_with_the_launch() -> None:
    assert cycles(1, Phase(least=1000), start=160) == pytest.approx(1000)
    assert cycles(SMS, Phase(least=1000), start=160) == pytest.approx(1000)


def test_one_block_more_than_sms_is_another_wave() -> None:
    """It takes the place of one that has left, and starts in 160 cycles."""
    assert cycles(SMS + 1, Phase(least=1000), start=160) == pytest.approx(2160)


def test_an_sm_starts_its_blocks_one_after_the_other() -> None:
    """Four residents start at 0, 160, 320 and 480, and the last waits another 1000."""
    assert cycles(4 * SMS, Phase(least=1000), resident=4, start=160) == pytest.approx(1480)


def test_the_first_blocks_of_an_sm_start_more_slowly() -> None:
    """At 0, 240, 480 and 720; the fifth at 1160, when the first has left and 160 cycles have passed."""
    cold = Chip(device=H200.device, parameters=SmParameters(cold_starts=1.5))
    grid = BlockGrid(blocks=((4 * SMS, (Phase(least=1000),)),), resident=4, start=160)
    assert play(grid, cold).cycles == pytest.approx(1720)
    assert play(BlockGrid(blocks=((4 * SMS + 1, (Phase(least=1000),)),), resident=4, start=160), cold).cycles == (
        pytest.approx(2160)
    )


def test_blocks_of_an_sm_share_its_tensor_cores() -> None:
    assert cycles(2 * SMS, Phase(tensor=1000), resident=2) == pytest.approx(2000)


def test_one_block_computes_while_the_other_stores() -> None:
    """Tiles that compute for 1000 and store for 1000: alone 2000 each, two residents that take turns half of that."""
    tile = Phase(tensor=1000, least=1000), Phase(least=1000)
    alone = cycles(8 * SMS, *tile)
    paired = cycles(8 * SMS, *tile, resident=2, start=1.0)
    assert alone == pytest.approx(16000)
    assert 8000 < paired < 0.8 * alone


def test_memory_is_shared_by_all() -> None:
    bytes_of_a_block = 1e6
    expected = SMS * bytes_of_a_block / H200.memory_bytes
    assert cycles(SMS, Phase(dram=bytes_of_a_block)) == pytest.approx(expected)
    assert cycles(SMS // 2, Phase(dram=bytes_of_a_block)) == pytest.approx(expected / 2)


def test_a_lone_block_is_bound_by_its_port() -> None:
    assert cycles(1, Phase(cached=64000.0)) == pytest.approx(1000)


def test_sms_without_a_block_of_one_kind_go_on_with_the_next() -> None:
    long, short = (Phase(least=1000),), (Phase(least=600),)
    grid = BlockGrid(blocks=((100, long), (32, short)), resident=1, start=0.0)
    assert play(grid, H200).cycles == pytest.approx(1000)


def test_waves_that_are_skipped_take_as_long_as_those_that_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = Phase(least=300, cached=4096.0, dram=4096.0), Phase(issue=200), Phase(cached=2048.0, dram=2300.0)
    grid = BlockGrid(blocks=((16 * SMS * 30 + 77, phases),), resident=16, start=160)
    skipped = play(grid, H200)
    monkeypatch.setattr(events, "STEADY", -1.0)
    played = play(grid, H200)
    assert skipped.events < played.events / 2
    assert skipped.cycles == pytest.approx(played.cycles, rel=0.02)
    assert skipped.dram == pytest.approx(played.dram, rel=0.02)


def test_waves_that_go_up_and_down_are_skipped_at_the_pace_of_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose loads, instructions and stores take turns: some waves take a half more than others, and it never ends."""
    load, compute = Phase(least=499, cached=3072, dram=3072), Phase(least=757, issue=662)
    grid = BlockGrid(blocks=((458_752, (load, compute, Phase(cached=3072, dram=3379))),), resident=16, start=158)
    a100 = Chip(device=load_device("a100-sxm-80gb"), parameters=SmParameters())
    skipped = play(grid, a100)
    monkeypatch.setattr(events, "LONG", 10**6)
    played = play(grid, a100)
    assert skipped.events < played.events / 2
    assert skipped.cycles == pytest.approx(played.cycles, rel=0.05)
    assert skipped.dram == pytest.approx(played.dram, rel=0.02)


def test_what_is_used_adds_up() -> None:
    phases = Phase(least=300, cached=4096.0, dram=2048.0), Phase(tensor=100, issue=50)
    found = play(BlockGrid(blocks=((SMS * 4, phases),), resident=2, start=10), H200)
    assert found.cached == pytest.approx(SMS * 4 * 4096)
    assert found.dram == pytest.approx(SMS * 4 * 2048)
    assert found.tensor == pytest.approx(400)
    assert found.issue == pytest.approx(200)
