"""What a profiler sees of one call: launches inside transforms, sorts and solvers, as an H200 ran them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind, LoopStep
from meshcast.lower.copies.memsets_and_copies import clears_first
from meshcast.simulate.launches import hidden_launches, launches_inside
from meshcast.workload.data_loops import DataLoop
from meshcast.workload.graph import Convolution, Factorisation, Geometry, Reduction
from meshcast.workload.rules.convolution import filter_gradient
from meshcast.workload.shapes import SortGeometry, Transform, TransformKind
from tests.simulate.schedules import program, schedule

H200 = load_device("h200")


def kernel(geometry: Geometry, dtype: str = "f32") -> Kernel:
    return Kernel(name="call", kind=KernelKind.OTHER, dtype=dtype, geometry=geometry, reads=(0,), writes=(1,))


@pytest.mark.parametrize(
    ("kind", "lengths", "launches"),
    [
        ("FFT", (1000,), 1), ("FFT", (1024, 1024), 2), ("FFT", (128, 128, 128), 3), ("FFT", (8, 8), 1),
        ("RFFT", (512, 512), 2), ("RFFT", (32768,), 1),
        ("IFFT", (512,), 2),  # and its scaling
        ("IRFFT", (8192,), 3),  # and a copy of what it would spoil
        ("RFFT", (287999,), 8), ("IRFFT", (287999,), 10),  # a prime: three passes of 576,000 numbers, there and back
        ("FFT", (1 << 18,), 2), ("FFT", (1 << 20,), 3),
    ],
)  # fmt: skip
def test_a_transform_is_a_pass_a_dimension(kind: TransformKind, lengths: tuple[int, ...], launches: int) -> None:
    assert launches_inside(kernel(Transform(kind=kind, lengths=lengths, batch=4))) == launches


@pytest.mark.parametrize(
    ("length", "batch", "operands", "dtype", "launches"),
    [
        (1_000_000, 1, 1, "i32", 12),  # radix: four digits of 8 bits
        (1_000_000, 1, 1, "bf16", 8),
        (262_144, 64, 2, "i32", 7),  # rows: six digits of 6 bits
        (64, 32_768, 1, "i32", 1),
        (4096, 1, 3, "i32", 1),
        (1 << 22, 1, 4, "i32", 78),  # tiles of 2048: eleven stages beyond, of 1 to 11 steps and one within tiles each
    ],
)
def test_sorts_are_passes_over_digits_or_steps_beyond_a_tile(
    length: int, batch: int, operands: int, dtype: str, launches: int
) -> None:
    shape = SortGeometry(length=length, batch=batch, operands=operands)
    assert launches_inside(kernel(shape, dtype)) == launches


def test_solvers_launch_by_their_columns() -> None:
    def launches(routine: str, batch: int, rows: int, columns: int, right: int = 0) -> int:
        shape = Factorisation(routine=routine, batch=batch, rows=rows, columns=columns, right=right)  # type: ignore[arg-type]
        return launches_inside(kernel(shape))

    assert launches("cholesky", 1, 2048, 2048) == 4
    assert launches("cholesky", 512, 64, 64) == 4 + 3 * (64 // 16 - 1)  # panels of 16 columns, three launches each
    assert launches("qr", 1, 2048, 64) == 4
    assert launches("qr", 1, 32_832, 64) == 4 * 28  # a tree over blocks of rows, for each panel of 16 columns
    assert launches("triangular", 1, 1024, 1024, 1) == 3
    assert launches("svd", 2, 256, 256) == 2 * launches("svd", 1, 256, 256)  # one matrix after the other
    assert launches("svd", 1, 256, 256) == 599
    assert 599 < launches("svd", 1, 300, 300) < 1302  # between two sizes that were measured


@pytest.mark.parametrize(
    ("length", "returned", "hidden"),
    [(16, True, 0), (64, False, 0), (135, False, 0), (135, True, 1), (8192, True, 3), (65536, False, 2)],
)
def test_prefix_sums_are_taken_by_levels_of_windows(length: int, returned: bool, hidden: int) -> None:
    """8,192 in windows of 16: of 512 sums, then 32, then 2; what adds them up is another kernel where it is returned."""
    summed = replace(
        kernel(Reduction(shape=(4, length), dims=(1,))), kind=KernelKind.REDUCTION, ops=("stablehlo.reduce_window",)
    )
    after = replace(kernel(Reduction(shape=(4,), dims=(0,))), reads=(1,), writes=(2,))
    steps = [summed] if returned else [summed, after]
    lowered = replace(program(schedule(steps, [0], [1 if returned else 2])), backend="xla-gpu")
    assert hidden_launches(lowered, H200) == hidden


def test_hidden_launches_count_as_often_as_their_loop_turns() -> None:
    inside = kernel(Transform(kind="IRFFT", lengths=(512,), batch=1))
    body = schedule([inside], [0], [1])
    looped = program(schedule([LoopStep(label="loop", body=body, trips=5, reads=(0,), writes=(1,))], [0], [1]))
    assert hidden_launches(replace(looped, backend="xla-gpu"), H200) == 5 * 2
    assert hidden_launches(replace(looped, backend="xla-tpu"), H200) == 0


def test_a_loop_that_ends_on_data_asks_before_every_turn_and_behind_the_last() -> None:
    body = schedule([kernel(Transform(kind="FFT", lengths=(512,), batch=1))], [0], [1])
    inner = LoopStep(label="while#2", body=body, trips=3, reads=(0,), writes=(1,))
    outer = LoopStep(label="while#1", body=schedule([inner], [0], [1]), trips=5, reads=(0,), writes=(1,))
    looped = replace(program(schedule([outer], [0], [1])), backend="xla-gpu")
    ending = DataLoop(label="while#2", source="", turns=3)
    assert hidden_launches(looped, H200) == 0
    asked = replace(looped, workload=replace(looped.workload, data_loops=(ending,)))
    assert hidden_launches(asked, H200) == 5 * (3 + 1)


def test_a_filters_gradient_is_summed_up_by_another_kernel() -> None:
    forward = filtered(channels=64, filters=128, groups=1)
    assert launches_inside(kernel(forward)) == 1
    assert launches_inside(kernel(filter_gradient(forward))) == 2
    assert launches_inside(kernel(filter_gradient(filtered(channels=64, filters=64, groups=64)))) == 3


@pytest.mark.parametrize(("channels", "groups", "cleared"), [(64, 1, True), (64, 64, False), (64, 4, True)])
def test_narrow_groups_run_on_a_direct_kernel_that_clears_nothing(channels: int, groups: int, cleared: bool) -> None:
    call = replace(kernel(filtered(channels=channels, filters=64, groups=groups)), kind=KernelKind.CONVOLUTION)
    assert clears_first(call) is cleared


def filtered(*, channels: int, filters: int, groups: int) -> Convolution:
    """3 x 3 filters over 64 images of 64 x 64 pixels, as cuDNN is asked for them."""
    return Convolution(
        batch=64, in_channels=channels, out_channels=filters, in_spatial=(64, 64), out_spatial=(64, 64), kernel=(3, 3),
        strides=(1, 1), padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1), feature_groups=groups,
        batch_groups=1, macs=64 * 64 * 64 * 9 * filters * channels // groups, lhs_dtype="f32", rhs_dtype="f32",
        out_dtype="f32", layout="b01f,o01i->b01f", precision="DEFAULT",
    )  # fmt: skip
