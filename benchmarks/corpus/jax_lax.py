"""Calls of `jax.lax` and `jax.numpy` that libraries seldom make: convolutions of all kinds, orders, sums, gathers, products."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

LAX = Catalogue("jax.lax", "helper")
NUMPY = Catalogue("jax.numpy", "helper")
CATALOGUES = [LAX, NUMPY]
BF16, F16, I8 = jnp.bfloat16, jnp.float16, jnp.int8
CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")


def convolutions(x: Any, kernels: Any, **options: Any) -> Any:
    """A chain of convolutions, each with a bias's worth of pointwise work behind it."""
    for kernel in kernels:
        x = jax.nn.relu(lax.conv_general_dilated(x, kernel, **options))
    return x


def convolution_gradients(**options: Any) -> Any:
    """The gradients of a chain of convolutions by its kernels and its input."""
    return jax.grad(lambda x, kernels: convolutions(x, kernels, **options).astype(jnp.float32).sum(), argnums=(0, 1))


def chain(mode: str, dtype: Any, size: tuple[int, ...], kernel: tuple[int, ...], depth: int, **options: Any) -> Call:
    """A chain of equal convolutions, forward or with gradients."""
    arguments = spec(*size, dtype=dtype), [spec(*kernel, dtype=dtype)] * depth
    return (convolution_gradients(**options) if mode == "train" else partial(convolutions, **options)), arguments


for mode, name, dtype, size, kernel, depth, options in (
    ("infer", "dilated_same", "bf16", (8, 128, 128, 128), (3, 3, 128, 128), 4, {"rhs_dilation": (4, 4)}),
    ("train", "dilated_same", "f32", (4, 64, 64, 128), (3, 3, 128, 128), 2, {"rhs_dilation": (2, 2)}),
    ("train", "depthwise7", "f32", (16, 56, 56, 96), (7, 7, 1, 96), 2, {"feature_group_count": 96}),
    ("infer", "depthwise3", "f16", (32, 56, 56, 256), (3, 3, 1, 256), 4, {"feature_group_count": 256}),
    ("infer", "grouped32", "bf16", (32, 28, 28, 512), (3, 3, 16, 512), 3, {"feature_group_count": 32}),
):
    LAX.add(
        f"lax_conv_{name}_{mode}",
        partial(
            chain,
            mode,
            {"bf16": BF16, "f32": jnp.float32, "f16": F16}[dtype],
            size,
            kernel,
            depth,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=CHANNELS_LAST,
            **options,
        ),
        mode,
        dtype,
        group="vision",
    )


@LAX.program("lax_conv1d_dilations_train", "train", "f32", group="audio")
def _() -> Call:
    def loss(kernels: Any, x: Any) -> Any:
        for power, kernel in enumerate(kernels):
            options = {"rhs_dilation": (2**power,), "dimension_numbers": ("NWC", "WIO", "NWC")}
            x = x + jnp.tanh(lax.conv_general_dilated(x, kernel, (1,), "SAME", **options))
        return jnp.square(x).mean()

    return jax.value_and_grad(loss), ([spec(2, 64, 64)] * 8, spec(8, 16000, 64))


@LAX.program("lax_conv3d_volume_infer", "infer", "bf16", group="vision")
def _() -> Call:
    def network(x: Any, kernels: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.relu(
                lax.conv_general_dilated(x, kernel, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
            )
        return x

    return network, (spec(2, 48, 48, 48, 32, dtype=BF16), [spec(3, 3, 3, 32, 32, dtype=BF16)] * 3)


@LAX.program("lax_conv_transpose_decoder_infer", "infer", "f32", group="vision")
def _() -> Call:
    def decoder(x: Any, kernels: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.leaky_relu(lax.conv_transpose(x, kernel, (2, 2), "SAME"))
        return jnp.tanh(x)

    widths = (512, 256, 128, 64, 3)
    kernels = [spec(4, 4, wide, narrow) for wide, narrow in itertools.pairwise(widths)]
    return decoder, (spec(32, 8, 8, 512), kernels)


@LAX.program("lax_conv_nchw_stem_infer", "infer", "f32", group="vision")
def _() -> Call:
    def stem(x: Any, first: Any, second: Any) -> Any:
        x = lax.conv(x, first, (2, 2), "SAME")
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
        return lax.conv(x, second, (1, 1), "SAME")

    return stem, (spec(64, 3, 224, 224), spec(64, 3, 7, 7), spec(64, 64, 3, 3))


@LAX.program("lax_reduce_windows_infer", "infer", "f32", group="vision")
def _() -> Call:
    def pyramid(x: Any) -> Any:
        sizes = [(1, k, k, 1) for k in (3, 5, 9)]
        pools = [lax.reduce_window(x, 0.0, lax.add, size, (1, 2, 2, 1), "SAME") for size in sizes]
        return jnp.concatenate(pools, axis=-1)

    return pyramid, (spec(16, 128, 128, 64),)


@LAX.program("lax_avgpool_maxpool_train", "train", "f16", group="vision")
def _() -> Call:
    def loss(x: Any) -> Any:
        most = lax.reduce_window(x, np.float16(-np.inf), lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        mean = lax.reduce_window(most, np.float16(0), lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return mean.astype(jnp.float32).mean()

    return jax.grad(loss), (spec(64, 112, 112, 64, dtype=F16),)


QUANTILES = (0.1, 0.5, 0.9)
LONG = spec(4194304)
for catalogue, name, dtype, function, arguments in (
    (LAX, "lax_sort_long_rows", "f32", lambda x: lax.sort(x, dimension=-1), (spec(64, 262144),)),
    (LAX, "lax_sort_keys_values", "f32", lambda *x: lax.sort(x, num_keys=1), (integers(2**30, 4194304), LONG, LONG)),
    (LAX, "lax_topk_vocabulary", "f32", lambda x: lax.top_k(x, 50), (spec(64, 128256),)),
    (LAX, "lax_topk_experts", "bf16", lambda x: lax.top_k(jax.nn.softmax(x), 8), (spec(32768, 64, dtype=BF16),)),
    (LAX, "lax_approx_max_k", "f32", lambda q, d: lax.approx_max_k(q @ d.T, 10), (spec(256, 128), spec(262144, 128))),
    (NUMPY, "numpy_sort_narrow_rows", "bf16", lambda x: jnp.sort(x, axis=-1), (spec(65536, 48, dtype=BF16),)),
    (NUMPY, "numpy_argmax_narrow", "f16", lambda x: jnp.argmax(x, axis=-1), (spec(1048576, 21, dtype=F16),)),
    (
        NUMPY,
        "numpy_argsort_unique",
        "i32",
        partial(jnp.unique, size=65536, return_inverse=True),
        (integers(65536, 1048576),),
    ),
    (NUMPY, "numpy_searchsorted", "f32", partial(jnp.searchsorted, method="scan"), (spec(1048576), LONG)),
    (
        NUMPY,
        "numpy_median_quantiles",
        "f32",
        lambda x: jnp.quantile(x, jnp.array(QUANTILES), axis=0),
        (spec(2048, 1024),),
    ),
):
    catalogue.add(name, partial(lambda *call: call, function, arguments), "infer", dtype)


@LAX.program("lax_cumulative_gae_step", "step", "f32", group="rl")
def _() -> Call:
    def advantages(deltas: Any, discounts: Any) -> Any:
        def combined(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[1] + right[0] * left[1]

        return lax.associative_scan(combined, (discounts, deltas), reverse=True, axis=0)[1]

    return advantages, (spec(2048, 4096), spec(2048, 4096))


@LAX.program("lax_scan_linear_recurrence_infer", "infer", "f32", group="sequence")
def _() -> Call:
    def recurrence(state: Any, gates: Any, inputs: Any) -> Any:
        def turn(h: Any, each: Any) -> Any:
            gate, value = each
            h = jax.nn.sigmoid(gate) * h + value
            return h, h

        return lax.scan(turn, state, (gates, inputs))

    return recurrence, (spec(32, 2048), spec(512, 32, 2048), spec(512, 32, 2048))


@LAX.program("lax_rglru_associative_train", "train", "bf16", group="sequence")
def _() -> Call:
    def loss(gate: Any, x: Any) -> Any:
        a = jax.nn.sigmoid(gate.astype(jnp.float32))

        def combined(left: Any, right: Any) -> Any:
            return left[0] * right[0], left[1] * right[0] + right[1]

        h = lax.associative_scan(combined, (a, x * jnp.sqrt(1 - a * a)), axis=1)[1]
        return jnp.square(h).mean()

    return jax.grad(loss, argnums=(0, 1)), (spec(8, 2048, 1024, dtype=BF16), spec(8, 2048, 1024, dtype=BF16))


@NUMPY.program("numpy_cumsum_cumprod_axes", "infer", "f32")
def _() -> Call:
    return (
        lambda x, y: (
            jnp.cumsum(x, axis=1),
            jnp.cumprod(y, axis=0),
            lax.cumlogsumexp(x, axis=1),
            lax.cummax(y, axis=0),
        ),
        (spec(1024, 8192), spec(8192, 512)),
    )


@LAX.program("lax_scatter_histogram", "infer", "i32")
def _() -> Call:
    return lambda bins, x: (bins.at[x].add(1), jnp.bincount(x, length=4096)), (
        spec(4096, dtype=jnp.int32),
        integers(4096, 8388608),
    )


@LAX.program("lax_scatter_rows_update", "update", "bf16", group="recsys")
def _() -> Call:
    return lambda table, rows, new: table.at[rows].set(new), (
        spec(1000000, 128, dtype=BF16),
        integers(1000000, 65536),
        spec(65536, 128, dtype=BF16),
    )


@LAX.program("lax_gather_windows_infer", "infer", "f32")
def _() -> Call:
    def windows(x: Any, starts: Any) -> Any:
        return jax.vmap(lambda start: lax.dynamic_slice(x, (start[0], start[1], 0), (32, 32, 16)))(starts)

    return windows, (spec(1024, 1024, 16), integers(992, 2048, 2))


@LAX.program("lax_segment_reductions", "infer", "f32", group="graph")
def _() -> Call:
    def reductions(values: Any, segments: Any) -> Any:
        options = {"num_segments": 100000}
        total = jax.ops.segment_sum(values, segments, **options)
        most = jax.ops.segment_max(values, segments, **options)
        ordered = jax.ops.segment_sum(values, jnp.sort(segments), indices_are_sorted=True, **options)
        return total, most, ordered

    return reductions, (spec(1000000, 32), integers(100000, 1000000))


@LAX.program("lax_ragged_dot_groups_infer", "infer", "bf16", group="llm")
def _() -> Call:
    return (
        lambda x, w, sizes: lax.ragged_dot(jax.nn.silu(lax.ragged_dot(x, w[0], sizes)), w[1], sizes),
        (
            spec(8192, 1024, dtype=BF16),
            [spec(16, 1024, 2816, dtype=BF16), spec(16, 2816, 1024, dtype=BF16)],
            integers(512, 16),
        ),
    )


@LAX.program("lax_cond_switch_step", "step", "f32")
def _() -> Call:
    def network(x: Any, weights: Any, choices: Any) -> Any:
        branches = [jnp.tanh, jax.nn.gelu, lambda v: v * jax.nn.sigmoid(v)]
        for weight, choice in zip(weights, choices, strict=True):
            x = lax.switch(choice, branches, x @ weight)
        return x

    return network, (spec(4096, 1024), [spec(1024, 1024)] * 4, [integers(3)] * 4)


@LAX.program("lax_tiny_loop_newton", "step", "f32", group="science")
def _() -> Call:
    def newton(x: Any, target: Any) -> Any:
        return lax.fori_loop(0, 200, lambda _, v: v - (jnp.cos(v) - target * v) / (-jnp.sin(v) - target), x)

    return newton, (spec(4096), spec(4096))


@LAX.program("lax_dynamic_update_cache", "decode", "bf16", group="llm")
def _() -> Call:
    def caches(cache: Any, new: Any, place: Any) -> Any:
        updated = lax.dynamic_update_slice(cache, new, (0, 0, place, 0, 0))
        return updated, lax.dynamic_slice(updated, (0, 0, place, 0, 0), (24, 16, 1, 8, 128))

    return caches, (spec(24, 16, 2048, 8, 128, dtype=BF16), spec(24, 16, 1, 8, 128, dtype=BF16), integers(2048))


def product(dtype: Any, result: Any, *sizes: int) -> Call:
    """A chain of two products that read a narrow type and accumulate in a wider one."""
    rows, inner, columns = sizes

    def quantised(x: Any, first: Any, second: Any, scale: Any) -> Any:
        hidden = lax.dot(x, first, preferred_element_type=result).astype(jnp.float32) * scale
        limit = 127.0 if dtype == I8 else 448.0
        narrow = jnp.clip(jax.nn.relu(hidden), -limit, limit).astype(dtype)
        return lax.dot(narrow, second, preferred_element_type=result)

    return quantised, (
        spec(rows, inner, dtype=dtype),
        spec(inner, columns, dtype=dtype),
        spec(columns, inner, dtype=dtype),
        spec(columns),
    )


for name, narrow, result, dtype, sizes in (
    ("int8_prefill", I8, jnp.int32, "int8", (8192, 4096, 4096)),
    ("int8_decode", I8, jnp.int32, "int8", (16, 8192, 8192)),
    ("f8_prefill", jnp.float8_e4m3fn, BF16, "f8", (8192, 4096, 14336)),
    ("f8_decode", jnp.float8_e4m3fn, BF16, "f8", (64, 4096, 14336)),
):
    LAX.add(f"lax_{name}_mlp", partial(product, narrow, result, *sizes), "infer", dtype, group="llm")


@NUMPY.program("numpy_einsum_batched_small", "infer", "f32", group="science")
def _() -> Call:
    return (
        lambda a, b, c: jnp.einsum("nij,njk,nkl->nil", a, b, c),
        (spec(65536, 12, 12), spec(65536, 12, 12), spec(65536, 12, 12)),
    )


@NUMPY.program("numpy_ridge_gram_solve", "infer", "f32", group="science")
def _() -> Call:
    def ridge(x: Any, y: Any) -> Any:
        gram = jnp.matmul(x.T, x, precision=lax.Precision.HIGHEST) + 1e-3 * jnp.eye(x.shape[1])
        return jnp.linalg.solve(gram, x.T @ y)

    return ridge, (spec(65536, 768), spec(65536, 16))


@NUMPY.program("numpy_rolls_pads_tiles", "infer", "bf16")
def _() -> Call:
    def moved(x: Any) -> Any:
        padded = jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect")
        flipped = jnp.flip(jnp.roll(x, (5, -7), axis=(1, 2)), axis=2)
        patches = x.reshape(16, 32, 8, 32, 8, 32).transpose(0, 1, 3, 2, 4, 5).reshape(16, 1024, 2048)
        return padded, flipped, patches, jnp.repeat(x, 2, axis=1)

    return moved, (spec(16, 256, 256, 32, dtype=BF16),)


@NUMPY.program("numpy_pairwise_kernel_infer", "infer", "f32", group="science")
def _() -> Call:
    def kernel(x: Any, y: Any, alpha: Any) -> Any:
        squares = jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
        return jnp.exp(-0.5 * squares) @ alpha

    return kernel, (spec(4096, 16), spec(8192, 16), spec(8192, 4))


@NUMPY.program("numpy_interp_convolve_polyval", "infer", "f32", group="science")
def _() -> Call:
    return (
        lambda x, knots, values, kernel: (
            jnp.interp(x, knots, values),
            jnp.convolve(x, kernel, mode="same"),
            jnp.polyval(kernel[:8], x),
        ),
        (spec(1048576), spec(1024), spec(1024), spec(257)),
    )
