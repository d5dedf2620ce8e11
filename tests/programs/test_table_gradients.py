"""Gradients of tables, eager and compiled: how many kernels, and that few rows take no longer than many."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

import meshcast
from meshcast.jobs import predict
from meshcast.options import Options
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.eager.table_gradients import compiled_gradient
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.launches.recorded_program import program_text
from meshcast.programs.pytorch.recording.calls import AtenOp
from tests.programs.recordings import call, dense, recording

BF16 = "bfloat16"


def gradient(indices: int, rows: int, width: int = 256, dtype: str = BF16) -> AtenOp:
    values, at = dense(0, indices, width, dtype=dtype), dense(1, indices, dtype="int64")
    return call("embedding_dense_backward", (values, at), (dense(2, rows, width, dtype=dtype),), phase="backward")


def kinds(launches: list[Launch]) -> Counter[str]:
    return Counter(launch.name for launch in launches)


def test_few_indices_are_one_kernel_that_goes_through_them() -> None:
    zeros, added = eager_launches(gradient(2048, 151936, 1024))
    assert zeros.name == "fill"
    bytes_ = 2 * 2048 * 1024 * 2
    assert added.extra + bytes_ / 4.2e12 == pytest.approx(2048 * 46e-9)


def test_many_indices_are_sorted_by_all_their_bits() -> None:
    found = kinds(eager_launches(gradient(8192, 30522)))
    assert found["radix_sort_onesweep"] == 8
    assert found["sum_and_scatter"] == 1
    # Two kinds of token: an index has hundreds of parts, which atomics add up.
    few = kinds(eager_launches(gradient(8192, 2)))
    assert (few["partial_to_segment_idx"], few["sum_and_scatter"]) == (1, 0)


def test_values_added_at_indices_are_sorted_by_the_bits_of_their_rows() -> None:
    at = dense(1, 2401, dtype="int64")
    op = call("index_put", (dense(2, 169, 12), at, dense(0, 2401, 12)), (dense(2, 169, 12),), accumulate=True)
    assert kinds(eager_launches(op))["radix_sort_onesweep"] == 1


@pytest.mark.parametrize(("dtype", "kernels"), [("float32", 2), (BF16, 3)])
def test_inductor_adds_by_atomics_in_fp32(dtype: str, kernels: int) -> None:
    numbers = count(100)
    made = list(compiled_gradient(gradient(8192, 2, dtype=dtype), place=7, storage=lambda: next(numbers)))
    assert len(made) == kernels
    assert made[1].gives[0].dtype == "float32"
    assert {launch.op for launch in made} == {7}


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_few_rows_in_half_precision_are_no_chain_of_atomics(compiled: bool) -> None:
    """A table of two kinds of token, 8,192 times (BERT in bf16): well below a millisecond, not 18."""
    op = gradient(8192, 2, 768)
    step = recording(op, held={0: "input", 1: "input"}, returned=op.gives)
    program = meshcast.load(program_text(step, compiled=compiled).encode())
    found = predict(program, Options(on="h200", levers=False, host="off"))
    assert found.step_time_s is not None
    assert found.step_time_s < 1e-3
