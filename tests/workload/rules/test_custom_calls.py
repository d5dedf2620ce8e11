"""Custom calls: library kernels back to their geometry, declared costs, and the error for unknown ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.lower import is_filter_gradient
from meshcast.programs import capture
from meshcast.workload import custom_calls, read_workload
from meshcast.workload.custom_calls import register_custom_call
from meshcast.workload.graph import Attention, Convolution, Cost, Gemm, OpKind, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.vendor import without_workspace
from meshcast.workload.shapes import SortGeometry

CostOf = Callable[..., Cost]
Call = Callable[..., Cost]


@pytest.fixture
def call(cost_of: CostOf) -> Call:
    """The cost of a custom call to `target`."""

    def cost(target: str, operands: list[str], results: list[str], config: object = "", more: str = "") -> Cost:
        text = config if isinstance(config, str) else json.dumps(config)
        quoted = text.replace('"', "\\22")
        attributes = f'call_target_name = "{target}", backend_config = "{quoted}"' + (f", {more}" if more else "")
        return cost_of("stablehlo.custom_call", operands, results, attributes)

    return cost


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """An empty registry of the user's rules."""
    rules: dict[str, object] = {}
    monkeypatch.setattr(custom_calls, "_registered", rules)
    return rules


# Attention.


def _fmha(mask: str = "NO_MASK", heads_dim: int = 2, backward: bool = False, window: int = 0) -> dict[str, object]:
    batch = ["0", str(heads_dim)]
    products = {"bmm1_dot_dimension_numbers": {"lhs_batch_dimensions": batch, "rhs_batch_dimensions": batch}}
    if backward:
        products = {"bmm1_grad_gemm1_dot_dimension_numbers": {"rhs_batch_dimensions": batch}}
    return {"cudnn_fmha_backend_config": {"mask_type": mask, "sliding_window_length": window, **products}}


_Q, _KV, _OUT, _STATS = (
    "tensor<2x512x8x64xbf16>",
    "tensor<2x256x4x64xbf16>",
    "tensor<2x8x512x64xbf16>",
    "tensor<2x8x512xf32>",
)
_SCORES = 2 * 8 * 512 * 256


def test_fused_attention_forward(call: Call) -> None:
    cost = call("__cudnn$fmhaSoftmax", [_Q, _KV, _KV], [_OUT, _STATS, "tensor<4096xui8>"], _fmha())
    assert cost.matrix_flops == 4 * _SCORES * 64
    assert cost.transcendentals == _SCORES
    assert cost.geometry == Attention(
        batch=2, heads=8, kv_heads=4, q_len=512, kv_len=256, head_dim=64, dtype="bf16", causal=False, backward=False
    )
    assert cost.kind is OpKind.CUSTOM
    assert cost.written_bytes == 2 * 8 * 512 * (64 * 2 + 4)  # the workspace is not written out


@pytest.mark.parametrize("window", [0, 1, 32, 10_000])
@pytest.mark.parametrize(("queries", "keys"), [(1, 4096), (7, 256), (256, 256), (512, 256), (1, 1), (0, 16), (16, 0)])
def test_fused_attention_masks(call: Call, queries: int, keys: int, window: int) -> None:
    q, kv = f"tensor<2x{queries}x8x64xbf16>", f"tensor<2x{keys}x4x64xbf16>"
    seen = [max(0, keys - queries + 1 + i) for i in range(queries)]  # the last query sees all keys
    scores = 2 * 8 * sum(min(count, window or count) for count in seen)
    cost = call("__cudnn$fmhaSoftmax", [q, kv, kv], [q], _fmha("CAUSAL", window=window))
    assert (cost.matrix_flops, cost.transcendentals) == (4 * 64 * scores, scores)


def test_a_causal_mask_hides_nothing_from_a_decoding_step(call: Call) -> None:
    q, kv = "tensor<2x1x8x64xbf16>", "tensor<2x4096x4x64xbf16>"
    costs = [call("__cudnn$fmhaSoftmax", [q, kv, kv], [q], _fmha(mask)) for mask in ("CAUSAL", "NO_MASK")]
    assert costs[0].matrix_flops == costs[1].matrix_flops == 4 * 2 * 8 * 4096 * 64


def test_fused_attention_backward_and_variants(call: Call) -> None:
    operands = [_Q, _KV, _KV, _STATS, _Q, _Q]
    grads = ["tensor<2x8x512x64xbf16>", "tensor<2x4x256x64xbf16>", "tensor<2x4x256x64xbf16>"]
    for target in ("Softmax", "ScaleBiasSoftmax", "SoftmaxDropout", "ScaleBiasSoftmaxDropout"):
        cost = call(f"__cudnn$fmha{target}Backward", operands, grads, _fmha(backward=True))
        assert cost.matrix_flops == 10 * _SCORES * 64
        assert isinstance(cost.geometry, Attention)
        assert cost.geometry.backward


def test_fused_attention_with_heads_before_lengths(call: Call) -> None:
    query = "tensor<2x8x512x64xf8E4M3FN>"
    cost = call("__cudnn$fmhaSoftmaxF8", [query, query, query], [query], _fmha(heads_dim=1))
    assert isinstance(cost.geometry, Attention)
    assert (cost.geometry.heads, cost.geometry.q_len, cost.dtype) == (8, 512, "f8E4M3FN")


# Libraries.


def test_cublas_product(call: Call) -> None:
    dims = {"lhs_contracting_dimensions": ["0"], "rhs_contracting_dimensions": ["1"]}
    config = {"gemm_backend_config": {"dot_dimension_numbers": dims, "precision_config": {"algorithm": "ALG_UNSET"}}}
    cost = call(
        "__cublas$lt$matmul",
        ["tensor<2048x3072xbf16>", "tensor<4096x2048xbf16>"],
        ["tensor<3072x4096xbf16>", "tensor<33554432xi8>"],
        config,
        'meshcast.layouts = "{0,1},{1,0}->{0,1},{0}"',
    )
    assert cost.matrix_flops == 2 * 2048 * 3072 * 4096
    assert cost.written_bytes == 2 * 3072 * 4096
    assert isinstance(cost.geometry, Gemm)
    assert cost.geometry.lhs_contracting_minor  # dimension 0 is innermost in that layout
    assert cost.geometry.rhs_contracting_minor


def test_cudnn_convolution_forward_and_backward_count_the_same(call: Call) -> None:
    image, kernel, out = "tensor<2x8x8x3xbf16>", "tensor<16x3x3x3xbf16>", "tensor<2x4x4x16xbf16>"
    more = 'meshcast.window = "{size=3x3 stride=2x2 pad=1_1x1_1}", meshcast.dim_labels = "b01f_o01i->b01f"'
    forward = call("__cudnn$convForward", [image, kernel], [out, "tensor<128xui8>"], "", more)
    assert forward.matrix_flops == 2 * 2 * 16 * 3 * 11 * 11
    assert isinstance(forward.geometry, Convolution)
    assert forward.geometry.layout == "b01f,o01i->b01f"
    assert call("__cudnn$convBackwardInput", [out, kernel], [image], "", more).matrix_flops == forward.matrix_flops
    assert call("__cudnn$convBackwardFilter", [image, out], [kernel], "", more).matrix_flops == forward.matrix_flops
    with pytest.raises(UnsupportedError, match="labels of the convolution are missing"):
        call("__cudnn$convForward", [image, kernel], [out])


def _gradients_of(stride: int, groups: int) -> tuple[Convolution, Convolution]:
    """The convolutions that JAX writes for the gradients of one, by its filter and by its input."""
    images = jax.ShapeDtypeStruct((4, 16, 16, 8), jnp.float32)
    filters = jax.ShapeDtypeStruct((3, 3, 8 // groups, 32), jnp.float32)

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        labels = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=labels, feature_group_count=groups
        )

    found = []
    for argument in (1, 0):
        step = jax.grad(lambda x, w: layer(x, w).sum(), argnums=argument)
        ops = read_workload(capture(step, images, filters)).body.ops
        found += [op.cost.geometry for op in ops if isinstance(op.cost.geometry, Convolution)][-1:]
    by_filter, by_input = found
    assert isinstance(by_filter, Convolution)
    assert isinstance(by_input, Convolution)
    return by_filter, by_input


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 8), (2, 8)])
def test_the_shape_of_a_gradient_call_is_that_of_the_convolution_which_computes_it(
    call: Call, stride: int, groups: int
) -> None:
    size = 16 // stride
    pad = "1_1x1_1" if stride == 1 else "0_1x0_1"
    window = f"{{size=3x3 stride={stride}x{stride} pad={pad}}}"
    more = f'meshcast.window = "{window}", meshcast.dim_labels = "b01f_o01i->b01f"'
    image, kernel = "tensor<4x16x16x8xf32>", f"tensor<32x3x3x{8 // groups}xf32>"
    out = f"tensor<4x{size}x{size}x32xf32>"
    for written, target, operands, result in zip(
        _gradients_of(stride, groups),
        ("__cudnn$convBackwardFilter", "__cudnn$convBackwardInput"),
        ([image, out], [out, kernel]),
        (kernel, image),
        strict=True,
    ):
        geometry = call(target, operands, [result], "", more).geometry
        assert isinstance(geometry, Convolution)
        assert is_filter_gradient(geometry) is is_filter_gradient(written) is ("Filter" in target)
        same = {name: getattr(written, name) for name in _SIZES}
        assert {name: getattr(geometry, name) for name in _SIZES} == same


_SIZES = (
    "batch", "in_channels", "out_channels", "in_spatial", "out_spatial", "kernel", "strides", "padding", "lhs_dilation",
    "rhs_dilation", "feature_groups", "batch_groups", "macs",
)  # fmt: skip


@pytest.mark.parametrize("target", ["__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort_pairs"])
def test_radix_sorts_of_any_release(call: Call, target: str) -> None:
    rows, scratch = "tensor<64x1000xf32>", "tensor<4096xui8>"
    cost = call(target, [rows, rows], [rows, rows, scratch])
    assert cost.geometry == SortGeometry(length=1000, batch=64, operands=2, radix=True)


@pytest.mark.parametrize(("layout", "gradient"), [
    ("b01f,01io->b01f", False), ("bf01,oi01->bf01", False), ("f01b,i01o->01bf", True), ("fb01,io01->fb01", True),
])  # fmt: skip
def test_filter_gradients_of_any_layout_are_known_by_their_batch(call: Call, layout: str, gradient: bool) -> None:
    more = 'meshcast.window = "{size=3x3 pad=1_1x1_1}", meshcast.dim_labels = "b01f_o01i->b01f"'
    image, kernel, out = "tensor<2x8x8x3xbf16>", "tensor<16x3x3x3xbf16>", "tensor<2x8x8x16xbf16>"
    geometry = call("__cudnn$convForward", [image, kernel], [out], "", more).geometry
    assert isinstance(geometry, Convolution)
    assert is_filter_gradient(replace(geometry, layout=layout)) is gradient


def test_reflections_are_applied_without_forming_their_product(call: Call) -> None:
    """Golub & Van Loan: 4 m p k - 2 p k^2 FLOPs for k reflections of length m and p columns."""
    operands = ["tensor<3x40x8xf32>", "tensor<3x8xf32>", "tensor<3x40x5xf32>"]
    for target in ("cusolver_ormqr_ffi", "lapack_sormqr_ffi"):
        cost = call(target, operands, ["tensor<3x40x5xf32>"])
        assert cost.vector_flops == 3 * (4 * 40 * 5 * 8 - 2 * 5 * 8**2)
        assert cost.kind == OpKind.LINALG


def test_solvers(call: Call) -> None:
    matrix, info = "tensor<3x12x12xf32>", "tensor<3xi32>"
    for target in ("lapack_spotrf_ffi", "cusolver_potrf_ffi"):
        cost = call(target, [matrix], [matrix, info])
        assert (cost.kind, cost.vector_flops) == (OpKind.LINALG, 12**3)
    lu = call("cusolver_getrf_ffi", [matrix], [matrix, "tensor<3x12xi32>", info])
    assert lu.vector_flops == pytest.approx(3 * 2 / 3 * 12**3)


def test_top_k_random_bits_and_functions(call: Call) -> None:
    found = call("mhlo.topk", ["tensor<4x100xf32>"], ["tensor<4x8xf32>", "tensor<4x8xi32>"])
    assert found.geometry == SortGeometry(length=100, batch=4, operands=1, top=8)
    words = "tensor<32xui32>"
    assert call("cu_threefry2x32_ffi", [words] * 4, [words] * 2).kind is OpKind.RNG
    assert call("mhlo.erf", ["tensor<8xf32>"], ["tensor<8xf32>"]).transcendentals == 8


def test_sharding_marks_are_views_and_callbacks_go_to_the_host(call: Call) -> None:
    for target in ("Sharding", "SPMDFullToShardShape", "annotate_device_placement", "xla.sdy.FuncResultSharding"):
        cost = call(target, ["tensor<8xf32>"], ["tensor<8xf32>"])
        assert (cost.kind, cost.operand_bytes, cost.written_bytes) == (OpKind.VIEW, (0,), 0)
    cost = call("xla_ffi_python_cpu_callback", ["tensor<8xf32>"], [], more="has_side_effect = true")
    assert (cost.kind, cost.operand_bytes) == (OpKind.HOST, (32,))


def test_workspace_is_a_last_vector_of_bytes() -> None:
    result, scratch = Tensor((4, 4), "f32"), Tensor((128,), "ui8")
    assert without_workspace((result, scratch)) == (result,)
    assert without_workspace((scratch,)) == (scratch,)
    assert without_workspace(()) == ()


# Declared and registered costs.


def test_cost_estimates_of_kernels(call: Call) -> None:
    estimate = {"flops": 1000, "transcendentals": 10, "bytes_accessed": 96}
    kinds = ["tensor<8xf32>"]
    mosaic = call("tpu_custom_call", kinds, kinds, {"custom_call_config": {"body": "...", "cost_estimate": estimate}})
    assert (mosaic.matrix_flops, mosaic.transcendentals) == (1000, 10)
    assert (mosaic.operand_bytes, mosaic.written_bytes) == ((64,), 32)
    typed = json.dumps(estimate).replace('"', "\\22")
    gpu = call("mosaic_gpu_v2", kinds, kinds, more=f'mhlo.backend_config = {{cost_estimate_json = "{typed}"}}')
    assert gpu.matrix_flops == 1000
    with pytest.raises(UnsupportedError, match="carries no cost_estimate"):
        call("__gpu$xla.gpu.triton", kinds, kinds)


def test_declared_on_the_op(call: Call) -> None:
    kinds = ["tensor<8xf32>"]
    declared = 'meshcast.cost = {flops = 2.0e3 : f64, bytes = 64 : i64, dtype = "bf16"}'
    cost = call("mine", kinds, kinds, more=declared)
    assert (cost.kind, cost.matrix_flops, cost.dtype) == (OpKind.CUSTOM, 2000, "bf16")
    from_jax = 'mhlo.frontend_attributes = {meshcast.cost = "{\\22vector_flops\\22: 5}"}'
    assert call("mine", kinds, kinds, more=from_jax).vector_flops == 5
    with pytest.raises(UsageError, match=r"\['flop'\]"):
        call("mine", kinds, kinds, more="meshcast.cost = {flop = 1.0 : f64}")


@pytest.mark.parametrize("name", ["flops", "vector_flops", "transcendentals", "bytes"])
@pytest.mark.parametrize("value", ['"x"', "-1.0e15 : f64", "true", "0x7FF0000000000000 : f64", "unit"])
def test_declared_numbers_are_checked(call: Call, name: str, value: str) -> None:
    kinds = ["tensor<8xf32>"]
    with pytest.raises(InputError, match=rf"declared cost of custom call 'mine' says {name} = ") as caught:
        call("mine", kinds, kinds, more=f"meshcast.cost = {{{name} = {value}}}")
    assert caught.value.where == "test.mlir"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-1", "null", "[1]", "1" + "0" * 400])
def test_declared_json_is_checked(call: Call, text: str) -> None:
    kinds = ["tensor<8xf32>"]
    with pytest.raises(InputError, match="says flops"):
        call("mine", kinds, kinds, more=f'mhlo.frontend_attributes = {{meshcast.cost = "{{\\22flops\\22: {text}}}"}}')


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", "bf16"), ("bfloat16", "bf16"), ("float32", "f32"), ("int8", "i8"), ("uint8", "ui8"), ("bool", "i1"),
        ("float8_e4m3fn", "f8E4M3FN"), ("f8E5M2", "f8E5M2"), ("f8e5m2", "f8E5M2"), ("f8", "f8E4M3FN"), ("s8", "i8"),
        ("complex64", "complex<f32>"),
    ],
)  # fmt: skip
def test_declared_types_by_any_name(call: Call, name: str, dtype: str) -> None:
    kinds = ["tensor<8xf32>"]
    assert call("mine", kinds, kinds, more=f'meshcast.cost = {{flops = 1.0 : f64, dtype = "{name}"}}').dtype == dtype


@pytest.mark.parametrize("value", ['"brain16"', '"token"', "16 : i64"])
def test_declared_types_are_checked(call: Call, value: str) -> None:
    kinds = ["tensor<8xf32>"]
    with pytest.raises(InputError, match="says dtype = ") as caught:
        call("mine", kinds, kinds, more=f"meshcast.cost = {{flops = 1.0 : f64, dtype = {value}}}")
    assert "bf16" in (caught.value.fix or "")


def test_declared_bytes_of_a_call_without_operands_are_written(call: Call) -> None:
    cost = call("mine", [], ["tensor<8xf32>"], more="meshcast.cost = {bytes = 4096 : i64}")
    assert (cost.operand_bytes, cost.written_bytes, cost.dtype) == ((), 4096, "f32")
    with pytest.raises(InputError, match="flops and no dtype"):
        call("mine", [], [], more="has_side_effect = true, meshcast.cost = {flops = 1.0 : f64}")


def _rule(reading: OpReading) -> Cost:
    return Cost(kind=OpKind.CUSTOM, vector_flops=7.0 * reading.results[0].elements)


@pytest.mark.usefixtures("registry")
def test_registered_by_the_user(call: Call) -> None:
    register_custom_call("my_*", _rule)
    kinds = ["tensor<8xf32>"]
    assert call("my_kernel", kinds, kinds).vector_flops == 56
    with pytest.raises(UsageError, match="registered already"):
        register_custom_call("my_*", _rule)
    register_custom_call("my_*", _rule, replace=True)
    register_custom_call("TopK", _rule)  # a user's rule goes before the built-in one
    assert call("TopK", kinds, kinds).vector_flops == 56


@pytest.mark.usefixtures("registry")
def test_an_unknown_call_says_what_it_is_and_what_to_do(call: Call) -> None:
    with pytest.raises(UnsupportedError) as raised:
        call("mystery", ["tensor<8xf32>", "tensor<2x2xi8>"], ["tensor<4xbf16>"])
    error = str(raised.value)
    assert error.startswith("test.mlir: custom call 'mystery' (f32[8], i8[2,2] -> bf16[4])")
    assert "register_custom_call('mystery', rule)" in error
    assert "meshcast.cost" in error


def test_tridiagonal_systems_cost_their_textbook_count(call: Call) -> None:
    """3 n + 5 n r FLOPs a system, and every array once."""
    diagonal, right = "tensor<64x100xf32>", "tensor<64x100x2xf32>"
    cost = call("cusparse_gtsv2_ffi", [diagonal, diagonal, diagonal, right], [right])
    assert cost.vector_flops == 64 * (3 * 100 + 5 * 100 * 2)
    assert (sum(cost.operand_bytes), cost.written_bytes) == (4 * 64 * 100 * 5, 4 * 64 * 100 * 2)
    with pytest.raises(UnsupportedError, match="three diagonals"):
        call("cusparse_gtsv2_ffi", [diagonal, diagonal], [right])
