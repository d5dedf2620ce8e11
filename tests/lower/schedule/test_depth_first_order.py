"""Steps depth first: each right before who needs it, and where that takes less memory than the other orders it is taken."""

from __future__ import annotations

from meshcast.lower.schedule.depth_first_order import depth_first_order
from meshcast.lower.schedule.list_order import made_bytes, most_bytes, with_less_memory
from meshcast.workload.graph import Tensor
from tests.simulate.schedules import kernel


def test_what_one_step_needs_is_made_right_before_it() -> None:
    """0 and 1 are put together for 3 and 4, which read 2 and then each other."""
    before = [set[int](), set[int](), set[int](), {0, 2}, {1, 3}]
    assert depth_first_order(before, [10, 10, 1, 1, 1]) == [0, 2, 3, 1, 4]


def test_of_two_operands_the_one_with_readers_to_spare_comes_first_and_then_the_larger() -> None:
    assert depth_first_order([set(), set(), {0, 1}], [1, 5, 1]) == [1, 0, 2]
    assert depth_first_order([set(), set(), {0, 1}, {0, 2}], [1, 5, 1, 1]) == [0, 1, 2, 3]


def test_weights_do_not_wait_in_memory_while_a_larger_value_is_made() -> None:
    """Three layers `h = f(big(h), w)`: the list scheduler has all of `w` made before the first large value, XLA has not."""
    weight, large, small = Tensor((100,), "i8"), Tensor((1000,), "i8"), Tensor((1,), "i8")
    tensors = (small, *(weight,) * 3, *(large,) * 3, *(small,) * 3)
    held = frozenset({0, 9})
    weights = [kernel([0], [value]) for value in (1, 2, 3)]
    layers = [
        step
        for value, given in ((4, 0), (5, 7), (6, 8))
        for step in (kernel([given], [value]), kernel([value, value - 3], [value + 3]))
    ]
    steps = [*weights, *layers]
    sizes = made_bytes(steps, tensors, held)
    assert most_bytes(steps, sizes) == 1301
    assert most_bytes(with_less_memory(steps, tensors, held), sizes) == 1101
