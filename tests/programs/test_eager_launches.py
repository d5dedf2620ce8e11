"""Kernels of eager PyTorch, call by call, by hand; the allocator's peak; the host's part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshcast.programs.pytorch.eager.allocator import BIASED_WORKSPACE, WORKSPACE, eager_peak
from meshcast.programs.pytorch.eager.code_shapes import (
    ADDED_HALVES,
    CHANNEL_START,
    GATHERED,
    PLACES_START,
    STREAM,
    UNROLLED,
    by_channel,
    down_seconds,
    row_seconds,
)
from meshcast.programs.pytorch.eager.kernels import eager_launches, launched_bytes
from meshcast.programs.pytorch.launches.host_work import eager_host, work_of
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.recording.calls import AtenOp, View
from tests.programs.recordings import call, dense, recording


def names(op: AtenOp) -> list[str]:
    return [launch.name for launch in eager_launches(op)]


def test_a_view_repeats_no_bytes() -> None:
    repeated = View(0, (4, 8), (0, 1), "bfloat16")
    assert (repeated.elements, repeated.bytes, repeated.dense_order) == (32, 16, None)
    turned = View(0, (4, 8), (1, 4), "float32")
    assert turned.dense_order == (1, 0)
    assert not turned.contiguous


def test_views_launch_nothing() -> None:
    x = dense(0, 8, 8)
    assert eager_launches(AtenOp(name="view", phase="forward", takes=(x,), gives=(x,), shares=True)) == []


def test_elementwise_kernels_by_layout_and_dtype() -> None:
    a, b, out = dense(0, 1024, 1024), dense(1, 1024, 1024), dense(2, 1024, 1024)
    (plain,) = eager_launches(call("add", (a, b), (out,)))
    assert (plain.form, plain.share, plain.turned) == ("pointwise", 1.0, False)
    (cast,) = eager_launches(call("_to_copy", (dense(0, 1024, 1024, dtype="bfloat16"),), (out,)))
    assert cast.share == UNROLLED
    half = [dense(i, 1024, 1024, dtype="bfloat16") for i in range(2)]
    turned = View(0, (1024, 1024), (1, 1024), "bfloat16")
    (against,) = eager_launches(call("clone", (turned,), (half[1],)))
    # Two bytes in and two out at 4.2 TB/s, against 6.0 ps an element.
    assert against.extra - PLACES_START == pytest.approx(2**20 * (6.0e-12 - 4 / 4.2e12))
    apart = View(0, (1024, 1024), (2048, 1), "bfloat16")
    (indexed,) = eager_launches(call("clone", (apart,), (half[1],)))
    assert indexed.share == pytest.approx(4 / 4.2e12 / 3.0e-12)  # whose neighbours are neighbours: 3.0 ps
    # Of two dtypes, each of the three operands is cast where its place is: 0.55 ps more.
    row, wide = dense(3, 1, 1024), [dense(i, 1024, 1024, dtype="bfloat16") for i in (0, 1)]
    (cast,) = eager_launches(call("mul", (wide[0], row), (out,)))
    (same,) = eager_launches(call("mul", (a, row), (out,)))
    seconds = [
        sum(view.bytes for view in (*made.takes, *made.gives)) / 4.2e12 / made.share / 1024**2 for made in (cast, same)
    ]
    assert seconds == pytest.approx([3.0e-12 + 3 * 0.55e-12, 3.0e-12], rel=1e-3)
    # What is written over is read too: its bytes count twice.
    (over,) = eager_launches(call("add_", (a, row), (a,)))
    assert over.share == pytest.approx(same.share, rel=1e-3)


def test_norms_and_softmaxes_are_the_kernels_of_aten() -> None:
    x, w, small = dense(0, 64, 256), dense(1, 256), dense(2, 64, 1)
    backward = call(
        "native_layer_norm_backward", (x, x, small, small, w, w), (dense(5, 64, 256), dense(6, 256), dense(7, 256)),
        phase="backward", normalized_shape=(256,),
    )  # fmt: skip
    assert names(backward) == ["layer_norm_grad_input", "GammaBetaBackward"]
    (softmax,) = eager_launches(call("_softmax", (x,), (dense(3, 64, 256),), dim=-1))
    assert [stage.reduced for stage in softmax.stages] == [(1,), (1,), ()]


def test_norms_take_seconds_a_row_and_their_gradients_go_down_columns() -> None:
    """1.3 ns a row of 768 in half precision, 1.0 of 96, whose 128 threads go once; 1.5 us before any."""
    assert row_seconds(1000, 768, "float16") == pytest.approx(1.5e-6 + 1.3e-6)
    assert row_seconds(1000, 96, "bfloat16") == pytest.approx(1.5e-6 + 1.0e-6)
    assert row_seconds(1000, 96, "float32") == pytest.approx(1.5e-6 + 1.3e-6)
    # 4,096 rows that the cache holds at 2.9 ns, less the time of their bytes; shared out where there are more than 65,536.
    assert down_seconds(4096, 512, 16.8e6) == pytest.approx(1.5e-6 + 4096 * 2.9e-9 - 16.8e6 / STREAM)
    assert down_seconds(200704, 96, 154e6) == pytest.approx(1.5e-6)


def test_a_safe_softmax_is_four_kernels() -> None:
    """The softmax, which elements are masked, which whole rows are, and a choice."""
    scores, out = dense(0, 8, 12, 256, 256), dense(1, 8, 12, 256, 256)
    assert names(call("_safe_softmax", (scores,), (out,), dim=-1)) == ["_softmax", "eq", "all", "where"]


def test_functions_bound_kernels_in_half_precision() -> None:
    """GELU's 48 instructions an element take longer than two bytes in and two out, and less than four and four."""
    for dtype, bound in (("bfloat16", True), ("float32", False)):
        x, y = (dense(i, 4096, 4096, dtype=dtype) for i in range(2))
        (made,) = eager_launches(call("gelu", (x,), (y,)))
        assert (made.share < 1.0) == bound
    (joined,) = eager_launches(call("cat", (x, x), (dense(3, 8192, 4096, dtype="float32"),), dim=0))
    assert joined.extra == PLACES_START


def test_poolings_take_seconds_a_result() -> None:
    """`elements (13.5 + 0.3 taps)` ps, whatever the dtype; 11.15 ps a pixel of the image in the gradient."""
    image, out = dense(0, 64, 64, 112, 112, dtype="bfloat16"), dense(1, 64, 64, 56, 56, dtype="bfloat16")
    places = dense(2, 64, 64, 56, 56, dtype="int64")
    (made,) = eager_launches(call("max_pool2d_with_indices", (image,), (out, places), kernel_size=(3, 3)))
    moved = image.bytes + out.bytes + places.bytes
    assert made.extra == pytest.approx(out.elements * 16.2e-12 - moved / STREAM)
    _, back = eager_launches(
        call("max_pool2d_with_indices_backward", (out, image, places), (image,), phase="backward", kernel_size=(3, 3))
    )
    assert back.extra == pytest.approx(image.elements * 11.15e-12 - (out.bytes + image.bytes + places.bytes) / STREAM)


def test_batch_norm_has_a_block_for_each_channel() -> None:
    image = dense(0, 32, 64, 56, 56, dtype="bfloat16")
    gives = (dense(1, 32, 64, 56, 56, dtype="bfloat16"), dense(2, 64), dense(3, 64))
    made = eager_launches(call("native_batch_norm", (image, dense(4, 64), dense(5, 64)), gives, training=True))
    assert [launch.name for launch in made] == [
        "batch_norm_collect_statistics",
        "batch_norm_update_stats",
        "batch_norm_transform_input",
    ]
    share, extra = by_channel(image, "statistics")
    assert (made[0].share, made[0].extra) == (share, extra + CHANNEL_START)
    assert extra == pytest.approx(32 * 56 * 56 * 0.77e-9)  # 64 blocks beside each other, an element after the other
    assert by_channel(dense(0, 32, 1056, 56, 56), "statistics")[1] == pytest.approx(2 * extra)  # 528 run at once


@pytest.mark.parametrize(("what", "elements", "each"), [("forward", 256, 6.1 + 9 * 0.43), ("weight", 256, 9 * 2.15)])
def test_aten_convolves_channels_one_by_one(what: str, elements: int, each: float) -> None:
    """Seconds by elements and taps, not by bytes: bf16 and fp32 alike; not in fp16 of 32 channels, which is cuDNN's."""
    for dtype, own in (("bfloat16", True), ("float32", True), ("float16", False)):
        image, weight = dense(0, 64, 64, 256, 4, dtype=dtype), dense(1, 64, 1, 3, 3, dtype=dtype)
        told: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 64}
        out = dense(2, 64, 64, 256, 4, dtype=dtype)
        if what == "forward":
            op = call("convolution", (image, weight), (out,), **told)
        else:
            op = call(
                "convolution_backward",
                (out, image, weight),
                (weight,),
                phase="backward",
                output_mask=(False, True, False),
                **told,
            )
        (made,) = (launch for launch in eager_launches(op) if launch.name.startswith("conv_depthwise"))
        moved = sum(view.bytes for view in (*made.takes, *made.gives))
        expected = 64 * 64 * elements * 4 * each * 1e-12 - moved / 4.2e12
        assert made.extra == pytest.approx(expected if own else 0.0)


@pytest.mark.parametrize(("dtype", "kernel", "copies"), [("bfloat16", 3, 3), ("bfloat16", 1, 0), ("float32", 3, 0)])
def test_cudnn_turns_images_in_half_precision(dtype: str, kernel: int, copies: int) -> None:
    image, weight = dense(0, 8, 16, 32, 32, dtype=dtype), dense(1, 16, 16, kernel, kernel, dtype=dtype)
    out = dense(2, 8, 16, 32, 32, dtype=dtype)
    op = call(
        "convolution", (image, weight), (out,), stride=(1, 1), padding=(kernel // 2,) * 2, dilation=(1, 1), groups=1
    )
    assert names(op).count("nchwToNhwc") == copies
    assert names(op).count("cudnn_convolution") == 1


def test_a_product_with_a_bias_is_one_kernel() -> None:
    x, w, b = dense(0, 128, 64), View(1, (64, 32), (1, 64), "float32"), dense(2, 32)
    (launch,) = eager_launches(call("addmm", (b, x, w), (dense(3, 128, 32),)))
    told = launch.told
    assert (told["m"], told["n"], told["k"]) == (128, 32, 64)
    assert told["left_k_minor"]
    assert told["right_k_minor"]


def test_fused_optimizers_take_320_chunks_a_launch() -> None:
    sizes = [65536 * 400, 1000, 65536]  # 400 + 1 + 1 chunks: 320, then 82
    lists = [[dense(10 * j + i, n) for i, n in enumerate(sizes)] for j in range(4)]
    counts = tuple(dense(90 + i) for i in range(3))
    takes = tuple(view for each in lists for view in each) + counts
    places = tuple(name for name in ("self", "grads", "exp_avgs", "exp_avg_sqs", "state_steps") for _ in sizes)
    first, second = eager_launches(call("_fused_adamw_", takes, tuple(lists[0]), places=places, phase="optimizer"))
    assert [view.elements for view in first.gives] == [320 * 65536] * 3
    assert [view.elements for view in second.gives] == [80 * 65536, 1000, 65536] * 3


def test_many_small_tensors_are_110_a_launch() -> None:
    steps = tuple(dense(i) for i in range(250))
    op = call("_foreach_add_", steps, steps, places=("self",) * 250, phase="optimizer")
    assert [len(launch.gives) for launch in eager_launches(op)] == [110, 110, 30]


def test_the_allocators_peak_is_in_blocks_of_512_bytes() -> None:
    x, a, b, c = (dense(i, 200) for i in range(4))  # 800 bytes: 1,024 each
    step = recording(
        call("relu", (x,), (a,)), call("relu", (a,), (b,)), call("relu", (b,), (c,), frees=(1,)),
        held={0: "input"}, returned=(c,),
    )  # fmt: skip
    assert eager_peak(step) == {"arguments": 1024, "outputs": 0, "temporaries": 2048, "aliased": 0}
    w = dense(9, 200, 200)
    product = recording(
        call("mm", (w, w), (dense(8, 200, 200),)), held={9: "parameter"}, returned=(dense(8, 200, 200),)
    )
    assert eager_peak(product)["temporaries"] == WORKSPACE + -(-160000 // 512) * 512
    biased = recording(
        call("addmm", (dense(7, 200), w, w), (dense(8, 200, 200),)), held={7: "parameter", 9: "parameter"},
        returned=(dense(8, 200, 200),),
    )  # fmt: skip
    assert eager_peak(biased)["temporaries"] == WORKSPACE + BIASED_WORKSPACE + -(-160000 // 512) * 512


def test_the_host_does_views_before_the_next_launch() -> None:
    x, y = dense(0, 64), dense(1, 64)
    ops = (
        AtenOp(name="view", phase="forward", takes=(x,), gives=(x,), shares=True, modules=2),
        AtenOp(name="relu", phase="forward", takes=(x,), gives=(y,), cast=True, modules=1),
        AtenOp(name="item", phase="forward", takes=(), gives=(), shares=True, waits=True),
        AtenOp(name="relu", phase="forward", takes=(y,), gives=(x,)),
    )
    step = recording(*ops, held={0: "input"}, returned=(x,))
    launches: list[Launch] = [each for i, op in enumerate(ops) for each in eager_launches(op, i)]
    assert eager_host(step, launches) == [
        work_of(plain_view=1, plain=1, module=3, cast=1),
        work_of(plain_view=1, plain=1, wait=1),
    ]


def test_gradients_make_calls_dearer_and_are_added_up_by_autograd() -> None:
    """Forward calls make nodes; the backward pass calls without Python, and each parameter gets its gradient once."""
    w, x, y = dense(0, 64), dense(1, 64), dense(2, 64)
    ops = (
        AtenOp(name="mul", phase="forward", takes=(x, w), gives=(y,)),
        AtenOp(name="view", phase="backward", takes=(y,), gives=(y,), shares=True),
        AtenOp(name="mul", phase="backward", takes=(y, x), gives=(dense(3, 64),)),
        AtenOp(name="mul", phase="backward", takes=(y, w), gives=(dense(4, 64),)),
        AtenOp(name="_fused_sgd_", phase="optimizer", takes=(w,), gives=(w,), place=("self",)),
    )
    step = recording(*ops, held={0: "parameter", 1: "input"}, returned=(y,))
    launches: list[Launch] = [each for i, op in enumerate(ops) for each in eager_launches(op, i)]
    assert eager_host(step, launches) == [
        work_of(call=1),
        work_of(returned_view=1, returned=1, accumulated=1),
        work_of(returned=1),
        work_of(call=1, parameter=1),
    ]


def test_batch_norm_in_training_is_one_kernel_of_cudnn_but_for_bf16() -> None:
    """`Normalization.cpp` asks cuDNN for every dtype but bf16, of images that lie channel by channel."""
    image, out, mean = dense(0, 8, 64, 28, 28), dense(1, 8, 64, 28, 28), dense(2, 64)
    op = call("native_batch_norm", (image, dense(3, 64), dense(4, 64)), (out, mean, dense(5, 64)), training=True)
    assert [launch.name for launch in eager_launches(op, 0)] == ["bn_fw_tr"]


def test_pieces_of_sixteen_bytes_are_joined_faster() -> None:
    """`CatArrayBatchedCopy_vectorized` moves 16 bytes at a time; a piece of 3 rows of 7 halves does not lie so."""
    shares = []
    for width in (8, 7):
        a, b, out = (dense(i, 4, 3 * (1 + i // 2), width, 64 if width == 8 else 1, dtype="bfloat16") for i in range(3))
        (launch,) = eager_launches(call("cat", (a, b), (out,), dim=1), 0)
        shares.append(launch.share)
    assert shares[0] > shares[1]


def test_pieces_of_several_dtypes_or_many_dimensions_are_copied_one_by_one() -> None:
    """`cat_out_cuda` joins up to four dimensions of one dtype; a stack has one more only where it is put behind the last."""
    a, half = dense(0, 4, 8, 16, 32), dense(1, 4, 8, 16, 32, dtype="bfloat16")
    assert names(call("cat", (a, half), (dense(2, 4, 8, 16, 64),), dim=3)) == ["copy_", "copy_"]
    assert names(call("cat", (a, a), (dense(2, 4, 8, 16, 64),), dim=3)) == ["cat"]
    assert names(call("stack", (a, a), (dense(2, 4, 8, 16, 32, 2),), dim=-1)) == ["copy_", "copy_"]
    assert names(call("stack", (a, a), (dense(2, 2, 4, 8, 16, 32),), dim=0)) == ["stack"]


def test_images_pixel_by_pixel_are_joined_sixteen_bytes_at_a_time() -> None:
    strides = (64 * 28 * 28, 1, 64 * 28, 64)
    piece = View(0, (8, 64, 28, 28), strides, "bfloat16")
    whole = View(1, (8, 128, 28, 28), (128 * 28 * 28, 1, 128 * 28, 128), "bfloat16")
    (joined,) = eager_launches(call("cat", (piece, replace(piece, storage=2)), (whole,), dim=1))
    assert joined.share == pytest.approx(4 / 4.2e12 * 460e9)


def test_sums_of_channels_work_every_elements_place_out() -> None:
    """A channel of many images lies in pieces: 2 ps an element, where rows take as long as their bytes."""
    images, channels = dense(0, 128, 64, 55, 55, dtype="bfloat16"), dense(1, 64, dtype="bfloat16")
    made = eager_launches(call("sum", (images,), (channels,), dim=(0, 2, 3)))[-1]
    elements = 128 * 64 * 55 * 55
    assert made.extra == pytest.approx(elements * (2.0e-12 - 2 / 4.2e12 / 0.75))
    rows = eager_launches(call("sum", (images,), (dense(1, 128, 64, dtype="bfloat16"),), dim=(2, 3)))[-1]
    assert rows.extra == 0.0


def test_pixels_of_an_odd_number_are_turned_where_they_fill_no_tile() -> None:
    """49 pixels of the last stage of a ResNet, not 169 of SqueezeNet's."""

    def convolved(side: int) -> list[str]:
        x, w, out = (
            dense(0, 8, 512, side, side, dtype="bfloat16"), dense(1, 1024, 512, 1, 1, dtype="bfloat16"),
            dense(2, 8, 1024, side, side, dtype="bfloat16"),
        )  # fmt: skip
        return names(call("convolution", (x, w), (out,), stride=(1, 1), padding=(0, 0), groups=1))

    assert convolved(7) == ["nchwToNhwc", "nchwToNhwc", "cudnn_convolution", "nchwToNhwc"]
    assert convolved(13) == ["cudnn_convolution"]


def test_a_gradient_that_is_one_number_is_copied_for_a_product() -> None:
    """Of `y.sum()`: one element seen as a matrix. Its copy has as many elements as it shows."""
    one, weight = View(0, (64, 128), (0, 0), "float32"), dense(1, 128, 32)
    copied, product = eager_launches(call("mm", (one, weight), (dense(2, 64, 32),)))
    assert (copied.name, product.form) == ("copy_for_cublas", "product")
    assert copied.gives[0].bytes == 4 * 64 * 128
    assert copied.share > 0.01


def test_tf32_goes_by_how_its_operands_lie() -> None:
    rows, weights, out = dense(0, 4096, 512), dense(1, 1024, 512), dense(2, 4096, 1024)
    turned = View(1, (512, 1024), (1, 512), "float32")
    (forward,) = eager_launches(call("mm", (rows, turned), (out,), allow_tf32=True))  # both along the sum
    (data,) = eager_launches(call("mm", (out, weights), (rows,), allow_tf32=True))
    sideways = View(2, (1024, 4096), (1, 1024), "float32")
    (weight,) = eager_launches(call("mm", (sideways, rows), (weights,), allow_tf32=True))  # neither
    assert forward.share > data.share > weight.share
    assert not weight.told["plain"]
    odd = View(2, (1022, 4096), (1, 1022), "float32")
    (askew,) = eager_launches(call("mm", (odd, rows), (dense(3, 1022, 512),), allow_tf32=True))
    assert askew.share == 1.0  # by the alignment of its rows alone


def test_a_matrix_by_a_vector_is_streamed_and_its_bias_copied_first() -> None:
    matrix, vector, out = dense(0, 8192, 256), dense(1, 256, 1), dense(2, 8192, 1)
    copied, product = eager_launches(call("addmm", (dense(3, 1), matrix, vector), (out,)))
    assert (copied.name, product.name, product.form) == ("copy_bias", "addmm", "reduce")
    assert product.stages[0].reduced == (1,)
    turned = View(2, (1, 8192), (1, 1), "float32")
    (gradient,) = eager_launches(call("mm", (turned, matrix), (dense(4, 1, 256),)))
    assert (gradient.form, gradient.stages[0].reduced) == ("reduce", (0,))


def test_small_tiles_of_batches_are_plain_cores_own() -> None:
    left, right, out = dense(0, 4096, 27, 32), dense(1, 4096, 32, 27), dense(2, 4096, 27, 27)
    (tiny,) = eager_launches(call("bmm", (left, right), (out,), allow_tf32=True))
    wide = (dense(0, 4096, 27, 27), dense(1, 4096, 27, 128))
    (other,) = eager_launches(call("bmm", wide, (dense(2, 4096, 27, 128),)))
    assert tiny.told["plain"]
    assert tiny.share == 2 * other.share


def test_a_group_norms_gradient_reads_its_images_twice() -> None:
    images = [dense(i, 8, 32, 56, 56) for i in range(2)]
    op = call(
        "native_group_norm_backward", (*images, dense(2, 8, 4), dense(3, 8, 4), dense(4, 32)),
        (dense(5, 8, 32, 56, 56), dense(6, 32), dense(7, 32)), phase="backward", N=8, C=32, HxW=3136, group=4,
    )  # fmt: skip
    sums, gradient, weights = eager_launches(op)
    assert sums.gives[0].elements == 8 * 32
    assert [launched_bytes(each) for each in (sums, gradient)] == [2 * images[0].bytes + 1024, 3 * images[0].bytes]
    assert [view.elements for view in weights.gives] == [32, 32]


def test_values_are_added_at_places_by_a_thread_an_element() -> None:
    """Halves by a loop over the word they are in: three times as long as single floats, whatever the table's size."""

    def seconds(dtype: str) -> float:
        table, rows = dense(0, 1 << 20, 64, dtype=dtype), dense(2, 4096, 64, dtype=dtype)
        places = ("self", "index", "source")
        op = call("index_add_", (table, dense(1, 4096, dtype="int64"), rows), (table,), places=places, dim=0)
        (launch,) = eager_launches(op)
        assert launched_bytes(launch) < 3 * rows.bytes
        return launch.extra - PLACES_START + launched_bytes(launch) / STREAM

    assert seconds("bfloat16") == pytest.approx(4096 * 64 * ADDED_HALVES)
    assert seconds("float32") == pytest.approx(4096 * 64 * GATHERED)


def test_what_is_permuted_is_copied_before_its_rows_are_normalised() -> None:
    images = View(0, (8, 56, 56, 96), (96 * 56 * 56, 56, 1, 56 * 56), "float32")
    norm = call("native_layer_norm", (images,), (dense(1, 8, 56, 56, 96),), normalized_shape=(96,))
    copied, made = eager_launches(norm)
    assert copied.name == "contiguous_copy"
    assert made.takes[0].contiguous
    assert (
        len(eager_launches(call("native_layer_norm", (dense(0, 8, 96),), (dense(1, 8, 96),), normalized_shape=(96,))))
        == 1
    )
