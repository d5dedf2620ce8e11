"""Kernels of torch.compile: loops computed inside their readers, sums, what is kept for the backward pass; by hand."""

from __future__ import annotations

from meshcast.programs.pytorch.inductor import Compiled
from meshcast.programs.pytorch.recorded import Recording
from tests.programs.recordings import call, dense, recording


def kernels(step: Recording) -> list[str]:
    return [launch.name.split("_fused_")[0] for launch in Compiled(step).launches()]


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


def test_products_of_odd_rows_are_padded() -> None:
    x, w, out = dense(0, 512, 512), dense(1, 512, 1001), dense(2, 512, 1001)
    (launch,) = Compiled(
        recording(call("mm", (x, w), (out,)), held={0: "input", 1: "parameter"}, returned=(out,))
    ).launches()
    assert [launch.told[name] for name in ("m", "n", "k")] == [512, 1008, 512]
