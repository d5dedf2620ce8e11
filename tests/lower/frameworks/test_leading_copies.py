"""Copies around exchanges of activations along another dimension than the first."""

from __future__ import annotations

from dataclasses import replace

from meshcast.base.mesh import Group
from meshcast.lower import Kernel
from meshcast.lower.frameworks.leading_copies import with_leading_copies
from meshcast.lower.value_types import ValueTypes
from meshcast.workload.graph import Collective, Tensor
from tests.lower.programs import planned
from tests.simulate.schedules import kernel, loop, schedule

GROUP = Group(dims=((4, 1),), axes=("tensor",))
OTHERS = Group(dims=((2, 4),), axes=("fsdp",))
SHARD, WHOLE = Tensor((2, 8, 16), "bf16"), Tensor((2, 32, 16), "bf16")


def exchange(kind: str, read: int, result: int, group: Group = GROUP) -> Kernel:
    geometry = Collective(kind=kind, group=group, input_bytes=1, output_bytes=1)
    return replace(kernel([read], [result]), geometry=geometry, kind=kernel([], []).kind.__class__("collective"))


def test_a_gather_is_put_together_anew_and_a_scatter_cut_before() -> None:
    values = ValueTypes([SHARD, WHOLE, WHOLE, SHARD])
    body = schedule([exchange("all_gather", 0, 1), kernel([1], [2]), exchange("reduce_scatter", 2, 3)], (0,), (3,))
    steps = with_leading_copies(body, values, lambda group: group == GROUP).steps
    assert [step.ops == ("copy",) for step in steps if isinstance(step, Kernel)] == [False, True, False, True, False]
    gather, behind, _, before, scatter = (step for step in steps if isinstance(step, Kernel))
    assert (gather.writes, behind.writes) == (behind.reads, (1,))
    assert (before.reads, scatter.reads) == ((2,), before.writes)
    assert behind.read_bytes == behind.written_bytes == before.read_bytes == WHOLE.bytes


def test_first_dimensions_and_other_groups_are_left_alone() -> None:
    values = ValueTypes([Tensor((8, 16), "bf16"), Tensor((32, 16), "bf16"), SHARD, WHOLE])
    body = schedule([exchange("all_gather", 0, 1), exchange("all_gather", 2, 3, OTHERS)], (0, 2), (1, 3))
    assert with_leading_copies(body, values, lambda group: group == GROUP) == body


def test_loops_are_looked_through() -> None:
    values = ValueTypes([SHARD, WHOLE])
    inner = schedule([exchange("all_gather", 0, 1)], (0,), (1,))
    made = with_leading_copies(schedule([loop(inner, 3, [0], [1])], (0,), (1,)), values, lambda group: group == GROUP)
    assert sum(count for each, count in made.walk() if each.ops == ("copy",)) == 3


def test_of_a_plan() -> None:
    """Of tensor-parallel layers with positions split: each exchange of activations has its copy, weights' have none."""
    plain, copied = (planned("fsdp=2,tp=2,sp=1,mbs=4", overlap) for overlap in ("", "leading-copies"))
    before, after = (
        sum(n for each, n in run.lowered.schedule.walk() if each.ops == ("copy",)) for run in (plain, copied)
    )
    splitting = plain.lowered.workload.mesh.group(["tensor"])
    exchanges = sum(
        n
        for each, n in plain.lowered.schedule.walk()
        if each.collective
        and each.collective.kind in ("all_gather", "reduce_scatter")
        and each.collective.group == splitting
    )
    assert 0 < after - before <= exchanges
