"""Kernels of torch.compile: loops computed inside their readers, sums, what is kept for the backward pass; by hand."""

from __future__ import annotations

import pytest

from meshcast.programs.pytorch.inductor.kernels import Compiled
from meshcast.programs.pytorch.recording.calls import Recording, View
from tests.programs.recordings import call, dense, recording


def kernels(step: Recording) -> list[str]:
    return [launch.name.split("_fused_")[0] for launch in Compiled(step).launches()]


def product_of(left: View, right: View, out: View) -> Recording:
    return recording(call("mm", (left, right), (out,)), held={0: "input", 1: "parameter"}, returned=(out,))


def test_a_chain_is_one_kernel_that_reads_its_inputs_once() -> None:
    x, y, a, b, c = (dense(i, 4096) for i in range(5))
    step = recording(
        call("mul", (x, y), (a,)), call("gelu", (a,), (b,)), call("add", (b, x), (c,)),
        held={0: "input", 1: "input"}, returned=(c,),
    )  # fmt: skip
    (launch,) = Compiled(step).launches()
    assert {view.storage for view in launch.takes} == {0, 1}
    assert [view.storage for view in launch.gives] == [4]


def test_products_stand_between_kernels() -> None:
    x, w, a, b, c = (dense(i, 64, 64) for i in range(5))
    step = recording(
        call("relu", (x,), (a,)), call("mm", (a, w), (b,)), call("relu", (b,), (c,)),
        held={0: "input", 1: "parameter"}, returned=(c,),
    )  # fmt: skip
    assert [launch.name for launch in Compiled(step).launches()] == [
        "triton_poi_fused_relu",
        "extern_mm",
        "triton_poi_fused_relu",
    ]


def test_a_softmax_joins_what_is_around_it() -> None:
    x, a, b, c = (dense(i, 512, 128) for i in range(4))
    step = recording(
        call("mul", (x,), (a,)), call("_softmax", (a,), (b,), dim=-1), call("_to_copy", (b,), (c,)),
        held={0: "input"}, returned=(c,),
    )  # fmt: skip
    (launch,) = Compiled(step).launches()
    assert launch.form == "reduce"
    assert [view.storage for view in launch.takes] == [0]


def test_sums_down_columns_take_a_second_kernel() -> None:
    x, s = dense(0, 8192, 64), dense(1, 64)
    assert kernels(recording(call("sum", (x,), (s,), dim=(0,)), held={0: "input"}, returned=(s,))) == [
        "triton_red",
        "triton_per",
    ]


def test_random_masks_are_kept_and_drawn_where_they_are_used() -> None:
    x, out, mask = dense(0, 4096), dense(1, 4096), dense(2, 4096, dtype="bool")
    g = dense(3, 4096)
    step = recording(
        call("native_dropout", (x,), (out, mask), p=0.1),
        call("native_dropout_backward", (out, mask), (g,), phase="backward"),
        held={0: "input"}, returned=(g,),
    )  # fmt: skip
    first, second = Compiled(step).launches()  # the mask alone forward: nothing there reads what is dropped
    assert 2 in {view.storage for view in first.gives}
    assert 2 in {view.storage for view in second.takes}


def test_buffers_take_each_others_place() -> None:
    x, *between, out = (dense(i, 1 << 20) for i in range(6))
    w = dense(9, 1024, 1024)
    ops = []
    for before, after in zip((x, *between), (*between, out), strict=True):
        ops.append(call("relu", (before,), (after,)))
    step = recording(
        *ops, call("mm", (dense(5, 1024, 1024), w), (dense(7, 1024, 1024),)), held={0: "input", 9: "parameter"},
        returned=(dense(7, 1024, 1024),),
    )  # fmt: skip
    assert Compiled(step).peak()["temporaries"] == 2 * (4 << 20) + (32 << 20)


@pytest.mark.parametrize("shape", [(512, 512, 1001), (512, 1001, 512), (1001, 512, 512)])
def test_products_in_fp32_are_timed_as_they_are(shape: tuple[int, int, int]) -> None:
    """No operand is copied, so that none may be timed as if it were padded."""
    m, k, n = shape
    (launch,) = Compiled(product_of(dense(0, m, k), dense(1, k, n), dense(2, m, n))).launches()
    assert [launch.told[name] for name in ("m", "k", "n")] == [m, k, n]


@pytest.mark.parametrize(("strides", "timed"), [((512, 1), 1001), ((1, 1001), 1008)])
def test_odd_rows_of_a_result_count_where_they_lie_side_by_side(strides: tuple[int, int], timed: int) -> None:
    """The gradient of a weight, whose left operand Inductor made with padded strides; it is not copied."""
    x = View(0, (1001, 512), strides, "bfloat16")
    w, out = dense(1, 512, 512, dtype="bfloat16"), dense(2, 1001, 512, dtype="bfloat16")
    (launch,) = Compiled(product_of(x, w, out)).launches()
    assert [launch.told[name] for name in ("m", "k", "n")] == [timed, 512, 512]


def test_operands_of_odd_rows_are_copied_in_half_precision() -> None:
    """A vocabulary of 1,001: the weight is copied with 1,008 columns, and there are both at the worst moment."""
    x, w, out = (dense(i, *shape, dtype="bfloat16") for i, shape in enumerate([(512, 512), (512, 1001), (512, 1001)]))
    step = Compiled(recording(call("mm", (x, w), (out,)), held={0: "input", 1: "parameter"}, returned=(out,)))
    copy, product = step.launches()
    assert copy.name == "triton_poi_fused_constant_pad_nd"
    assert (copy.takes, copy.gives[0].shape) == ((w,), (512, 1008))
    assert product.takes == (x, copy.gives[0])
    result = -(-512 * 1001 * 2 // 512) * 512
    assert step.peak()["temporaries"] == 512 * 1008 * 2 + result + (32 << 20)


def test_sums_of_odd_length_have_both_operands_copied() -> None:
    x, w, out = (dense(i, *shape, dtype="bfloat16") for i, shape in enumerate([(512, 1001), (1001, 512), (512, 512)]))
    step = recording(call("mm", (x, w), (out,)), held={0: "input", 1: "parameter"}, returned=(out,))
    *copies, product = Compiled(step).launches()
    assert sorted(each.gives[0].shape for each in copies) == [(512, 1008), (1008, 512)]
    assert product.told["k"] == 1008


def test_a_poolings_indices_are_written_where_they_are_read_and_as_bytes() -> None:
    """In inference they are not; for a backward pass they are offsets in the window, and what was pooled is kept as well."""
    x, g = dense(0, 8, 64, 32, 32), dense(5, 8, 64, 16, 16)
    active, pooled, indices = dense(1, 8, 64, 32, 32), dense(2, 8, 64, 16, 16), dense(3, 8, 64, 16, 16, dtype="int64")
    forward = (
        call("convolution", (x, dense(6, 64, 64, 1, 1)), (dense(7, 8, 64, 32, 32),)),
        call("relu", (dense(7, 8, 64, 32, 32),), (active,)),
        call("max_pool2d_with_indices", (active,), (pooled, indices)),
    )
    held = {0: "input", 5: "input", 6: "parameter"}
    *_, last = Compiled(recording(*forward, held=held, returned=(pooled,))).launches()
    assert last.gives == (pooled,)
    gradient = dense(4, 8, 64, 32, 32)
    back = call("max_pool2d_with_indices_backward", (g, active, indices), (gradient,), phase="backward")
    made = Compiled(recording(*forward, back, held=held, returned=(pooled, gradient))).launches()
    assert [view.dtype for launch in made for view in launch.gives].count("int8") == 1
    assert active in [view for launch in made for view in launch.gives]


def test_the_gradient_of_a_convolutions_bias_is_a_sum_of_inductors() -> None:
    gradient, x, w = dense(0, 8, 64, 28, 28), dense(1, 8, 32, 28, 28), dense(2, 64, 32, 3, 3)
    backward = call(
        "convolution_backward", (gradient, x, w), (dense(3, 8, 32, 28, 28), dense(4, 64, 32, 3, 3), dense(5, 64)),
        phase="backward", output_mask=(True, True, True), stride=(1, 1), padding=(1, 1), groups=1,
    )  # fmt: skip
    step = recording(backward, held=dict.fromkeys(range(3), "input"), returned=backward.gives)
    made = [launch.name for launch in Compiled(step).launches()]
    assert sum(name.startswith("triton_red_fused_sum_bias") for name in made) == 1
    assert "sum_bias" not in made
