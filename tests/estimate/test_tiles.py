"""A TPU's tiles among what measured kernels are compared by."""

from __future__ import annotations

from dataclasses import replace

from meshcast.estimate.profiled.features import place
from meshcast.estimate.profiled.tiles import tiled_place
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind

V4, H200 = load_device("tpu-v4"), load_device("h200")
LOOP = Kernel(
    name="add",
    kind=KernelKind.LOOP_FUSION,
    dtype="bf16",
    elements=8192,
    shape=(64, 128),
    read_bytes=32768,
    written_bytes=16384,
)


def test_gpus_have_no_tiles() -> None:
    assert tiled_place(LOOP, H200) == ()


def test_shapes_of_as_many_elements_are_told_apart_by_their_tiles() -> None:
    """64 x 128 elements are 8 tiles of 8 x 128; 8192 x 1 are 1024 of them, all but one lane of each empty."""
    full, narrow = tiled_place(LOOP, V4), tiled_place(replace(LOOP, shape=(8192, 1)), V4)
    assert full[4:6] == (3.0, 0.0)
    assert narrow[4:6] == (10.0, 14.0)
    assert place(LOOP, V4)[0] == place(replace(LOOP, shape=(8192, 1)), V4)[0]


def test_loops_that_convert_are_a_family_of_their_own() -> None:
    assert place(replace(LOOP, dtype="f16"), V4)[0] != place(LOOP, V4)[0]
    assert place(replace(LOOP, dtype="f16"), H200)[0] == place(LOOP, H200)[0]
