"""Launch order: what frees memory does not wait, and nothing overtakes what it reads."""

from __future__ import annotations

from meshcast.lower import Kernel
from meshcast.lower.schedule.launch_order import order_for_memory
from meshcast.workload.graph import Tensor
from tests.simulate.schedules import exchange, kernel, update

TENSORS = (Tensor((1000,), "i8"),) * 20


def writes(steps: list[Kernel], held: frozenset[int] = frozenset({0})) -> list[int]:
    return [step.writes[0] for step in order_for_memory(steps, TENSORS, held)]


def test_an_optimizer_update_follows_its_gradient() -> None:
    """Gradients 1, 2, 3, then updates of held parameters: each update comes right after its gradient."""
    gradients = [kernel([0], [1]), kernel([0], [2]), kernel([0], [3])]
    updates = [kernel([0, g], [g + 10]) for g in (1, 2, 3)]
    assert writes([*gradients, *updates], frozenset({0, 11, 12, 13})) == [1, 11, 2, 12, 3, 13]


def test_what_frees_nothing_keeps_its_place() -> None:
    assert writes([kernel([0], [1]), kernel([0], [2]), kernel([1], [3]), kernel([2, 3], [4])]) == [1, 2, 3, 4]


def test_collectives_and_updates_in_place_stay() -> None:
    held = frozenset({0, 11, 12})
    assert writes([kernel([0], [1]), kernel([0], [2]), exchange([1], [11])], held) == [1, 2, 11]
    assert writes([kernel([0], [1]), kernel([0], [2]), update(1, 2, 12)], held) == [1, 2, 12]
