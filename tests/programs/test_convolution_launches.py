"""Convolutions as PyTorch runs them: when images lie channels last, what cuDNN copies, and the workspace that it copies into."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast.programs.pytorch.eager.allocator import cublas_workspaces, eager_peak
from meshcast.programs.pytorch.eager.code_shapes import CUDNN, STREAM, UNALIGNED
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.inductor.image_layouts import channels_last_pays
from meshcast.programs.pytorch.inductor.kernels import Compiled
from meshcast.programs.pytorch.recording.calls import AtenOp, Recording, View
from tests.programs.recordings import call, dense, recording

HALF = "bfloat16"


def convolution(
    channels: int, out: int, window: int, *, groups: int = 1, pixels: int = 56, dtype: str = HALF, first: int = 0
) -> AtenOp:
    image = dense(first, 8, channels, pixels, pixels, dtype=dtype)
    weight = dense(first + 1, out, channels // groups, window, window, dtype=dtype)
    told: dict[str, Any] = {"stride": (1, 1), "padding": (window // 2,) * 2, "dilation": (1, 1), "groups": groups}
    return call("convolution", (image, weight), (dense(first + 2, 8, out, pixels, pixels, dtype=dtype),), **told)


def training(*ops: AtenOp, calls: int = 0) -> Recording:
    """Convolutions, `calls` others, and something of a backward pass."""
    x, y = dense(90, 64), dense(91, 64)
    others = [call("relu", (x,), (y,)) for _ in range(calls)]
    back = call("threshold_backward", (y, x), (dense(92, 64),), phase="backward")
    return recording(*ops, *others, back, held={0: "input", 1: "parameter", 90: "input"}, returned=(dense(92, 64),))


@pytest.mark.parametrize(
    ("ops", "calls", "pays"),
    [
        ([convolution(128, 128, 3)], 0, True),
        ([convolution(128, 128, 3), convolution(128, 128, 3, groups=4)], 0, False),  # RegNet, ResNeXt
        ([convolution(128, 128, 3), convolution(128, 128, 7, groups=128)], 0, True),  # single channels are no groups
        ([convolution(128, 32, 3)], 0, False),  # DenseNet
        ([convolution(128, 32, 1)], 0, True),
        ([convolution(32, 64, 3)], 0, False),
        ([convolution(128, 128, 16)], 400, False),  # patches alone
    ],
)
def test_images_lie_channels_last_where_inductor_has_them_so(ops: list[AtenOp], calls: int, pays: bool) -> None:
    assert channels_last_pays(training(*ops, calls=calls)) == pays


def test_inference_weighs_convolutions_by_their_work() -> None:
    """1.358 of the work of groups against 0.823 of the others': groups may do up to a third of all."""
    held = {0: "input", 1: "parameter"}
    wide, groups = convolution(128, 128, 3), convolution(128, 128, 3, groups=4)  # a quarter of the FLOPs
    assert channels_last_pays(recording(wide, groups, held=held, returned=()))
    assert not channels_last_pays(recording(wide, groups, groups, groups, held=held, returned=()))
    assert not channels_last_pays(recording(call("relu", (dense(0, 8),), (dense(2, 8),)), held=held, returned=()))


def test_images_that_stay_channels_first_are_turned_in_compiled_steps_too() -> None:
    first = Compiled(training(convolution(128, 128, 3, groups=4))).launches()
    last = Compiled(training(convolution(128, 128, 3))).launches()
    assert sum("nchwToNhwc" in launch.name for launch in first) == 3
    assert not any("nchwToNhwc" in launch.name for launch in last)


@pytest.mark.parametrize(
    ("op", "copies"),
    [
        (convolution(64, 64, 3, dtype="float32"), 3),
        (convolution(64, 64, 3, dtype="float32", pixels=14), 0),  # small images have kernels of their own
        (convolution(16, 64, 3, dtype="float32"), 0),
        (convolution(64, 64, 1, dtype="float32"), 0),
        (convolution(64, 64, 1, pixels=7), 3),  # an odd number of halves in a row
    ],
)
def test_what_cudnn_turns(op: AtenOp, copies: int) -> None:
    assert sum(launch.name == "nchwToNhwc" for launch in eager_launches(op)) == copies


def test_products_of_pixels_go_by_their_alignment() -> None:
    assert [launch.share for launch in eager_launches(convolution(64, 64, 1, pixels=16))] == [CUDNN["half"]]
    assert [launch.share for launch in eager_launches(convolution(64, 64, 1, pixels=14))] == [CUDNN["half"] * UNALIGNED]


def test_turned_images_are_in_a_workspace() -> None:
    """In fp32 an image of 64 channels and its result, each once more while the call runs."""
    op = convolution(64, 64, 3, dtype="float32")
    peak = eager_peak(recording(op, held={0: "input", 1: "parameter"}, returned=(op.gives[0],)))
    image = 8 * 64 * 56 * 56 * 4
    assert peak["temporaries"] == image + 2 * image


def test_large_windows_of_single_channels_take_their_multiply_adds() -> None:
    """Channels last: the slower of the bytes at half of the memory's rate, and 49 multiply-adds an element."""
    strides = (96 * 56 * 56, 1, 96 * 56, 96)
    image, out = (View(i, (8, 96, 56, 56), strides, HALF) for i in (0, 2))
    weight = dense(1, 96, 1, 7, 7, dtype=HALF)
    told: dict[str, Any] = {"stride": (1, 1), "padding": (3, 3), "dilation": (1, 1), "groups": 96}
    (launch,) = eager_launches(call("convolution", (image, weight), (out,), **told))
    seconds = (image.bytes + weight.bytes + out.bytes) / STREAM / launch.share
    assert seconds == pytest.approx(image.elements * 49 / 4.8e12)


@pytest.mark.parametrize(
    ("op", "products", "copies"),
    [
        (convolution(128, 128, 3, groups=4), 1, 3),  # four groups of 32 are one kernel
        (convolution(768, 768, 1, groups=4), 4, 8),  # SqueezeBERT's of 192: each between copies of its images alone
        (convolution(768, 768, 3, groups=4), 4, 12),  # and of its weights, where they have a window
        (convolution(768, 768, 1, groups=4, dtype="float32"), 4, 0),
        (convolution(768, 768, 3, groups=768), 1, 0),  # single channels are ATen's
    ],
)
def test_wide_groups_of_channels_follow_each_other(op: AtenOp, products: int, copies: int) -> None:
    launches = eager_launches(op)
    made = [launch for launch in launches if launch.name != "nchwToNhwc"]
    assert (len(made), len(launches) - len(made)) == (products, copies)
    if products > 1:
        assert {launch.told["groups"] for launch in made} == {1}
        assert {launch.told["weight"][:2] for launch in made} == {(192, 192)}


def test_the_channels_of_a_group_are_turned_alone() -> None:
    """8 images of 192 of 768 channels, 56 x 56 pixels of 2 bytes."""
    turned = next(each for each in eager_launches(convolution(768, 768, 1, groups=4)) if each.name == "nchwToNhwc")
    assert turned.takes[0].bytes == 8 * 192 * 56 * 56 * 2


def test_narrow_groups_are_padded_to_a_power_of_two() -> None:
    """RegNet-Y 3.2GF's 24 channels to 32: images and weights are copied into zeros, three operands a pass."""
    launches = eager_launches(convolution(72, 72, 3, groups=3))
    names = [launch.name for launch in launches]
    assert names == [
        "memset",
        "nchwToNhwc",
        "memset",
        "tensorTransformGeneric",
        "cudnn_convolution_grouped",
        *names[-2:],
    ]
    assert names[-2:] == ["memset", "nchwToNhwc"]
    assert launches[0].gives[0].elements == 8 * 96 * 56 * 56
    assert next(iter(eager_launches(convolution(64, 64, 3, groups=2)))).name == "nchwToNhwc"  # of 32: as it is


def test_what_a_library_pads_is_no_buffer_of_the_graph() -> None:
    plain, padded = (Compiled(training(convolution(3 * n, 3 * n, 3, groups=3))).peak() for n in (32, 24))
    assert padded["temporaries"] < plain["temporaries"]


def test_cublas_has_a_workspace_for_each_thread_that_multiplies() -> None:
    x, w, y = dense(0, 64, 64), dense(1, 64, 64), dense(2, 64, 64)
    product, back = call("mm", (x, w), (y,)), call("mm", (y, w), (dense(3, 64, 64),), phase="backward")
    held = {0: "input", 1: "parameter"}
    assert cublas_workspaces(recording(convolution(64, 64, 3), held=held, returned=())) == 0
    assert cublas_workspaces(recording(product, held=held, returned=())) == 32 << 20
    assert cublas_workspaces(recording(product, back, held=held, returned=())) == 64 << 20
