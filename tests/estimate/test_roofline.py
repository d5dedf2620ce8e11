"""The speed of light by hand: peaks by operand type and precision, vector units, memory and cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate import estimate_kernels
from meshcast.estimate.rates import catalogue_key, matrix_rate, vector_rate
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import Device, load_device
from meshcast.lower import Kernel
from tests.estimate.conformance import gemm, pass_over
from tests.lower.programs import lower_function, spec

GPU = replace(
    load_device("h100-sxm"),
    matrix_flops={"bf16": 1e15, "f16": 1e15, "tf32": 5e14, "f8": 2e15, "i8": 2e15, "f64": 6e13},
    vector_flops={"f32": 6e13, "bf16": 1.2e14, "f64": 3e13, "i32": 3e13},
    transcendental_rate=4e12,
    memory_bandwidth=4e12,
    cache_bytes=50e6,
    cache_bandwidth=8e12,
)
TPU = replace(
    load_device("tpu-v5e"), matrix_flops={"bf16": 2e14, "i8": 4e14}, vector_flops={"f32": 6e12}, memory_bandwidth=8e11
)
V100 = load_device("v100-sxm2-32gb")


def seconds(kernel: Kernel, device: Device = GPU) -> float:
    return float(Roofline().estimate([kernel], device).time[0])


BIG: dict[str, Any] = {"m": 8192, "n": 8192, "k": 8192}
FLOPS = 2.0 * 8192**3


@pytest.mark.parametrize(
    ("dtype", "precision", "peak"),
    [
        ("bf16", "DEFAULT", 1e15),
        ("f16", "DEFAULT", 1e15),
        ("f8E4M3FN", "DEFAULT", 2e15),
        ("f8E5M2", "HIGHEST", 2e15),
        ("i8", "DEFAULT", 2e15),
        ("ui8", "DEFAULT", 2e15),
        ("f32", "DEFAULT", 5e14),
        ("f32", "HIGH", 5e14),
        ("f32", "HIGHEST", 6e13),
        ("f32", "F32_F32_F32", 6e13),
        ("f32", "TF32_TF32_F32", 5e14),
        ("f32", "BF16_BF16_F32", 1e15),
        ("f32", "BF16_BF16_F32_X3", 1e15 / 3),
        ("f32", "TF32_TF32_F32_X3", 5e14 / 3),
        ("f8E4M3FN", "F8E4M3FN_F8E4M3FN_F32_FAST_ACCUM", 2e15),
        ("f64", "DEFAULT", 6e13),
    ],
)
def test_a_product_on_a_gpu_runs_at_its_operands_peak(dtype: str, precision: str, peak: float) -> None:
    assert seconds(gemm(**BIG, dtype=dtype, out="bf16", precision=precision)) == pytest.approx(FLOPS / peak)


@pytest.mark.parametrize(
    ("dtype", "precision", "peak"),
    [
        ("bf16", "DEFAULT", 2e14),
        ("f32", "DEFAULT", 2e14),
        ("f32", "HIGH", 2e14 / 3),
        ("f32", "HIGHEST", 2e14 / 6),
        ("f32", "F32_F32_F32", 2e14 / 6),
        ("f32", "BF16_BF16_F32_X3", 2e14 / 3),
        ("i8", "DEFAULT", 4e14),
    ],
)
def test_a_product_on_a_tpu_runs_in_passes_of_bf16(dtype: str, precision: str, peak: float) -> None:
    assert seconds(gemm(**BIG, dtype=dtype, precision=precision), TPU) == pytest.approx(FLOPS / peak)


def test_the_accumulator_does_not_matter() -> None:
    assert seconds(gemm(**BIG, out="bf16")) == seconds(gemm(**BIG, out="f32"))


def test_f32_products_without_tf32_are_no_approximation() -> None:
    kernel = gemm(**BIG, dtype="f32", out="f32")
    assert matrix_rate(kernel, V100).flops == V100.vector_flops["f32"]
    assert Roofline().supports(kernel, V100).level == "yes"


def test_a_type_the_engine_lacks_is_approximated_by_a_wider_one() -> None:
    support = Roofline().supports(gemm(**BIG, dtype="bf16"), V100)
    assert support.level == "approximate"
    assert "f16" in support.reason


def test_f64_without_a_rate_is_refused_only_where_it_computes() -> None:
    add = replace(pass_over(64, 64, vector=8), dtype="f64")
    assert Roofline().supports(add, TPU).level == "no"
    assert Roofline().supports(replace(add, vector_flops=0.0), TPU).level == "yes"


def test_memory_bounds_a_pass_over_more_than_the_cache() -> None:
    assert seconds(pass_over(3 * 10**9, 10**9, vector=1e9)) == pytest.approx(4e9 / 4e12)


def test_the_cache_bounds_a_pass_that_fits_in_it() -> None:
    assert seconds(pass_over(3 * 10**7, 10**7)) == pytest.approx(4e7 / 8e12)


def test_vector_units_bound_long_arithmetic() -> None:
    assert seconds(pass_over(10**6, 10**6, vector=6e9)) == pytest.approx(6e9 / 6e13)


def test_functions_run_at_their_own_rate() -> None:
    assert seconds(pass_over(10**6, 10**6, vector=1e6, functions=4e9)) == pytest.approx(1e-3)


def test_types_have_one_name_in_the_catalogue() -> None:
    names = {
        "f64": "f64",
        "f4E2M1FN": "f4",
        "f8E4M3FN": "f8",
        "ui8": "i8",
        "i1": "i32",
        "complex<f32>": "f32",
        "bf16": "bf16",
        "i64": "i32",
    }
    assert {dtype: catalogue_key(dtype) for dtype in names} == names
    assert vector_rate("f16", GPU) == 6e13


def test_energy_is_flops_and_bytes() -> None:
    energy = Roofline().estimate([gemm(**BIG), pass_over(10**9, 0)], GPU).energy
    assert energy[0] > 0
    assert energy[1] > 0


WORK = st.builds(
    lambda r, w, v, t: pass_over(r, w, vector=v, functions=t),
    st.integers(0, 10**10), st.integers(0, 10**10), st.floats(0, 1e13), st.floats(0, 1e12),
)  # fmt: skip
PRODUCTS = st.builds(
    lambda m, n, k, d, p: gemm(m, n, k, dtype=d, precision=p),
    st.integers(1, 8192), st.integers(1, 8192), st.integers(1, 8192),
    st.sampled_from(["bf16", "f32", "f8E4M3FN", "i8"]), st.sampled_from(["DEFAULT", "HIGH", "HIGHEST"]),
)  # fmt: skip
KERNELS = st.one_of(WORK, PRODUCTS)


@settings(deadline=None, max_examples=50)
@given(KERNELS)
def test_no_kernel_beats_the_speed_of_light(kernel: Kernel) -> None:
    time = seconds(kernel)
    assert time >= kernel.matrix_flops / max(GPU.matrix_flops.values())
    assert time >= (kernel.read_bytes + kernel.written_bytes) / 8e12
    assert time >= kernel.transcendentals / 4e12


@settings(deadline=None, max_examples=50)
@given(KERNELS, st.floats(1, 4), st.floats(1, 4), st.floats(1, 4))
def test_a_faster_device_is_never_slower(kernel: Kernel, memory: float, engines: float, functions: float) -> None:
    faster = replace(
        GPU,
        memory_bandwidth=memory * GPU.memory_bandwidth,
        matrix_flops={k: engines * v for k, v in GPU.matrix_flops.items()},
        vector_flops={k: engines * v for k, v in GPU.vector_flops.items()},
        transcendental_rate=functions * 4e12,
    )
    assert seconds(kernel, faster) <= seconds(kernel) * (1 + 1e-12)


def test_equal_kernels_are_costed_once() -> None:
    lowered = lower_function(lambda x, y: ((x @ y) @ (y @ x)) @ x, spec(64, 64), spec(64, 64))
    estimates = estimate_kernels(lowered, GPU, [Roofline()])
    assert lowered.kernel_count == 4
    assert len(estimates.by_key) == 1
