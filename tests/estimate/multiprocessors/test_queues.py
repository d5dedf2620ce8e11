"""Slices of L2 and channels of the memory: queues by Pollaczek and Khinchine, and what they do to blocks that load."""

from __future__ import annotations

import pytest

from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.events import play
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.estimate.multiprocessors.queues import FULL, Station, channels, slices
from meshcast.hardware import load_device

H200 = Chip(device=load_device("h200"), parameters=SmParameters())


def test_a_slice_gives_every_line_in_the_same_time() -> None:
    """80 slices of 64 bytes a cycle: a line of 128 in two; half loaded, a line waits for half a service."""
    found = slices(40 * 2**20, 80 * 64.0)
    assert (found.count, found.service) == (80, 2.0)
    assert found.wait(0.5) == pytest.approx(1.0)
    assert found.wait(0.0) == 0.0


def test_a_channel_opens_a_row_for_every_eighth_line() -> None:
    """10 ns a line, 28 ns more for one in eight: (7 x 100 + 38^2) / 8 = 268 ns^2, and at a load of a half 268 / 20 ns."""
    found = channels("Hopper", 128 / 10e-9 * 4, 1e9)
    assert found.count == round(128 / 10e-9 * 4 / 25e9)
    assert Station(count=4, service=10.0, square=268.0).wait(0.5) == pytest.approx(13.4)
    assert found.square > found.service**2


def test_waits_grow_with_the_load_and_end() -> None:
    waits = [H200.channels.wait(load / 20) for load in range(20)]
    assert waits == sorted(waits)
    assert H200.channels.wait(2.0) == H200.channels.wait(FULL)
    assert H200.channels.count == 192


def grid(dram: float) -> BlockGrid:
    load = Phase(least=690, loads=1.0, waited=690, cached=2048.0, dram=dram)
    return BlockGrid(blocks=((132 * 16, (load,)),), resident=16, start=0.0)


def test_loads_that_miss_wait_for_their_channels_and_hits_do_not() -> None:
    """All blocks load at once: far from the bandwidth nobody waits; near to it misses do, for longer than hits."""
    few, hits, misses = (play(grid(dram), H200).cycles for dram in (1.0, 0.0, 2048.0))
    assert few == pytest.approx(hits, rel=0.01)
    moved = 132 * 16 * 2048.0
    assert misses >= moved / H200.memory_bytes * 0.999
    assert misses > hits


def test_what_a_block_computes_meanwhile_hides_its_queue() -> None:
    """A phase that takes longer than its loads takes that."""
    load = Phase(least=5000, loads=1.0, waited=690, cached=2048.0, dram=2048.0)
    alone = play(BlockGrid(blocks=((1, (load,)),), resident=16, start=0.0), H200).cycles
    assert play(BlockGrid(blocks=((132 * 4, (load,)),), resident=16, start=0.0), H200).cycles == pytest.approx(
        alone, rel=0.01
    )
