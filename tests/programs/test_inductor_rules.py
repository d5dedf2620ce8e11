"""Rules of Inductor's that decide how many kernels there are, and what they read: by hand."""

from __future__ import annotations

import pytest

from meshcast.base import HOST_WORK
from meshcast.programs.pytorch.eager.triton_code import (
    arithmetic_seconds,
    pooling_seconds,
    streaming_share,
    summing_seconds,
)
from meshcast.programs.pytorch.inductor.kept_values import kept_results
from meshcast.programs.pytorch.inductor.kernels import Compiled
from meshcast.programs.pytorch.inductor.pieces import Pieces
from meshcast.programs.pytorch.inductor.recomputation import with_repeats
from meshcast.programs.pytorch.inductor.split_sums import parts_of_sum, stages_of_sum
from meshcast.programs.pytorch.launches.host_work import compiled_host
from meshcast.programs.pytorch.recording.calls import AtenOp, View
from tests.programs.recordings import call, dense, recording

HELD = {0: "input", 1: "parameter"}


def test_what_is_not_kept_stands_in_the_backward_pass_again() -> None:
    """`b = relu(x w)` of which the backward pass reads `2 b`: it is computed there from `x w`, and nowhere else."""
    x, w, a, b, g, h = (dense(i, 256, 256) for i in range(6))
    step = recording(
        call("mm", (x, w), (a,)), call("mul", (a,), (b,)), call("mul", (g, b), (h,), phase="backward"),
        held=HELD, returned=(),
    )  # fmt: skip
    pieces = Pieces(step).all
    found, kept = with_repeats(pieces, kept_results(pieces))
    assert [(piece.name, piece.phase) for piece in found] == [
        ("mm", "forward"),
        ("mul", "backward"),
        ("mul", "backward"),
    ]
    assert [piece.number for piece in found] == [0, 1, 2]
    assert kept == {0}
    again, reader = found[1:]
    assert again.gives[0].storage not in range(6)
    assert reader.reads[1] == (again, again.gives[0])


def test_long_chains_are_computed_again() -> None:
    """Four thousand loops between what is kept and the backward pass: more than Python calls itself."""
    x, w, a, g = dense(0, 64), dense(1, 64), dense(2, 64), dense(3, 64)
    links = [dense(i, 64) for i in range(10, 4010)]
    chain = [call("mul", (before,), (after,)) for before, after in zip((a, *links), links, strict=False)]
    step = recording(
        call("mm", (x, w), (a,)), *chain, call("mul", (g, links[-1]), (dense(4, 64),), phase="backward"),
        held=HELD, returned=(),
    )  # fmt: skip
    pieces = Pieces(step).all
    found, _ = with_repeats(pieces, {0})
    assert sum(piece.phase == "backward" for piece in found) == 4001
    assert len(Compiled(step).launches()) < 4001


def test_same_calls_are_done_once() -> None:
    """Autocast casts a value for each of three products: one cast, unless the value was written in between."""
    x = dense(0, 512, 512)
    casts = [dense(i, 512, 512, dtype="bfloat16") for i in (2, 3, 4)]
    results = [dense(i, 512, 512, dtype="bfloat16") for i in (5, 6, 7)]
    w = dense(1, 512, 512, dtype="bfloat16")
    ops = []
    for cast, result in zip(casts, results, strict=True):
        ops += [call("_to_copy", (x,), (cast,), dtype="bfloat16"), call("mm", (cast, w), (result,))]
    made = Compiled(recording(*ops, held=HELD, returned=tuple(results))).launches()
    assert sum(launch.name.startswith("triton") for launch in made) == 1
    assert {launch.takes[0].storage for launch in made if launch.name == "extern_mm"} == {2}
    ops.insert(2, call("add_", (x,), (x,)))
    made = Compiled(recording(*ops, held=HELD, returned=tuple(results))).launches()
    assert {launch.takes[0].storage for launch in made if launch.name == "extern_mm"} == {2, 3}


def test_same_numbers_are_one_and_what_was_written_over_is_not() -> None:
    """Masks of two layers, each with a number of its own: one mask. A product that was added to is not the product any more."""
    x, w = dense(0, 512, 512), dense(1, 512, 512)
    ops = []
    for number, masked, result in ((2, 3, 4), (5, 6, 7)):
        ops += [
            call("scalar_tensor", (), (dense(number),), s=0.0),
            call("mul", (x, dense(number)), (dense(masked, 512, 512),)),
            call("mm", (dense(masked, 512, 512), w), (dense(result, 512, 512),)),
        ]
    results = (dense(4, 512, 512), dense(7, 512, 512))
    made = Compiled(recording(*ops, held=HELD, returned=results)).launches()
    assert {launch.takes[0].storage for launch in made if launch.name == "extern_mm"} == {3}
    ops.insert(3, call("add_", (dense(3, 512, 512),), (dense(3, 512, 512),)))
    made = Compiled(recording(*ops, held=HELD, returned=results)).launches()
    assert {launch.takes[0].storage for launch in made if launch.name == "extern_mm"} == {3, 6}


def test_a_comparison_is_kept_as_bytes() -> None:
    """Of `relu(x w)`, which a dropout follows, the backward pass needs to know only where it was above 0."""
    x, w, a, b, c, g, h = (dense(i, 512, 512) for i in (0, 1, 2, 3, 4, 5, 6))
    step = recording(
        call("mm", (x, w), (a,)), call("relu", (a,), (b,)), call("mm", (b, w), (c,)),
        call("threshold_backward", (g, b), (h,), phase="backward"),
        held=HELD, returned=(c,),
    )  # fmt: skip
    compiled = Compiled(step)
    kept = [piece for piece in compiled._pieces if piece.number in compiled._kept]
    assert [(piece.aside, piece.gives[0].dtype) for piece in kept] == [(True, "bool")]


@pytest.mark.parametrize(
    ("left", "summed", "rows", "stages"),
    [
        (960, 6272, False, [49]),  # 6272 / (4 x 32)
        (576, 25088, False, [196, 2]),
        (16384, 1024, False, []),  # enough results
        (300, 100000, True, []),  # a row for each of enough blocks
        (1, 8192, True, []),
        (1, 1 << 20, True, [128]),  # 2^20 / (256 threads x 32)
    ],
)
def test_sums_are_split_as_inductor_splits_them(left: int, summed: int, rows: bool, stages: list[int]) -> None:
    assert stages_of_sum(left, summed, rows=rows, moments=True) == stages
    assert stages_of_sum(left, summed, rows=rows) == stages[:1]
    assert parts_of_sum(left, summed, rows=rows) == (stages[0] if stages else 1)


def test_parts_of_one_tensor_are_read_by_kernels_of_their_own() -> None:
    """Queries and keys of one product: two kernels. Twice the same part: one."""
    whole = dense(0, 2, 4096)
    first, second = View(0, (4096,), (1,), "float32"), View(0, (4096,), (1,), "float32", 4096)
    a, b = dense(2, 4096), dense(3, 4096)

    def kernels(*parts: View) -> int:
        ops = [call("mul", (part,), (made,), other=i) for i, (part, made) in enumerate(zip(parts, (a, b), strict=True))]
        return len(Compiled(recording(*ops, held={whole.storage: "input"}, returned=(a, b))).launches())

    assert kernels(first, second) == 2
    assert kernels(first, first) == 1


def test_windows_read_what_is_in_memory() -> None:
    """A pooling after a sum of two: two kernels, though it has as many elements."""
    x, y, a, b = dense(0, 8, 16, 28, 28), dense(1, 8, 16, 28, 28), dense(2, 8, 16, 28, 28), dense(3, 8, 16, 28, 28)
    step = recording(
        call("add", (x, y), (a,)), call("avg_pool2d", (a,), (b,)), held={0: "input", 1: "input"}, returned=(b,)
    )
    assert [launch.name for launch in Compiled(step).launches()] == [
        "triton_poi_fused_add",
        "triton_poi_fused_avg_pool2d",
    ]


@pytest.mark.parametrize(("dtype", "gelu"), [("float32", 1), ("bfloat16", 2)])
def test_a_result_is_written_over_what_its_own_loop_reads(dtype: str, gelu: int) -> None:
    """`relu(x w + y)` takes the product's place; a GELU reads twice what is made of five tensors, in half precision cast to
    fp32, which is larger than the place.
    """

    def matrix(storage: int) -> View:
        return dense(storage, 1024, 1024, dtype=dtype)

    held = {0: "input", 1: "parameter", **dict.fromkeys((20, 21, 22, 23), "parameter")}
    others = [matrix(i) for i in (20, 21, 22, 23)]

    def temporaries(last: str) -> int:
        step = recording(
            call("mm", (matrix(0), matrix(1)), (matrix(2),)),
            call("addcmul", (matrix(2), *others), (matrix(3),)),
            call(last, (matrix(3),), (matrix(4),)),
            held=held,
            returned=(matrix(4),),
        )
        return Compiled(step).peak()["temporaries"] - (32 << 20)

    size = matrix(0).bytes
    assert temporaries("relu") == size
    assert temporaries("gelu") == gelu * size


def test_arithmetic_is_the_limit_where_it_takes_longer_than_memory() -> None:
    """GELU at 0.69e12 elements a second, whatever its bytes."""
    count = 1 << 26
    seconds = arithmetic_seconds(count, ("multiply", "erf", "add", "multiply", "multiply"))
    assert count / seconds == pytest.approx(0.69e12, rel=0.02)
    wide = dense(0, count), dense(1, count)
    narrow = dense(0, count, dtype="bfloat16"), dense(1, count, dtype="bfloat16")
    assert streaming_share(wide[:1], wide[1:], seconds) == 1.0
    # Every operand beyond two is four instructions more; sums wait for their loads, and a variance has a division.
    more = arithmetic_seconds(count, ("add",), operands=6) - arithmetic_seconds(count, ("add",))
    assert more == pytest.approx(count * 16 / (132 * 128 * 1.98e9))
    plain, varied = (summing_seconds(count, ("add",), operands=2, variance=each) for each in (False, True))
    assert plain == pytest.approx(1.6 * arithmetic_seconds(count, ("add",)))
    assert varied == pytest.approx(count * 1.1e-12, rel=0.01)
    assert streaming_share(narrow[:1], narrow[1:], seconds) == pytest.approx(4 * count / 4.2e12 / seconds)


def test_windows_take_seconds_a_tap_and_their_gradients_a_pixel() -> None:
    """0.82 ps a tap where the place of the largest is kept, 0.33 where it is not, 9 ps a pixel of a gradient."""
    assert pooling_seconds("max_pool2d_with_indices", 1000, 9, places=True) == pytest.approx(9 * 0.82e-9)
    assert pooling_seconds("avg_pool2d", 1000, 4, places=False) == pytest.approx(4 * 0.33e-9)
    assert pooling_seconds("max_pool2d_with_indices_backward", 1000, 9, places=False) == pytest.approx(9e-9)
    assert pooling_seconds("_adaptive_avg_pool2d", 1000, 9, places=False) == 0.0


def test_the_host_counts_graphs_and_gradients_once() -> None:
    x, w, a, g, h = (dense(i, 256, 256) for i in range(5))
    step = recording(
        call("mm", (x, w), (a,)), call("mm", (a, w), (g,), phase="backward"), call("mm", (g, w), (h,), phase="backward"),
        call("add_", (w, h), (w,), phase="optimizer"),
        held=HELD, returned=(a,),
    )  # fmt: skip
    work = compiled_host(step, Compiled(step).launches())
    found = [dict(zip(HOST_WORK, each, strict=False)) for each in work]
    assert [each.get("graph", 0) for each in found] == [1, 2, 0, 0]  # the backward pass's entry is the dearer one
    for once in ("gradient", "parameter", "guarded", "tracked"):
        assert sum(each.get(once, 0) for each in found) == 1  # one parameter


def test_a_value_that_is_read_ends_a_graph() -> None:
    """Whether a layer is dropped: two graphs, each entered forward and, dearer, backward; nothing is tracked in inference."""
    x, w, a, b, g = (dense(i, 256, 256) for i in range(5))
    read = AtenOp(name="wait", phase="forward", takes=(), gives=(), shares=True, waits=True)
    forward = (call("mm", (x, w), (a,)), read, call("mm", (a, w), (b,)))

    def entered(*calls: AtenOp) -> list[dict[str, int]]:
        step = recording(*calls, held=HELD, returned=(b,))
        work = compiled_host(step, Compiled(step).launches())
        return [dict(zip(HOST_WORK, each, strict=False)) for each in work]

    trained = entered(*forward, call("mm", (b, w), (g,), phase="backward"))
    assert [each.get("graph", 0) for each in trained] == [2, 0, 4]
    assert sum(each.get("tracked", 0) for each in trained) == 1
    plain = entered(*forward)
    assert [each.get("graph", 0) for each in plain] == [2, 0]
    assert sum(each.get("tracked", 0) for each in plain) == 0
