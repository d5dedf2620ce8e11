"""What XLA:GPU's passes make of single ops, one mechanism a test, on programs whose kernels can be counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import KernelKind
from meshcast.lower.convolutions.cudnn_convolutions import forward_padding
from meshcast.workload.graph import Convolution, Gemm, Reduction
from tests.lower.programs import kernels, lower_function, spec

MiB = 2**20
BF16 = "bfloat16"


def kinds(function: object, *args: object, **options: object) -> list[KernelKind]:
    return [kernel.kind for kernel in kernels(lower_function(function, *args, **options))]  # type: ignore[arg-type]


# Reductions


def test_a_long_column_is_reduced_in_two_stages() -> None:
    """16,384 rows: 128 parts of 128, whose partial sums are the second stage's input."""
    one, two = kernels(lower_function(lambda x: jnp.sum(x, 0), spec(16384, 64)))
    assert one.geometry == Reduction(shape=(1, 128, 128, 64), dims=(2,))
    assert two.geometry == Reduction(shape=(1, 128, 64), dims=(1,))
    assert one.written_bytes == two.read_bytes == 128 * 64 * 4
    assert two.written_bytes == 64 * 4


def test_a_column_that_one_block_can_reduce_is_one_kernel() -> None:
    assert kinds(lambda x: jnp.sum(x, 0), spec(4096, 64)) == [KernelKind.REDUCTION]


def test_a_long_row_is_reduced_in_two_stages() -> None:
    assert kinds(lambda x: jnp.sum(x, 1), spec(256, 2**16)) == [KernelKind.REDUCTION] * 2
    assert kinds(lambda x: jnp.sum(x, 1), spec(256, 2**14)) == [KernelKind.REDUCTION]


def test_pixels_and_channels_of_a_group_are_reduced_one_after_the_other() -> None:
    """A group norm's sums: 1024 pixels, the longest that goes, then the eight channels of each of eight groups."""
    one, two = kernels(lower_function(lambda x: jnp.sum(x, (1, 2, 4)), spec(32, 32, 32, 8, 8)))
    assert one.geometry == Reduction(shape=(32, 1024, 8, 8), dims=(1,))
    assert two.geometry == Reduction(shape=(32, 8, 8), dims=(2,))
    assert one.written_bytes == two.read_bytes == 32 * 8 * 8 * 4
    assert two.vector_flops == pytest.approx(one.vector_flops / 1024)


@pytest.mark.parametrize(
    ("shape", "dims", "stages"),
    [
        ((64, 32, 128), (0, 2), 1),  # rows, over an outer dimension as well
        ((64, 1, 128), (0, 2), 1),  # one row: what has one element is no dimension
        ((64, 32, 6), (0, 2), 1),  # columns first; rows of six are added up in the thread that takes their sum
        ((64, 32, 128, 32), (0, 2), 2),
        ((8, 64, 4, 32, 2, 128), (1, 3, 5), 2),  # and 32 rows of two columns, which are a loop of a thread
    ],
)
def test_what_lies_apart_is_reduced_by_stages(shape: tuple[int, ...], dims: tuple[int, ...], stages: int) -> None:
    found = kinds(lambda x: jnp.sum(x, dims), spec(*shape))
    assert found.count(KernelKind.REDUCTION) == stages


def test_two_statistics_of_one_array_share_the_first_stage_only() -> None:
    def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.sum(x, 0), jnp.sum(x * x, 0)

    first, *second = kernels(lower_function(moments, spec(16384, 64)))
    assert len(first.writes) == 2
    assert len(second) == 2


def test_a_reduction_over_dimensions_of_one_element_is_no_kernel() -> None:
    (kernel,) = kernels(lower_function(lambda x: jnp.sum(x + 1, axis=(0, 2)), spec(1, 512, 1)))
    assert kernel.kind is KernelKind.LOOP_FUSION


def test_a_very_short_column_is_summed_inside_a_loop() -> None:
    """Eight rows: each thread adds them up, and goes on with the arithmetic after."""
    (kernel,) = kernels(lower_function(lambda x: jnp.tanh(jnp.sum(x, 0)) * 2, spec(8, 512, 512)))
    assert kernel.kind is KernelKind.LOOP_FUSION
    assert (kernel.read_bytes, kernel.written_bytes) == (8 * MiB, MiB)


def test_pooled_rows_of_several_tables_are_one_concatenation() -> None:
    def embed(tables: list[jax.Array], ids: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.sum(t.at[ids].get(mode="clip"), 1) for t in tables], -1)

    tables = [spec(10_000, 128) for _ in range(4)]
    assert kinds(embed, tables, spec(2048, 10, dtype="int32")).count(KernelKind.REDUCTION) == 0


# Slow functions and row fusions


def test_a_column_statistic_with_a_root_is_a_small_kernel() -> None:
    """Batch norm: two-stage sums, the root on 64 elements, one pass over the array."""

    def norm(x: jax.Array) -> jax.Array:
        return x * lax.rsqrt(jnp.mean(x * x, 0) + 1e-5)

    made = kernels(lower_function(norm, spec(262144, 64)))
    assert [k.kind for k in made] == [KernelKind.REDUCTION] * 2 + [KernelKind.LOOP_FUSION] * 2
    assert [k.transcendentals for k in made] == [0, 0, 64, 0]


def test_a_root_that_hides_behind_memory_is_computed_again() -> None:
    """Of a million f32 roots 1.2 us, behind 1.7 us of memory: less than the launch of a kernel."""

    def norm(x: jax.Array) -> jax.Array:
        return x * lax.rsqrt(jnp.mean(x * x, 0) + 1e-5)

    made = kernels(lower_function(norm, spec(16384, 64)))
    assert [k.kind for k in made] == [KernelKind.REDUCTION] * 2 + [KernelKind.LOOP_FUSION]


def test_a_row_fusion_takes_no_dynamic_slice() -> None:
    def norm(x: jax.Array, scales: jax.Array, i: jax.Array) -> jax.Array:
        scale = lax.dynamic_index_in_dim(scales, i, keepdims=False)
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale

    made = kernels(lower_function(norm, spec(512, 512), spec(12, 512), spec(dtype="int32")))
    row = next(k for k in made if k.kind is KernelKind.REDUCTION)
    assert not any(op.endswith("dynamic_slice") for op in row.ops)
    assert any("copy" in k.flags for k in made)


# Products


def test_a_product_computes_its_plain_epilogue() -> None:
    (kernel,) = kernels(lower_function(lambda x, w: jax.nn.relu(x @ w), spec(512, 512), spec(512, 512)))
    assert kernel.kind is KernelKind.GEMM
    assert isinstance(kernel.geometry, Gemm)
    assert (kernel.read_bytes, kernel.written_bytes) == (2 * MiB, MiB)


def test_a_product_takes_a_residual_in_but_no_function() -> None:
    x = spec(512, 512)
    assert kinds(lambda x, w, r: x @ w + r, x, x, x) == [KernelKind.GEMM]
    assert kinds(lambda x, w: jnp.tanh(x @ w), x, x) == [KernelKind.GEMM, KernelKind.LOOP_FUSION]
    assert kinds(lambda x, w, r: x @ w * jax.nn.silu(r), x, x, x) == [KernelKind.GEMM, KernelKind.LOOP_FUSION]


def test_an_epilogue_is_judged_in_linear_time() -> None:
    """Each of 200 sums reads the one before twice: as many paths as 2^200."""

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        y = x
        for _ in range(200):
            y = y + y
        return x @ w + y

    assert kinds(step, spec(64, 64), spec(64, 64)) == [KernelKind.GEMM]


def test_a_transposed_operand_is_contracted_where_it_lies() -> None:
    x, w = spec(64, 512), spec(1024, 512)
    (kernel,) = kernels(lower_function(lambda x, w: x @ w.T, x, w))
    assert isinstance(kernel.geometry, Gemm)
    assert kernel.geometry.lhs_contracting_minor
    assert kernel.geometry.rhs_contracting_minor


def test_a_matrix_transposed_twice_is_itself() -> None:
    (kernel,) = kernels(lower_function(lambda x: jnp.exp(lax.transpose(lax.transpose(x, (1, 0)), (1, 0))), spec(8, 16)))
    assert not any(op.endswith("transpose") for op in kernel.ops)


@pytest.mark.parametrize(("rows", "cleared"), [(2048, False), (8192, True)])
def test_a_product_of_more_than_two_waves_clears_its_counter(rows: int, cleared: bool) -> None:
    made = kernels(lower_function(jnp.matmul, spec(rows, 64, dtype=BF16), spec(64, 4096, dtype=BF16)))
    assert [k.name == "memset" for k in made] == ([True, False] if cleared else [False])


# Convolutions


def convolve(x: jax.Array, w: jax.Array, stride: int = 1, padding: str = "SAME") -> jax.Array:
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_a_filter_is_transposed_once_for_all_convolutions() -> None:
    x, w = spec(8, 16, 16, 64, dtype=BF16), spec(3, 3, 64, 64, dtype=BF16)
    made = kinds(lambda x, w: convolve(convolve(x, w), w), x, w)
    assert made == [KernelKind.TRANSPOSE, KernelKind.CONVOLUTION, KernelKind.CONVOLUTION]


def test_uneven_padding_is_a_pad_that_fuses_with_what_is_before() -> None:
    x, w = spec(8, 16, 16, 64, dtype=BF16), spec(3, 3, 64, 64, dtype=BF16)
    made = kernels(lower_function(lambda x, w: convolve(jax.nn.relu(x), w, stride=2), x, w))
    pad = next(k for k in made if k.kind is KernelKind.LOOP_FUSION)
    assert pad.written_bytes == 8 * 17 * 17 * 64 * 2
    assert len(made) == 3


def test_gradients_reuse_the_transposed_filter_and_transpose_their_result() -> None:
    """Loss = sum(conv^2): forward, input gradient and filter gradient around one filter transpose and one back."""
    x, w = spec(8, 16, 16, 64, dtype=BF16), spec(3, 3, 64, 64, dtype=BF16)

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(convolve(x, w) ** 2)

    made = kinds(jax.grad(loss, argnums=(0, 1)), x, w)
    assert made.count(KernelKind.CONVOLUTION) == 3
    assert made.count(KernelKind.TRANSPOSE) == 2


def test_a_one_by_one_input_gradient_moves_no_filter() -> None:
    x, w = spec(8, 16, 16, 64, dtype=BF16), spec(1, 1, 64, 128, dtype=BF16)
    made = kinds(jax.grad(lambda x, w: jnp.sum(convolve(x, w)).astype(jnp.float32)), x, w)
    assert KernelKind.TRANSPOSE not in made


def test_few_channels_are_widened_in_the_workspace() -> None:
    x, w = spec(8, 16, 16, 3, dtype=BF16), spec(3, 3, 3, 64, dtype=BF16)
    widened = next(k for k in kernels(lower_function(convolve, x, w)) if k.kind is KernelKind.CUSTOM)
    assert widened.written_bytes == 8 * 16 * 16 * 8 * 2


def _geometry(**changes: object) -> Convolution:
    values: dict[str, object] = {
        "batch": 8, "in_channels": 64, "out_channels": 64, "in_spatial": (28,), "out_spatial": (14,), "kernel": (3,),
        "strides": (2,), "padding": ((0, 1),), "lhs_dilation": (1,), "rhs_dilation": (1,), "feature_groups": 1,
        "batch_groups": 1, "macs": 1, "lhs_dtype": "bf16", "rhs_dtype": "bf16", "out_dtype": "bf16",
        "layout": "b0f,0io->b0f",
    }  # fmt: skip
    return Convolution(**(values | changes))  # type: ignore[arg-type]


def test_gradients_know_the_padding_of_their_forward_pass() -> None:
    """28 elements, kernel 3, stride 2, padding (0, 1): 14 windows that span 29."""
    filter_gradient = _geometry(
        in_spatial=(28,), kernel=(14,), out_spatial=(3,), strides=(1,), rhs_dilation=(2,), layout="f0b,i0o->0bf"
    )
    input_gradient = _geometry(
        in_spatial=(14,), out_spatial=(28,), strides=(1,), padding=((2, 1),), lhs_dilation=(2,), layout="b0f,0oi->b0f"
    )
    assert forward_padding(_geometry()) == forward_padding(filter_gradient) == forward_padding(input_gradient)


# Scatters


def test_a_scatter_into_zeros_adds_into_the_other_addend() -> None:
    def step(m: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
        return m * 0.9 + jnp.zeros_like(m).at[ids].add(rows, mode="clip")

    made = kernels(lower_function(step, spec(10_000, 128), spec(64, dtype="int32"), spec(64, 128)))
    scatter = next(k for k in made if k.kind is KernelKind.SCATTER)
    scaled = next(k for k in made if k.written_bytes == 10_000 * 128 * 4)
    assert scatter.updates == scaled.writes
    assert scaled.reads  # the scaled momentum, not zeros
