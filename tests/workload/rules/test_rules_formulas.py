"""Costs of single ops against formulas worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshcast.workload.graph import Convolution, Cost, Gemm, Indexed, OpKind, Reduction, Tensor
from meshcast.workload.shapes import SortGeometry, Window

CostOf = Callable[..., Cost]


def _body(op: str, kind: str = "f32") -> str:
    scalar = f"tensor<{kind}>"
    return (
        f"({{ ^bb0(%x: {scalar}, %y: {scalar}): %z = stablehlo.{op} %x, %y : {scalar}\n"
        f'"stablehlo.return"(%z) : ({scalar}) -> () }})'
    )


_LESS = """({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.compare LT, %x, %y :
(tensor<f32>, tensor<f32>) -> tensor<i1>
"stablehlo.return"(%z) : (tensor<i1>) -> () })"""


# Elementwise.


def test_elementwise_counts_one_flop_per_element_and_all_bytes(cost_of: CostOf) -> None:
    cost = cost_of("stablehlo.add", ["tensor<4x8xbf16>"] * 2, ["tensor<4x8xbf16>"])
    assert cost == Cost(
        kind=OpKind.ELEMENTWISE, dtype="bf16", vector_flops=32.0, operand_bytes=(64, 64), written_bytes=64
    )


def test_transcendentals_are_counted_apart(cost_of: CostOf) -> None:
    cost = cost_of("stablehlo.tanh", ["tensor<4x8xf32>"], ["tensor<4x8xf32>"])
    assert (cost.vector_flops, cost.transcendentals) == (0, 32)


def test_compare_works_at_the_operands_type(cost_of: CostOf) -> None:
    direction = "comparison_direction = #stablehlo<comparison_direction LT>"
    cost = cost_of("stablehlo.compare", ["tensor<8xbf16>"] * 2, ["tensor<8xi1>"], direction)
    assert (cost.dtype, cost.written_bytes) == ("bf16", 8)


def test_complex_arithmetic_is_counted_in_real_flops(cost_of: CostOf) -> None:
    kind = "tensor<10xcomplex<f32>>"
    assert cost_of("stablehlo.add", [kind] * 2, [kind]).vector_flops == 20
    assert cost_of("stablehlo.multiply", [kind] * 2, [kind]).vector_flops == 60
    assert cost_of("stablehlo.abs", [kind], ["tensor<10xf32>"]).transcendentals == 10


def test_conversion_to_the_same_type_is_free(cost_of: CostOf) -> None:
    assert cost_of("stablehlo.convert", ["tensor<8xf32>"], ["tensor<8xf32>"]).kind is OpKind.VIEW
    assert cost_of("stablehlo.convert", ["tensor<8xf32>"], ["tensor<8xbf16>"]).vector_flops == 8


# Matrix products.


def _dot_dims(lhs: str, rhs: str, batch: str = "") -> str:
    return (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{batch}], rhs_batching_dimensions = "
        f"[{batch}], lhs_contracting_dimensions = [{lhs}], rhs_contracting_dimensions = [{rhs}]>"
    )


def test_batched_dot(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.dot_general",
        ["tensor<3x16x32xbf16>", "tensor<3x32x64xbf16>"],
        ["tensor<3x16x64xf32>"],
        _dot_dims("2", "1", "0"),
    )
    assert cost.matrix_flops == 2 * 3 * 16 * 32 * 64
    assert cost.dtype == "bf16"
    assert cost.geometry == Gemm(
        batch=3, m=16, n=64, k=32, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="f32",
        lhs_contracting_minor=True, rhs_contracting_minor=False,
    )  # fmt: skip


def test_dot_of_mixed_types_runs_at_the_wider_one_and_integers_at_their_own(cost_of: CostOf) -> None:
    operands = ["tensor<4x8xf8E4M3FN>", "tensor<8x4xbf16>"]
    assert cost_of("stablehlo.dot_general", operands, ["tensor<4x4xf32>"], _dot_dims("1", "0")).dtype == "bf16"
    operands = ["tensor<4x8xi8>", "tensor<8x4xi8>"]
    assert cost_of("stablehlo.dot_general", operands, ["tensor<4x4xi32>"], _dot_dims("1", "0")).dtype == "i8"


def test_dot_precision_is_the_highest_asked_or_the_algorithm(cost_of: CostOf) -> None:
    operands, results = ["tensor<4x8xf32>", "tensor<8x4xf32>"], ["tensor<4x4xf32>"]
    asked = ", precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGHEST>]"
    cost = cost_of("stablehlo.dot_general", operands, results, _dot_dims("1", "0") + asked)
    assert isinstance(cost.geometry, Gemm)
    assert cost.geometry.precision == "HIGHEST"
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, "
        "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
        "allow_imprecise_accumulation = false>"
    )
    cost = cost_of("stablehlo.dot_general", operands, results, _dot_dims("1", "0") + algorithm)
    assert isinstance(cost.geometry, Gemm)
    assert cost.geometry.precision == "BF16_BF16_F32_X3"


def test_matrix_vector_and_outer_products(cost_of: CostOf) -> None:
    gemv = cost_of("stablehlo.dot", ["tensor<16x32xf32>", "tensor<32xf32>"], ["tensor<16xf32>"])
    assert gemv.matrix_flops == 2 * 16 * 32
    outer = cost_of(
        "stablehlo.dot_general", ["tensor<16xf32>", "tensor<8xf32>"], ["tensor<16x8xf32>"], _dot_dims("", "")
    )
    assert outer.matrix_flops == 2 * 16 * 8
    assert isinstance(outer.geometry, Gemm)
    assert (outer.geometry.m, outer.geometry.n, outer.geometry.k) == (16, 8, 1)


def test_einsum_and_unary_einsum(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.einsum",
        ["tensor<2x4x8xf32>", "tensor<2x8x5xf32>"],
        ["tensor<2x4x5xf32>"],
        'einsum_config = "bij,bjk->bik"',
    )
    assert cost.matrix_flops == 2 * 2 * 4 * 8 * 5
    cost = cost_of("stablehlo.unary_einsum", ["tensor<10x8xf32>"], ["tensor<8xf32>"], 'einsum_config = "ij->j"')
    assert (cost.kind, cost.vector_flops) == (OpKind.REDUCE, 72)


def test_ragged_dot_is_one_dense_gemm_over_all_groups(cost_of: CostOf) -> None:
    cost = cost_of(
        "chlo.ragged_dot",
        ["tensor<10x8xf32>", "tensor<3x8x5xf32>", "tensor<3xi64>"],
        ["tensor<10x5xf32>"],
        "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], "
        "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, "
        "precision_config = [#chlo<precision HIGH>, #chlo<precision DEFAULT>]",
    )
    assert cost.matrix_flops == 2 * 10 * 8 * 5
    assert isinstance(cost.geometry, Gemm)
    assert (cost.geometry.groups, cost.geometry.n, cost.geometry.precision) == (3, 5, "HIGH")


# Convolutions.


def _conv(labels: str, window: str = "", groups: int = 1, batch_groups: int = 1) -> str:
    return (
        f"dimension_numbers = #stablehlo.conv<{labels}>, feature_group_count = {groups} : i64, "
        f"batch_group_count = {batch_groups} : i64" + (f", {window}" if window else "")
    )


def test_convolution_leaves_out_the_padding(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.convolution",
        ["tensor<2x8x8x3xbf16>", "tensor<3x3x3x16xbf16>"],
        ["tensor<2x4x4x16xbf16>"],
        _conv(
            "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
            "window_strides = array<i64: 2, 2>, padding = dense<[[1, 1], [1, 1]]> : tensor<2x2xi64>",
        ),
    )
    # Outputs 0..3 look at inputs 2o-1..2o+1: eleven of the twelve taps are real.
    assert cost.matrix_flops == 2 * 2 * 16 * 3 * 11 * 11
    assert isinstance(cost.geometry, Convolution)
    assert cost.geometry.layout == "b01f,01io->b01f"
    assert cost.geometry.padding == ((1, 1), (1, 1))


def test_convolution_with_dilations_and_negative_padding(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.convolution",
        ["tensor<1x1x5xf32>", "tensor<1x1x3xf32>"],
        ["tensor<1x1x4xf32>"],
        _conv(
            "[b, f, 0]x[o, i, 0]->[b, f, 0]",
            "lhs_dilation = array<i64: 2>, rhs_dilation = array<i64: 2>, padding = dense<[[-1, 0]]> : tensor<1x2xi64>",
        ),
    )
    # The dilated input has 9 positions, 8 after the crop; tap t of output o looks at 1 + o + 2t, real when even.
    real = sum((1 + o + 2 * t) % 2 == 0 and 1 + o + 2 * t <= 8 for o in range(4) for t in range(3))
    assert cost.matrix_flops == 2 * real


def test_grouped_convolutions(cost_of: CostOf) -> None:
    depthwise = cost_of(
        "stablehlo.convolution",
        ["tensor<2x8x16xf32>", "tensor<3x1x16xf32>"],
        ["tensor<2x6x16xf32>"],
        _conv("[b, 0, f]x[0, i, o]->[b, 0, f]", groups=16),
    )
    assert depthwise.matrix_flops == 2 * 2 * 16 * 1 * 18
    assert isinstance(depthwise.geometry, Convolution)
    assert depthwise.geometry.feature_groups == 16
    by_batch = cost_of(
        "stablehlo.convolution",
        ["tensor<4x8x6xf32>", "tensor<3x6x10xf32>"],
        ["tensor<2x6x10xf32>"],
        _conv("[b, 0, f]x[0, i, o]->[b, 0, f]", batch_groups=2),
    )
    assert by_batch.matrix_flops == 2 * 2 * 10 * 6 * 18
    assert isinstance(by_batch.geometry, Convolution)
    assert by_batch.geometry.batch_groups == 2


def test_a_sharded_depthwise_convolution_keeps_its_share_of_the_groups(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.convolution",
        ["tensor<2x8x16xf32>", "tensor<3x1x16xf32>"],
        ["tensor<2x6x16xf32>"],
        _conv("[b, 0, f]x[0, i, o]->[b, 0, f]", groups=16),
        local={
            "tensor<2x8x16xf32>": Tensor((2, 8, 4), "f32"),
            "tensor<3x1x16xf32>": Tensor((3, 1, 4), "f32"),
            "tensor<2x6x16xf32>": Tensor((2, 6, 4), "f32"),
        },
    )
    assert cost.matrix_flops == 2 * 2 * 4 * 18
    assert isinstance(cost.geometry, Convolution)
    assert cost.geometry.feature_groups == 4


def test_dynamic_convolution_reads_its_padding_or_infers_it(costs_of: Callable[..., list[tuple[str, Cost]]]) -> None:
    kinds = "(tensor<1x1x8xf32>, tensor<1x1x3xf32>, tensor<1x2xi64>) -> tensor<1x1x8xf32>"
    labels = _conv("[b, f, 0]x[o, i, 0]->[b, f, 0]")
    arguments = "%a: tensor<1x1x8xf32>, %b: tensor<1x1x3xf32>"
    given = f"""func.func @main({arguments}) {{
      %p = stablehlo.constant dense<[[2, 0]]> : tensor<1x2xi64>
      %0 = "stablehlo.dynamic_conv"(%a, %b, %p) {{{labels}}} : {kinds}
      return }}"""
    assert costs_of(given)[-1][1].matrix_flops == 2 * (8 + 7 + 6)
    unknown = f"""func.func @main({arguments}, %p: tensor<1x2xi64>) {{
      %0 = "stablehlo.dynamic_conv"(%a, %b, %p) {{{labels}}} : {kinds}
      return }}"""
    assert costs_of(unknown)[-1][1].matrix_flops == 2 * (7 + 8 + 7)


# Reductions.


def test_reduce_applies_its_body_once_per_element_it_removes(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.reduce",
        ["tensor<4x8xf32>", "tensor<f32>"],
        ["tensor<4xf32>"],
        "dimensions = array<i64: 1>",
        _body("add"),
    )
    assert (cost.kind, cost.vector_flops, cost.written_bytes) == (OpKind.REDUCE, 28, 16)
    assert cost.geometry == Reduction(shape=(4, 8), dims=(1,))


def test_reduce_counts_every_op_of_its_body_and_follows_calls(costs_of: Callable[..., list[tuple[str, Cost]]]) -> None:
    text = """
    func.func @main(%a: tensor<8xf32>, %i: tensor<f32>) {
      %0 = "stablehlo.reduce"(%a, %i) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %e = stablehlo.exponential %x : tensor<f32>
        %s = func.call @twice(%e) : (tensor<f32>) -> tensor<f32>
        %r = stablehlo.add %s, %y : tensor<f32>
        "stablehlo.return"(%r) : (tensor<f32>) -> () })
        {dimensions = array<i64: 0>} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
      return
    }
    func.func @twice(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.add %x, %x : tensor<f32>
      return %0 : tensor<f32>
    }"""
    _, cost = costs_of(text)[-1]
    assert (cost.vector_flops, cost.transcendentals) == (14, 7)


def test_reduce_window_and_its_backward_pass(cost_of: CostOf) -> None:
    window = "window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>"
    pool = cost_of(
        "stablehlo.reduce_window", ["tensor<10x8xf32>", "tensor<f32>"], ["tensor<5x4xf32>"], window, _body("maximum")
    )
    assert pool.vector_flops == 20 * 3
    assert pool.geometry == Window(shape=(10, 8), window=(2, 2), strides=(2, 2))
    back = cost_of(
        "stablehlo.select_and_scatter",
        ["tensor<10x8xf32>", "tensor<5x4xf32>", "tensor<f32>"],
        ["tensor<10x8xf32>"],
        window,
        f"({_LESS[1:-1]}, {_body('add')[1:-1]})",
    )
    assert back.vector_flops == 20 * 3 + 20


@pytest.mark.parametrize("slices", [False, True])
def test_scan_counts_per_element_whatever_its_body_is_written_on(slices: bool, cost_of: CostOf) -> None:
    operand, carry = ("tensor<16x4xf32>", "tensor<4xf32>") if slices else ("tensor<64xf32>", "tensor<f32>")
    body = f"""({{ ^bb0(%x: {carry}, %y: {carry}): %z = stablehlo.add %x, %y : {carry}
      "stablehlo.return"(%z, %z) : ({carry}, {carry}) -> () }})"""
    cost = cost_of(
        "chlo.scan",
        [operand, carry],
        [operand, carry],
        "dimension = 0 : i64, is_associative = true, operandSegmentSizes = array<i32: 1, 1>, "
        "resultSegmentSizes = array<i32: 1, 1>",
        body,
    )
    assert (cost.kind, cost.vector_flops) == (OpKind.SCAN, 64)


def test_map_runs_its_body_on_every_element(cost_of: CostOf) -> None:
    kind = "tensor<4x8xf32>"
    cost = cost_of("stablehlo.map", [kind] * 2, [kind], "dimensions = array<i64: 0, 1>", _body("power"))
    assert (cost.kind, cost.transcendentals) == (OpKind.ELEMENTWISE, 32)


def test_batch_normalisation_reads_its_operand_twice_when_training(cost_of: CostOf) -> None:
    image, feature = "tensor<4x8x8x16xf32>", "tensor<16xf32>"
    settings = "epsilon = 0.1 : f32, feature_index = 3 : i64"
    training = cost_of("stablehlo.batch_norm_training", [image, feature, feature], [image, feature, feature], settings)
    assert training.operand_bytes[0] == 2 * 4 * 4 * 8 * 8 * 16
    assert (training.vector_flops, training.transcendentals) == (7 * 4096, 16)
    inference = cost_of("stablehlo.batch_norm_inference", [image, *[feature] * 4], [image], settings)
    assert (inference.kind, inference.vector_flops) == (OpKind.ELEMENTWISE, 4 * 4096)


# Indexing and movement.


def test_embedding_lookup_reads_rows_and_not_the_table(cost_of: CostOf) -> None:
    attributes = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        "index_vector_dim = 1>, slice_sizes = array<i64: 1, 64>, indices_are_sorted = true"
    )
    operands, results = ["tensor<50000x64xbf16>", "tensor<7x1xi32>"], ["tensor<7x64xbf16>"]
    cost = cost_of("stablehlo.gather", operands, results, attributes)
    assert (cost.operand_bytes, cost.written_bytes, cost.vector_flops) == ((7 * 64 * 2, 28), 7 * 64 * 2, 0)
    assert cost.geometry == Indexed(table=Tensor((50000, 64), "bf16"), slice_shape=(1, 64), count=7, is_sorted=True)
    # A quarter of the columns on each device: the slice is what the shard has.
    local = {operands[0]: Tensor((50000, 16), "bf16"), results[0]: Tensor((7, 16), "bf16")}
    cost = cost_of("stablehlo.gather", operands, results, attributes, local=local)
    assert isinstance(cost.geometry, Indexed)
    assert (cost.geometry.slice_shape, cost.geometry.count) == ((1, 16), 7)


def test_gather_with_batching_dimensions(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.gather",
        ["tensor<5x100x16xf32>", "tensor<5x3x1xi32>"],
        ["tensor<5x3x16xf32>"],
        "dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = "
        "[0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, "
        "slice_sizes = array<i64: 1, 1, 16>",
    )
    assert isinstance(cost.geometry, Indexed)
    assert (cost.geometry.slice_shape, cost.geometry.count) == ((1, 1, 16), 15)


def test_scatter_touches_what_the_updates_fall_on(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.scatter",
        ["tensor<1000x8xf32>", "tensor<3x1xi32>", "tensor<3x8xf32>"],
        ["tensor<1000x8xf32>"],
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true",
        _body("add"),
    )
    assert (cost.operand_bytes, cost.written_bytes, cost.vector_flops) == ((96, 12, 96), 96, 24)
    assert cost.geometry == Indexed(table=Tensor((1000, 8), "f32"), slice_shape=(1, 8), count=3, unique=True)


def test_scatter_with_batching_dimensions_and_overwriting_body(cost_of: CostOf) -> None:
    cost = cost_of(
        "stablehlo.scatter",
        ["tensor<5x100x8xf32>", "tensor<5x3x1xi32>", "tensor<5x3x8xf32>"],
        ["tensor<5x100x8xf32>"],
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [1], "
        "input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], "
        "index_vector_dim = 2>",
        '({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): "stablehlo.return"(%y) : (tensor<f32>) -> () })',
    )
    assert cost.vector_flops == 0
    assert isinstance(cost.geometry, Indexed)
    assert (cost.geometry.slice_shape, cost.geometry.count) == ((1, 1, 8), 15)


def test_slices_and_updates_touch_their_slice_only(cost_of: CostOf) -> None:
    index = "tensor<i32>"
    cut = cost_of(
        "stablehlo.dynamic_slice",
        ["tensor<64x128xf32>", index, index],
        ["tensor<1x128xf32>"],
        "slice_sizes = array<i64: 1, 128>",
    )
    assert (cut.kind, cut.operand_bytes, cut.written_bytes) == (OpKind.SLICE, (512, 4, 4), 512)
    whole = "tensor<64x128xf32>"
    bounds = "start_indices = array<i64: 0, 0>, limit_indices = array<i64: {0}, 128>, strides = array<i64: 1, 1>"
    assert cost_of("stablehlo.slice", [whole], [whole], bounds.format(64)).kind is OpKind.VIEW
    # One row of a shard of one row is still cut out of the whole.
    shard = {whole: Tensor((1, 128), "f32")}
    assert (
        cost_of("stablehlo.slice", [whole], ["tensor<1x128xf32>"], bounds.format(1), local=shard).kind is OpKind.SLICE
    )
    put = cost_of("stablehlo.dynamic_update_slice", [whole, "tensor<1x128xf32>", index, index], [whole])
    assert (put.kind, put.operand_bytes, put.written_bytes) == (OpKind.UPDATE, (0, 512, 4, 4), 512)


def test_movement(cost_of: CostOf) -> None:
    rows = "tensor<4x8xf32>"
    moved = cost_of("stablehlo.transpose", [rows], ["tensor<8x4xf32>"], "permutation = array<i64: 1, 0>")
    assert (moved.kind, moved.operand_bytes, moved.written_bytes) == (OpKind.TRANSPOSE, (128,), 128)
    unmoved = cost_of(
        "stablehlo.transpose", ["tensor<4x1x8xf32>"], ["tensor<4x8x1xf32>"], "permutation = array<i64: 0, 2, 1>"
    )
    assert unmoved.kind is OpKind.VIEW
    spread = cost_of("stablehlo.broadcast_in_dim", ["tensor<8xf32>"], [rows], "broadcast_dimensions = array<i64: 1>")
    assert (spread.kind, spread.operand_bytes, spread.written_bytes) == (OpKind.BROADCAST, (32,), 128)
    renamed = cost_of(
        "stablehlo.broadcast_in_dim", ["tensor<8xf32>"], ["tensor<1x8xf32>"], "broadcast_dimensions = array<i64: 1>"
    )
    assert (renamed.kind, renamed.operand_bytes, renamed.written_bytes) == (OpKind.VIEW, (0,), 0)
    assert cost_of("stablehlo.reshape", [rows], ["tensor<32xf32>"]) == Cost(
        kind=OpKind.VIEW, dtype="f32", operand_bytes=(0,)
    )
    assert cost_of("stablehlo.bitcast_convert", [rows], ["tensor<4x8xi32>"]).kind is OpKind.VIEW
    assert cost_of("stablehlo.bitcast_convert", ["tensor<4x2xf32>"], ["tensor<4xf64>"]).kind is OpKind.MOVE
    counter = cost_of("stablehlo.iota", [], ["tensor<16xi32>"], "iota_dimension = 0 : i64")
    assert (counter.kind, counter.written_bytes) == (OpKind.GENERATE, 64)


# Sorting, linear algebra, transforms, random numbers.


def test_sort(cost_of: CostOf) -> None:
    kind = "tensor<4x1000xf32>"
    cost = cost_of("stablehlo.sort", [kind], [kind], "dimension = 1 : i64, is_stable = true", _LESS)
    assert cost.vector_flops == 4000 * 12
    assert cost.geometry == SortGeometry(length=1000, batch=4, operands=1, stable=True)


def test_top_k(cost_of: CostOf) -> None:
    cost = cost_of("chlo.top_k", ["tensor<4x1000xf32>"], ["tensor<4x8xf32>", "tensor<4x8xi32>"], "k = 8 : i64")
    assert cost.geometry == SortGeometry(length=1000, batch=4, operands=1, top=8)
    assert (cost.vector_flops, cost.written_bytes) == (4000 * 4, 4 * 8 * 8)


def test_fft(cost_of: CostOf) -> None:
    kind = "tensor<4x16x64xcomplex<f32>>"
    one = cost_of("stablehlo.fft", [kind], [kind], "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 64>")
    assert (one.kind, one.vector_flops) == (OpKind.FFT, 8 * 6 * 4096)
    two = cost_of(
        "stablehlo.fft", [kind], [kind], "fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 16, 64>"
    )
    assert two.vector_flops == 8 * (4 + 6) * 4096


def test_factorisations(cost_of: CostOf) -> None:
    kind = "tensor<3x16x16xf32>"
    assert cost_of("stablehlo.cholesky", [kind], [kind], "lower = true").vector_flops == 3 * 16**3 // 3
    solve = cost_of(
        "stablehlo.triangular_solve",
        [kind, "tensor<3x16x5xf32>"],
        ["tensor<3x16x5xf32>"],
        "left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
    )
    assert solve.vector_flops == 2 * 16 * 3 * 16 * 5


def test_random_bits_by_algorithm(cost_of: CostOf) -> None:
    state, bits = "tensor<2xui64>", "tensor<32xui32>"
    for algorithm, per_word in (("THREE_FRY", 60), ("PHILOX", 25), ("DEFAULT", 25)):
        cost = cost_of(
            "stablehlo.rng_bit_generator",
            [state],
            [state, bits],
            f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>",
        )
        assert (cost.kind, cost.vector_flops) == (OpKind.RNG, per_word * 32)
