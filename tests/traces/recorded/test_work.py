"""What operators move, by hand."""

from __future__ import annotations

from meshcast.traces.recorded.operators import Operator
from meshcast.traces.recorded.work import work_of

FLOAT, LONG = "Tensor(float)", "Tensor(long int)"


def _tensor(elements: int, each: int) -> list[object]:
    return [1, 2, 0, elements, each, "cuda:0"]


def test_a_look_up_reads_the_rows_that_come_out() -> None:
    operator = Operator(
        number=1, name="aten::embedding", parent=0, record=0, thread=0, values=[_tensor(10**9, 4), _tensor(100, 8)],
        shapes=[[10**6, 1000], [100]], types=[FLOAT, LONG], out_values=[_tensor(100_000, 4)], out_shapes=[[100, 1000]],
        out_types=[FLOAT],
    )  # fmt: skip
    flops, matrix, moved, dtype = work_of(operator)
    assert (flops, matrix, dtype) == (100_000, 0, "f32")
    assert moved == 100 * 8 + 400_000 + 400_000


def test_a_fused_look_up_reads_a_row_an_index() -> None:
    """384 sums of two indices each: rows twice as many as come out; state is none of a look-up's."""
    operator = Operator(
        number=1, name="fbgemm::split_embedding_codegen_lookup_adagrad_function", parent=0, record=0, thread=0,
        values=[_tensor(10**9, 4), _tensor(768, 8), _tensor(385, 8), _tensor(10**9, 4)], shapes=[[10**9], [768], [385], [10**9]],
        types=[FLOAT, LONG, LONG, FLOAT], out_values=[_tensor(6144, 4)], out_shapes=[[128, 48]], out_types=[FLOAT],
    )  # fmt: skip
    assert work_of(operator)[2] == (768 + 385) * 8 + 2 * 6144 * 4 + 6144 * 4


def test_places_and_beginnings_may_be_of_several_types() -> None:
    """Eight sums of three indices each, indices of 8 bytes and beginnings of 4."""
    operator = Operator(
        number=1, name="aten::embedding_bag", parent=0, record=0, thread=0,
        values=[_tensor(10**6, 4), _tensor(24, 8), _tensor(8, 4)], shapes=[[1000, 1000], [24], [8]],
        types=[FLOAT, LONG, "Tensor(int)"], out_values=[_tensor(8000, 4)], out_shapes=[[8, 1000]], out_types=[FLOAT],
    )  # fmt: skip
    assert work_of(operator)[2] == 24 * 8 + 8 * 4 + 3 * 8000 * 4 + 8000 * 4


def test_others_move_their_tensors() -> None:
    operator = Operator(
        number=1, name="aten::add", parent=0, record=0, thread=0, values=[_tensor(64, 4), _tensor(64, 4), 1],
        shapes=[[64], [64], []], types=[FLOAT, FLOAT, "Int"], out_values=[_tensor(64, 4)], out_shapes=[[64]], out_types=[FLOAT],
    )  # fmt: skip
    assert work_of(operator)[2] == 3 * 256
