"""XLA's list scheduler: taken where it needs less memory, and nothing overtakes what it depends on."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower import Kernel
from meshcast.lower.copies.memsets_and_copies import memset
from meshcast.lower.schedule.list_order import least_bytes, made_bytes, most_bytes, with_less_memory
from meshcast.workload.graph import Tensor
from tests.simulate.schedules import exchange, kernel, update

BIG, SMALL = Tensor((1000,), "i8"), Tensor((10,), "i8")
TENSORS = (BIG,) * 10 + (SMALL,) * 10  # values from 10 on are small


def writes(steps: list[Kernel], held: frozenset[int]) -> list[int]:
    return [step.writes[0] for step in with_less_memory(steps, TENSORS, held) if step.writes]


def test_chains_run_one_after_the_other() -> None:
    """Two large values, a sum of each, and results that read both: one large value at a time is enough."""
    held = frozenset({0, 14, 15})
    made = [kernel([0], [1, 11]), kernel([0], [2, 12])]
    used = [kernel([1, 11], [14]), kernel([2, 12], [15])]
    sizes = made_bytes([*made, *used], TENSORS, held)
    assert sizes == {1: 1000, 11: 10, 2: 1000, 12: 10}
    assert least_bytes([*made, *used], sizes) == 1010
    assert most_bytes([*made, *used], sizes) == 2020
    assert writes([*made, *used], held) == [1, 14, 2, 15]
    assert most_bytes([made[0], used[0], made[1], used[1]], sizes) == 1010


def test_what_only_grows_memory_waits_until_it_is_needed() -> None:
    held = frozenset({0, 14, 15})
    steps = [kernel([0], [1]), kernel([0], [2]), kernel([2], [14]), kernel([1], [15])]
    assert writes(steps, held) == [1, 15, 2, 14]


def test_slices_that_a_loop_steps_through_do_not_wait() -> None:
    """They are copied beside other kernels from the start, as in XLA's own schedules of stacked layers."""
    held = frozenset({0, 14, 15, 16, 17})
    stepped = frozenset({"copy", "cold"})
    made, used = [kernel([0], [at]) for at in (1, 2, 3)], [kernel([at], [13 + at]) for at in (1, 2, 3)]
    last = [replace(kernel([0], [4]), flags=stepped), kernel([4], [17])]
    assert writes([*made, *used, *last], held) == [4, 17, 1, 14, 2, 15, 3, 16]
    copies = [replace(step, flags=stepped) for step in made]
    assert writes([*copies, *used[::-1]], held) == [1, 2, 3, 16, 15, 14]


def test_an_order_that_saves_nothing_is_left_alone() -> None:
    steps = [kernel([0], [11]), kernel([0], [1]), kernel([11, 1], [2])]
    assert with_less_memory(steps, TENSORS, frozenset({0, 2})) == steps
    assert with_less_memory([], TENSORS, frozenset()) == []


def test_what_nobody_reads_is_gone_after_its_step() -> None:
    steps = [kernel([0], [1]), kernel([0], [2, 11]), kernel([2, 2], [3])]
    assert most_bytes(steps, made_bytes(steps, TENSORS, frozenset({0, 3}))) == 1010


def test_what_is_written_over_is_read_before() -> None:
    held = frozenset({0, 14, 15})
    reading, writing = kernel([1], [2]), update(1, 11, 3)
    steps = [kernel([0], [1]), kernel([0], [11]), reading, writing, kernel([2], [14]), kernel([3], [15])]
    order = with_less_memory(steps, TENSORS, held)
    assert order.index(reading) < order.index(writing)


def test_blocks_with_collectives_keep_their_order() -> None:
    steps = [kernel([0], [1]), kernel([0], [2]), kernel([1], [14]), exchange([2], [15])]
    assert with_less_memory(steps, TENSORS, frozenset({0, 14, 15})) == steps


def test_a_memset_stays_before_its_call() -> None:
    held = frozenset({0, 14, 15})
    call = kernel([0], [2])
    cleared = memset(call)
    steps = [kernel([0], [1]), cleared, call, kernel([2], [14]), kernel([1], [15])]
    order = with_less_memory(steps, TENSORS, held)
    assert order != steps
    assert order.index(call) == order.index(cleared) + 1
