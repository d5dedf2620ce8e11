"""Products cut beside their exchange: the parts, the ring, the time, and what is left whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshcast.base.errors import UsageError
from meshcast.base.mesh import Group
from meshcast.lower import Kernel, Schedule
from meshcast.lower.overlap.async_tp import with_partial_products
from meshcast.lower.overlap.choices import Overlap
from meshcast.lower.overlap.overlapped import overlapped
from meshcast.lower.value_types import ValueTypes
from meshcast.workload.graph import Collective, Gemm, Tensor
from tests.simulate.schedules import kernel, loop, program, run, schedule

PARTS = 4
GROUP = Group(dims=((PARTS, 1),), axes=("tensor",))
SHARD, WHOLE = Tensor((1000,), "i8"), Tensor((4000,), "i8")


def product(reads: Sequence[int], result: int, seconds: float, rows: int = 64) -> Kernel:
    """A product that takes `seconds`, all of them for reading its first operand."""
    size = int(seconds * 1000)
    shape = Gemm(
        batch=1, m=rows, n=8, k=8, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", lhs_contracting_minor=True,
        rhs_contracting_minor=False,
    )  # fmt: skip
    return replace(
        kernel(reads, [result], seconds), geometry=shape, operand_bytes=(size, 0), matrix_flops=64.0, elements=rows * 8
    )


def collective(kind: str, read: int, result: int, seconds: float) -> Kernel:
    """An exchange of four shards; the bytes of a whole stand for its seconds, a shard's permutation takes a quarter."""
    size = int(seconds * 1000)
    before, after = (size // PARTS, size) if kind == "all_gather" else (size, size // PARTS)
    geometry = Collective(kind=kind, group=GROUP, input_bytes=before, output_bytes=after)
    return Kernel(
        name=f"collective:{kind}", kind=kernel([], []).kind.__class__("collective"), dtype="", reads=(read,),
        writes=(result,), geometry=geometry, operand_bytes=(0,),
    )  # fmt: skip


def cut(body: Schedule, parameters: Sequence[int] = ()) -> Schedule:
    values = ValueTypes([WHOLE if value == 5 else SHARD for value in range(64)])
    return with_partial_products(body, values, set(parameters))


def names(body: Schedule) -> list[str]:
    return [step.collective.kind if step.collective else "product" for step in body.steps if isinstance(step, Kernel)]


GATHERED = schedule([collective("all_gather", 0, 5, 4), product([5, 1], 6, 8)], (0, 1), (6,))


def test_a_gathered_operand_arrives_beside_the_product() -> None:
    """4 parts of 2 s, 3 permutations of 1 s: 8 s instead of 4 + 8. Each part is a quarter of the work."""
    made = cut(GATHERED)
    assert names(made) == ["collective_permute"] * 3 + ["product"] * 4
    parts = [step for step in made.steps if isinstance(step, Kernel) and step.collective is None]
    assert [part.matrix_flops for part in parts] == [16] * 4
    assert {part.geometry.m for part in parts if isinstance(part.geometry, Gemm)} == {16}
    assert parts[0].reads == (0, 1)  # its own shard needs no exchange
    assert parts[-1].writes == (6,)
    assert [part.updates for part in parts[1:]] == [part.writes for part in parts[:-1]]  # into one buffer
    assert run(GATHERED).duration == 4 + 8
    assert run(made).duration == 8


def test_where_the_ring_is_slower_it_sets_the_pace() -> None:
    """Permutations of 3 s each beside parts of 1 s: 3 * 3 s, then the last part."""
    body = schedule([collective("all_gather", 0, 5, 12), product([5, 1], 6, 4)], (0, 1), (6,))
    assert run(cut(body)).duration == 3 * 3 + 1


def test_parts_of_a_sum_go_around_beside_the_product() -> None:
    """4 parts of 2 s; the permutation of 1 s behind the third ends before the fourth part does; the sum is 2 kB: 2 s."""
    body = schedule([product([0, 1], 5, 8), collective("reduce_scatter", 5, 6, 4)], (0, 1), (6,))
    made = cut(body)
    assert names(made) == ["product", "collective_permute"] * 3 + ["product", "product"]
    assert made.steps[-1].writes == (6,)
    assert run(body).duration == 8 + 4
    assert run(made).duration == 4 * 2 + 2


def test_both_ends_of_a_product_cannot_be_cut_at_once() -> None:
    """What is scattered is; the gather before it stays."""
    body = schedule(
        [collective("all_gather", 0, 5, 4), product([5, 1], 6, 8), collective("reduce_scatter", 6, 7, 4)], (0, 1), (7,)
    )
    assert names(cut(body))[:2] == ["all_gather", "product"]
    assert "reduce_scatter" not in names(cut(body))


@pytest.mark.parametrize(
    "body",
    [
        schedule([collective("all_gather", 0, 5, 4), product([5, 1], 6, 8, rows=63)], (0, 1), (6,)),  # does not divide
        schedule([collective("all_gather", 0, 5, 4), product([5, 1], 6, 8)], (0, 1), (5, 6)),  # the whole is wanted
        schedule([collective("all_gather", 0, 5, 4), kernel([5], [6], 8)], (0,), (6,)),  # no product
    ],
)
def test_what_cannot_be_cut_stays(body: Schedule) -> None:
    assert cut(body) == body


def test_gathered_weights_stay() -> None:
    assert cut(GATHERED, parameters=[0]) == GATHERED
    carried = schedule([collective("all_gather", 10, 5, 4), product([5, 11], 6, 8)], (10, 11), (10, 6))
    assert cut(schedule([loop(carried, 3, [0, 1], [2, 3])], (0, 1))).steps[0].body == carried  # type: ignore[union-attr]
    moving = schedule([collective("all_gather", 10, 5, 4), product([5, 11], 6, 8)], (10, 11), (6, 11))
    assert cut(schedule([loop(moving, 3, [0, 1], [2, 3])], (0, 1))).steps[0].body != moving  # type: ignore[union-attr]


def test_scattered_gradients_stay() -> None:
    """What is scattered only meets parameter 2: an optimizer's update."""
    body = schedule(
        [product([0, 1], 5, 8), collective("reduce_scatter", 5, 6, 4), kernel([2, 6], [7], 1, elementwise=True)],
        (0, 1, 2),
        (7,),
    )
    assert cut(body, parameters=[2]) == body
    assert cut(body) != body


def test_gradients_in_arrays_of_each_layer_s_own_stay() -> None:
    """Nothing in the loop reads what is scattered, and no later turn does; a partial sum that is read is cut."""
    stored = schedule([product([10, 11], 5, 8), collective("reduce_scatter", 5, 6, 4)], (10, 11), (10, 11))
    assert cut(schedule([loop(stored, 3, [0, 1], [2, 3])], (0, 1))).steps[0].body == stored  # type: ignore[union-attr]
    read = schedule([*stored.steps, kernel([6], [7], 1, elementwise=True)], (10, 11), (7, 11))
    assert cut(schedule([loop(read, 3, [0, 1], [2, 3])], (0, 1))).steps[0].body != read  # type: ignore[union-attr]


def test_overlap_is_read_and_refused() -> None:
    found = Overlap.parse("buckets=25MiB,prefetch=1,gathers=2,async-tp")
    assert found == Overlap(bucket_bytes=25 << 20, prefetch=True, gathers=2, async_tp=True)
    assert Overlap.parse(str(found)) == found
    assert not Overlap.parse("").any
    assert not Overlap.parse("prefetch=0").any
    for wrong in ("bucket=1MB", "buckets", "buckets=0B", "buckets=5", "prefetch=2", "gathers=x", "prefetch,prefetch"):
        with pytest.raises(UsageError):
            Overlap.parse(wrong)


def test_a_rewrite_that_finds_nothing_says_so() -> None:
    lowered = program(schedule([kernel([0], [1], 1)]))
    made = overlapped(lowered, Overlap.parse("buckets=1MiB,prefetch,async-tp"))
    assert made.schedule == lowered.schedule
    assert len(made.idle) == 3
    assert all("changes nothing" in text or "change nothing" in text for text in made.idle)


def test_gathered_weights_are_whole_when_a_product_is_cut() -> None:
    """FSDP gathers the other operand: an exchange of weights, which nothing waits for in parts."""
    body = schedule(
        [collective("all_gather", 2, 1, 1), collective("all_gather", 0, 5, 4), product([5, 1], 6, 8)], (0, 2), (6,)
    )
    assert names(cut(body, parameters=[2])) == ["all_gather"] + ["collective_permute"] * 3 + ["product"] * 4
    assert names(cut(body)) == ["all_gather", "all_gather", "product"]  # two activations: one product for one exchange
