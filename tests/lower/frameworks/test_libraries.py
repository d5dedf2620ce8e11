"""Kernels of frameworks: rows that PyTorch adds up in the order of their indices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.gpu.estimator import GpuAnalytical
from meshcast.hardware import load_device
from meshcast.lower.frameworks.libraries import with_libraries
from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.workload import Indexed, Tensor

ROWS = Indexed(table=Tensor((2, 1024), "bf16"), slice_shape=(1, 1024), count=8192)
MOVED = 8192 * 1024 * 2
SCATTER = replace(
    Kernel(name="scatter:scatter", kind=KernelKind.SCATTER, dtype="bf16"),
    geometry=ROWS,
    read_bytes=MOVED,
    written_bytes=ROWS.table.bytes,
    vector_flops=float(MOVED // 2),
)


def block(*steps: Step) -> Schedule:
    return Schedule(inputs=(), outputs=(), steps=steps)


def eager(step: Step) -> Step:
    (found,) = with_libraries(block(step), attention="flash-2", padded=False, in_order=True).steps
    return found


def seconds(kernel: Step) -> float:
    assert isinstance(kernel, Kernel)
    return float(GpuAnalytical().estimate([kernel], load_device("a100-sxm-80gb")).time[0])


def test_two_rows_are_not_compared_and_swapped_by_pytorch() -> None:
    """8,192 gradients of BERT's two kinds of tokens: tens of milliseconds by XLA's scatter, a fraction of one sorted."""
    assert seconds(SCATTER) > 10e-3
    assert seconds(eager(SCATTER)) < 0.5e-3


def test_inside_loops_too() -> None:
    loop = eager(LoopStep(label="while", body=block(SCATTER), trips=2, reads=(), writes=()))
    assert isinstance(loop, LoopStep)
    assert loop.body == block(eager(SCATTER))


@pytest.mark.parametrize(
    "shape", [replace(ROWS, unique=True), replace(ROWS, extremum=True), replace(ROWS, table=Tensor((2, 1024), "f32"))]
)
def test_what_is_not_added_up_in_two_bytes_stays(shape: Indexed) -> None:
    kernel = replace(SCATTER, geometry=shape)
    assert eager(kernel) == kernel


def test_a_compilers_scatters_stay() -> None:
    assert with_libraries(block(SCATTER), attention="cudnn", padded=True) == block(SCATTER)
