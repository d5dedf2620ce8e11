"""Buffers that calls make for themselves: one for every view that is copied, none that a recording has numbered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshcast.programs.pytorch.eager.contiguous_operands import dense_view
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.recording.calls import OF_A_CALL, View
from tests.programs.recordings import call, dense

FIRST = View(3, (4, 8, 16), (256, 1, 16), "float32")
SECOND = replace(FIRST, offset=128)


def test_two_views_of_one_storage_are_copied_to_two_buffers() -> None:
    """A softmax's gradient and result, which are both kept in one storage."""
    op = call("_softmax_backward_data", (FIRST, SECOND), (dense(4, 4, 8, 16),), dim=-1)
    one, other, *_ = (launch.gives[0].storage for launch in eager_launches(op))
    assert one != other
    assert min(one, other) >= OF_A_CALL


def test_views_of_one_storage_are_multiplied_as_two_copies() -> None:
    left, right = View(3, (8, 4), (64, 2), "float32"), View(3, (4, 16), (64, 2), "float32", 1)
    copies = [x for x in eager_launches(call("mm", (left, right), (dense(4, 8, 16),))) if x.name == "copy_for_cublas"]
    assert len({copy.gives[0].storage for copy in copies}) == 2


def test_padded_groups_of_two_views_are_two_buffers() -> None:
    """Images of 24 channels a group, the gradient's in the storage of the image's."""
    image = View(3, (8, 48, 14, 14), (2 * 48 * 196, 196, 14, 1), "bfloat16")
    weight, out = dense(5, 48, 24, 3, 3, dtype="bfloat16"), replace(image, offset=48 * 196)
    told: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}
    made = eager_launches(call("convolution", (image, weight), (out,), **told))
    padded = {x.gives[0].storage for x in made if x.name == "nchwToNhwc"}
    assert len(padded) == 2
    assert min(padded) >= OF_A_CALL


def test_a_copy_has_the_same_number_in_every_run() -> None:
    assert dense_view(FIRST) == dense_view(replace(FIRST))
    assert dense_view(FIRST).storage != dense_view(replace(FIRST, dtype="int32")).storage
