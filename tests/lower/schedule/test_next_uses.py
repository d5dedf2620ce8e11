"""What may stay on chip: distances to the next read, ages of placed values, and what a loop reads from outside."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.lower.schedule.last_uses import NEVER, room, rounded_age, with_recency
from meshcast.lower.schedule.next_uses import with_reuse
from meshcast.workload.graph import Tensor

MiB = 2**20
TENSORS = tuple(Tensor((MiB // 4 * size,), "f32") for size in (1, 1, 1, 1, 64, 8))


def touch(name: str, reads: tuple[int, ...], writes: tuple[int, ...], *, matrix: float = 0.0) -> Kernel:
    sizes = tuple(TENSORS[value].bytes for value in reads)
    return Kernel(
        name=name, kind=KernelKind.LOOP_FUSION, dtype="f32", reads=reads, operand_bytes=sizes, writes=writes,
        read_bytes=sum(sizes), written_bytes=sum(TENSORS[value].bytes for value in writes), matrix_flops=matrix,
    )  # fmt: skip


def kept(schedule: Schedule) -> dict[str, int]:
    found = with_reuse(schedule, TENSORS)
    return {kernel.name: kernel.recency.kept[0][0] for kernel, _ in found.walk() if kernel.recency}


def ages(schedule: Schedule) -> dict[str, tuple[tuple[int, int], ...]]:
    found = with_recency(schedule, TENSORS, placed=True)
    return {kernel.name: kernel.recency.reads if kernel.recency else () for kernel, _ in found.walk()}


def test_results_are_never_read_again() -> None:
    assert kept(Schedule(inputs=(0,), outputs=(1,), steps=(touch("only", (0,), (1,)),))) == {"only": NEVER}


def test_a_distance_is_what_moves_until_the_next_read() -> None:
    """Between writing 1 and reading it: the big one's 128 MiB; 2 is read by the very next kernel."""
    steps = (touch("first", (0,), (1,)), touch("big", (4,), (4,)), touch("next", (1,), (2,)), touch("last", (2,), (3,)))
    found = kept(Schedule(inputs=(0, 4), outputs=(3,), steps=steps))
    assert found["first"] == rounded_age(129 * MiB)
    assert found["next"] == rounded_age(1 * MiB)
    assert found["last"] == NEVER


def test_a_loop_reads_what_it_gives_back() -> None:
    body = Schedule(inputs=(0,), outputs=(1,), steps=(touch("turn", (0,), (1,)),))
    loop = LoopStep(label="while", body=body, trips=10, reads=(2,), writes=(3,))
    assert kept(Schedule(inputs=(2,), outputs=(3,), steps=(loop,))) == {"turn": rounded_age(1 * MiB)}


def test_nothing_is_left_from_a_run_before() -> None:
    assert ages(Schedule(inputs=(0,), outputs=(1,), steps=(touch("only", (0,), (1,)),)))["only"] == ((NEVER, MiB),)


def test_all_that_a_kernel_touches_must_fit() -> None:
    """A loop writes over what it reads; a product's operands and results lie side by side."""
    plain, product = touch("loop", (5,), (5,)), touch("product", (5,), (5,), matrix=1.0)
    assert room(plain) == 8 * MiB
    assert room(product) == 16 * MiB
    steps = (touch("made", (0,), (5,)), replace(product, name="used"))
    assert ages(Schedule(inputs=(0,), outputs=(1,), steps=steps))["used"] == ((rounded_age(16 * MiB), 8 * MiB),)


def test_results_that_a_program_gives_back_take_no_room_on_chip() -> None:
    product = touch("used", (5,), (4,), matrix=1.0)
    assert room(product, frozenset({4})) == 8 * MiB
    steps = (touch("made", (0,), (5,)), product)
    assert ages(Schedule(inputs=(0,), outputs=(4,), steps=steps))["used"] == ((rounded_age(8 * MiB), 8 * MiB),)


def test_arguments_that_are_read_again_are_told_to_their_first_reader_alone() -> None:
    """Argument 5 is read by three kernels: its age for the second is what lies between and what that one touches."""
    steps = (
        touch("first", (5,), (1,)),
        touch("between", (1,), (2,)),
        touch("second", (5, 2), (3,)),
        touch("last", (5,), (0,)),
    )
    found = with_reuse(Schedule(inputs=(5,), outputs=(0, 3), steps=steps), TENSORS)
    again = {kernel.name: kernel.recency.again for kernel, _ in found.walk() if kernel.recency}
    assert again == {"first": ((rounded_age((2 + 9) * MiB), 8 * MiB),), "between": (), "second": (), "last": ()}


def weights_of(carried: int, weights: int) -> tuple[tuple[int, int], ...]:
    """Ages of what a product reads in a loop that carries one value and reads the weights from outside."""
    body = Schedule(inputs=(2,), outputs=(3,), steps=(touch("turn", (2, weights), (3,), matrix=1.0),))
    loop = LoopStep(label="while", body=body, trips=10, reads=(carried, weights), writes=(1,))
    return ages(Schedule(inputs=(carried, weights), outputs=(1,), steps=(loop,)))["turn"]


def test_weights_outside_a_loop_stay_where_their_copy_hides() -> None:
    """The carried MiB must be copied in as well: as many bytes of weights come with it, eight times as many do not."""
    assert NEVER not in dict(weights_of(carried=0, weights=1))
    assert NEVER in dict(weights_of(carried=0, weights=5))
    assert NEVER not in dict(weights_of(carried=4, weights=5))
