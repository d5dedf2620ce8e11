"""Launches of one probe beside our kernels: products that XLA splits, calls matched by their work; times by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.evidence.calibrate.pairing import paired_kernels
from meshcast.lower import Kernel
from meshcast.workload.graph import Gemm
from tests.estimate.conformance import gemm, pass_over
from tests.evidence.calibrate.test_timed import launch

# 64 x 256 x 64 in two parts of K, which are added up, and a pass over the sum.
SPLIT = """HloModule m, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%fused_sum (p: f32[2,64,64]) -> f32[64,64] {
  %p = f32[2,64,64]{2,1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[64,64]{1,0} reduce(%p, %zero), dimensions={0}, to_apply=%add
}

%fused_exp (q: f32[64,64]) -> f32[64,64] {
  %q = f32[64,64]{1,0} parameter(0)
  ROOT %e = f32[64,64]{1,0} exponential(%q)
}

ENTRY %main {
  %a = f32[2,64,128]{2,1,0} parameter(0)
  %b = f32[2,128,64]{2,1,0} parameter(1)
  %dot = (f32[2,64,64]{2,1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}
  %parts = f32[2,64,64]{2,1,0} get-tuple-element(%dot), index=0
  %sum = f32[64,64]{1,0} fusion(%parts), kind=kInput, calls=%fused_sum
  ROOT %exp = f32[64,64]{1,0} fusion(%sum), kind=kLoop, calls=%fused_exp
}
"""  # noqa: E501
SEEN = [launch("dot", "nvjet", 7.0), launch("sum", "sum", 2.0), launch("exp", "exp", 1.0)]
WHOLE = gemm(64, 64, 256, dtype="f32", out="f32")
PASS = pass_over(64 * 64 * 4, 64 * 64 * 4)


def products(modelled: list[Kernel]) -> tuple[list[tuple[int, float]], list[float]]:
    """(batch, microseconds) of products, and microseconds of all other kernels."""
    found = paired_kernels(SEEN, [(kernel, 1) for kernel in modelled], SPLIT, 10.0)
    calls = [(k.geometry.batch, s * 1e6) for k, s in found if isinstance(k.geometry, Gemm)]
    return calls, [s * 1e6 for k, s in found if not isinstance(k.geometry, Gemm)]


def test_the_sum_of_a_split_products_parts_is_the_products_own() -> None:
    calls, others = products([WHOLE, PASS])
    assert calls == [(1, pytest.approx(7.0 + 2.0))]
    assert others == pytest.approx([1.0])


def test_a_reduction_after_a_whole_product_is_a_kernel_of_its_own() -> None:
    calls, others = products([gemm(64, 64, 128, dtype="f32", out="f32", batch=2), PASS])
    assert calls == [(2, pytest.approx(7.0))]
    assert others == pytest.approx([2.0, 1.0])


def other_work(share: float) -> Kernel:
    """A product of ours that moves the bytes of XLA's, 2 x (64 x 128 + 128 x 64 + 64 x 64) x 4.

    XLA's does 2^21 FLOPs, which is a share less than ours.
    """
    ours = gemm(64, 64, 128, dtype="f32", out="f32", batch=4)
    return replace(ours, matrix_flops=2.0**21 / (1 - share), read_bytes=131072, written_bytes=32768)


@pytest.mark.parametrize(("share", "ours"), [(0.0, True), (0.45, True), (0.55, False)])
def test_the_only_product_may_differ_by_half(share: float, ours: bool) -> None:
    calls, _ = products([other_work(share), PASS])
    assert [batch for batch, _ in calls] == [4 if ours else 2]  # or XLA's own, as nothing of ours is near


@pytest.mark.parametrize(("share", "ours"), [(0.08, True), (0.12, False)])
def test_one_of_several_products_must_do_the_same_work(share: float, ours: bool) -> None:
    far = replace(WHOLE, matrix_flops=2.0**30)
    calls, _ = products([far, other_work(share), PASS])
    assert [batch for batch, _ in calls] == [4 if ours else 2]


def test_what_waits_for_a_kernel_that_lets_it_start_early_is_left_out() -> None:
    """The sum behind cuBLAS's own kernel began before that ended; the pass behind the sum did not."""
    seen = [launch("dot", "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n", 7.0), launch("sum", "sum", 8.0), SEEN[2]]
    found = paired_kernels(seen, [(gemm(64, 64, 256, dtype="bf16"), 1), (PASS, 1)], SPLIT, 13.0)
    assert [s * 1e6 for k, s in found if not isinstance(k.geometry, Gemm)] == pytest.approx([1.0])
