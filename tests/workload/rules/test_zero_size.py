"""Tensors without elements: every rule gives a cost, without work where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest

from meshcast.workload.graph import Cost, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules import RULES, convolution, elementwise

CostOf = Callable[..., Cost]


class Case(NamedTuple):
    """An op with zero-size operands, as `cost_of` takes it."""

    operands: list[str]
    results: list[str]
    attributes: str = ""
    region: str = ""


def _body(op: str = "add") -> str:
    return (
        f"({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.{op} %x, %y : tensor<f32>\n"
        '"stablehlo.return"(%z) : (tensor<f32>) -> () })'
    )


_LESS = """({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.compare LT, %x, %y :
(tensor<f32>, tensor<f32>) -> tensor<i1>
"stablehlo.return"(%z) : (tensor<i1>) -> () })"""
_SCAN = """({ ^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>): %z = stablehlo.add %x, %y : tensor<8xf32>
"stablehlo.return"(%z, %z) : (tensor<8xf32>, tensor<8xf32>) -> () })"""
_E, _F, _S, _I = "tensor<0x8xf32>", "tensor<8xf32>", "tensor<f32>", "tensor<i32>"
_DOT = (
    "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], "
    "lhs_batching_dimensions = [], rhs_batching_dimensions = []>"
)
_CONV = (
    "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64, "
    "batch_group_count = 1 : i64"
)
_NORM = "epsilon = 0.1 : f32, feature_index = 1 : i64"
_GATHER = (
    "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
    "index_vector_dim = 1>"
)
_SCATTER = (
    "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
    "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
)
_WINDOW = "window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>"
_SEGMENTS = "operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>"

# No result has an element: no work, and no bytes, though weights and indices may have some.
EMPTY = {
    "chlo.constant": Case([], [_E], "value = dense<0.0> : tensor<0x8xf32>"),
    "chlo.constant_like": Case([_E], [_E], "value = 1.0 : f32"),
    "chlo.ragged_dot": Case(
        [_E, "tensor<3x8x5xf32>", "tensor<3xi64>"],
        ["tensor<0x5xf32>"],
        "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], "
        "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>",
    ),
    "chlo.top_k": Case(["tensor<0x9xf32>"], [_E, "tensor<0x8xi32>"], "k = 8 : i64"),
    "stablehlo.batch_norm_inference": Case([_E, _F, _F, _F, _F], [_E], _NORM),
    "stablehlo.bitcast_convert": Case(["tensor<0x8x2xf32>"], ["tensor<0x8xf64>"]),
    "stablehlo.broadcast": Case([_F], [_E], "broadcast_sizes = array<i64: 0>"),
    "stablehlo.broadcast_in_dim": Case([_F], [_E], "broadcast_dimensions = array<i64: 1>"),
    "stablehlo.cholesky": Case(["tensor<0x8x8xf32>"], ["tensor<0x8x8xf32>"], "lower = true"),
    "stablehlo.concatenate": Case([_E, _E], [_E], "dimension = 0 : i64"),
    "stablehlo.constant": Case([], [_E], "value = dense<0.0> : tensor<0x8xf32>"),
    "stablehlo.convolution": Case(["tensor<0x8x3xf32>", "tensor<3x3x16xf32>"], ["tensor<0x6x16xf32>"], _CONV),
    "stablehlo.dot": Case([_E, "tensor<8x4xf32>"], ["tensor<0x4xf32>"]),
    "stablehlo.dot_general": Case([_E, "tensor<8x4xf32>"], ["tensor<0x4xf32>"], _DOT),
    "stablehlo.dynamic_broadcast_in_dim": Case([_F, "tensor<2xi32>"], [_E], "broadcast_dimensions = array<i64: 1>"),
    "stablehlo.dynamic_conv": Case(
        ["tensor<0x8x3xf32>", "tensor<3x3x16xf32>", "tensor<1x2xi64>"], ["tensor<0x6x16xf32>"], _CONV
    ),
    "stablehlo.dynamic_gather": Case(["tensor<9x8xf32>", "tensor<0x1xi32>", "tensor<2xi32>"], [_E], _GATHER),
    "stablehlo.dynamic_iota": Case(["tensor<2xi32>"], [_E], "iota_dimension = 0 : i64"),
    "stablehlo.dynamic_pad": Case([_E, _S, "tensor<2xi32>", "tensor<2xi32>", "tensor<2xi32>"], [_E]),
    "stablehlo.dynamic_reshape": Case([_E, "tensor<1xi32>"], ["tensor<0xf32>"]),
    "stablehlo.dynamic_slice": Case(["tensor<9x8xf32>", _I, _I], [_E], "slice_sizes = array<i64: 0, 8>"),
    "stablehlo.dynamic_update_slice": Case([_E, _E, _I, _I], [_E]),
    "stablehlo.einsum": Case([_E, "tensor<8x4xf32>"], ["tensor<0x4xf32>"], 'einsum_config = "ij,jk->ik"'),
    "stablehlo.fft": Case(
        ["tensor<0x8xcomplex<f32>>"],
        ["tensor<0x8xcomplex<f32>>"],
        "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 8>",
    ),
    "stablehlo.gather": Case(
        ["tensor<9x8xf32>", "tensor<0x1xi32>"], [_E], _GATHER + ", slice_sizes = array<i64: 1, 8>"
    ),
    "stablehlo.iota": Case([], [_E], "iota_dimension = 0 : i64"),
    "stablehlo.map": Case([_E, _E], [_E], "dimensions = array<i64: 0, 1>", _body("power")),
    "stablehlo.optimization_barrier": Case([_E], [_E]),
    "stablehlo.pad": Case(
        [_E, _S],
        [_E],
        "edge_padding_low = array<i64: 0, 0>, edge_padding_high = array<i64: 0, 0>, "
        "interior_padding = array<i64: 0, 0>",
    ),
    "stablehlo.real_dynamic_slice": Case(["tensor<9x8xf32>", *["tensor<2xi32>"] * 3], [_E]),
    "stablehlo.reshape": Case([_E], ["tensor<0xf32>"]),
    "stablehlo.reverse": Case([_E], [_E], "dimensions = array<i64: 0>"),
    "stablehlo.rng": Case([_S, _S, "tensor<2xi64>"], [_E], "rng_distribution = #stablehlo<rng_distribution NORMAL>"),
    "stablehlo.reduce": Case([_E, _S], ["tensor<0xf32>"], "dimensions = array<i64: 1>", _body()),
    "stablehlo.reduce_window": Case([_E, _S], ["tensor<0x4xf32>"], _WINDOW, _body()),
    "stablehlo.scatter": Case([_E, "tensor<3x1xi32>", "tensor<3x8xf32>"], [_E], _SCATTER, _body()),
    "stablehlo.select_and_scatter": Case(
        [_E, "tensor<0x4xf32>", _S], [_E], _WINDOW, f"({_LESS[1:-1]}, {_body()[1:-1]})"
    ),
    "stablehlo.set_dimension_size": Case([_E, _I], [_E], "dimension = 1 : i64"),
    "stablehlo.slice": Case(
        ["tensor<9x8xf32>"],
        [_E],
        "start_indices = array<i64: 3, 0>, limit_indices = array<i64: 3, 8>, strides = array<i64: 1, 1>",
    ),
    "stablehlo.sort": Case([_E], [_E], "dimension = 0 : i64, is_stable = true", _LESS),
    "stablehlo.torch_index_select": Case(
        ["tensor<9x8xf32>", "tensor<0xi32>"], [_E], "dim = 0 : i64, batch_dims = 0 : i64"
    ),
    "stablehlo.transpose": Case([_E], ["tensor<8x0xf32>"], "permutation = array<i64: 1, 0>"),
    "stablehlo.triangular_solve": Case(
        ["tensor<0x8x8xf32>", "tensor<0x8x5xf32>"],
        ["tensor<0x8x5xf32>"],
        "left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
    ),
    "stablehlo.unary_einsum": Case([_E], ["tensor<0xf32>"], 'einsum_config = "ij->i"'),
}
# Nothing is computed from, but the results have elements: no work beyond writing them.
FROM_NOTHING = {
    "chlo.scan": Case([_E, _F], [_E, _F], f"dimension = 0 : i64, is_associative = true, {_SEGMENTS}", _SCAN),
    "stablehlo.concatenate": Case([_E, "tensor<2x8xf32>"], ["tensor<2x8xf32>"], "dimension = 0 : i64"),
    "stablehlo.convolution": Case(
        ["tensor<2x0x3xf32>", "tensor<3x3x16xf32>"],
        ["tensor<2x2x16xf32>"],
        _CONV + ", padding = dense<[[2, 2]]> : tensor<1x2xi64>",
    ),
    "stablehlo.dot_general": Case(["tensor<8x0xf32>", "tensor<0x4xf32>"], ["tensor<8x4xf32>"], _DOT),
    "stablehlo.get_dimension_size": Case([_E], [_I], "dimension = 0 : i64"),
    "stablehlo.pad": Case(
        [_E, _S],
        ["tensor<2x8xf32>"],
        "edge_padding_low = array<i64: 2, 0>, edge_padding_high = array<i64: 0, 0>, "
        "interior_padding = array<i64: 0, 0>",
    ),
    "stablehlo.reduce": Case([_E, _S], [_F], "dimensions = array<i64: 0>", _body()),
    "stablehlo.rng_bit_generator": Case(
        ["tensor<2xui64>"],
        ["tensor<2xui64>", "tensor<0x8xui32>"],
        "rng_algorithm = #stablehlo<rng_algorithm PHILOX>",
    ),
    "stablehlo.scatter": Case(["tensor<9x8xf32>", "tensor<0x1xi32>", _E], ["tensor<9x8xf32>"], _SCATTER, _body()),
    "stablehlo.unary_einsum": Case([_E], [_F], 'einsum_config = "ij->j"'),
}
# One value a feature, whatever the batch: two statistics to write, a root each.
PER_FEATURE = {
    "stablehlo.batch_norm_training": Case([_E, _F, _F], [_E, _F, _F], _NORM),
    "stablehlo.batch_norm_grad": Case([_E, _F, _F, _F, _E], [_E, _F, _F], _NORM),
}
# Tokens, tuples and ids: nothing that could be empty.
WITHOUT_SHAPES = {
    f"stablehlo.{name}"
    for name in (
        "after_all", "create_token", "get_tuple_element", "infeed", "outfeed", "partition_id", "replica_id", "tuple",
    )
}  # fmt: skip


def _is_free(cost: Cost) -> bool:
    return not (cost.matrix_flops or cost.vector_flops or cost.transcendentals)


def test_every_rule_is_tried() -> None:
    tried = EMPTY.keys() | FROM_NOTHING.keys() | PER_FEATURE.keys() | WITHOUT_SHAPES
    assert RULES.keys() - tried == elementwise.WEIGHTS.keys()


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_empty_results_cost_nothing(name: str, cost_of: CostOf) -> None:
    case = EMPTY[name]
    cost = cost_of(name, *case)
    assert _is_free(cost)
    assert cost.operand_bytes == (0,) * len(case.operands)
    assert cost.written_bytes == 0


@pytest.mark.parametrize("name", sorted(FROM_NOTHING))
def test_results_from_nothing_take_no_work(name: str, cost_of: CostOf) -> None:
    cost = cost_of(name, *FROM_NOTHING[name])
    assert _is_free(cost)
    assert all(count >= 0 for count in (*cost.operand_bytes, cost.written_bytes))


@pytest.mark.parametrize("name", sorted(PER_FEATURE))
def test_statistics_of_nothing(name: str, cost_of: CostOf) -> None:
    cost = cost_of(name, *PER_FEATURE[name])
    assert (cost.vector_flops, cost.transcendentals, cost.written_bytes) == (0, 8, 2 * 8 * 4)


@pytest.mark.parametrize("name", sorted(elementwise.WEIGHTS))
def test_elementwise(name: str) -> None:
    empty = Tensor((0, 128), "bf16")
    cost = RULES[name](OpReading(name=name, operands=(empty,) * 3, results=(empty,), op=None))
    assert _is_free(cost)
    assert (cost.operand_bytes, cost.written_bytes) == ((0, 0, 0), 0)


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("pad_low", [-2, 0, 3])
def test_convolution_positions_of_empty_dimensions(size: int, pad_low: int) -> None:
    def count(**sizes: int) -> int:
        return convolution.valid_positions(
            **{"size": size, "out": 4, "kernel": 3, **sizes}, stride=2, pad_low=pad_low, lhs_dilation=2, rhs_dilation=1
        )

    assert count(size=0) == count(out=0) == count(kernel=0) == 0
    assert math.isfinite(count())
