"""Launches put beside kernels: instructions inside CUDA graphs, shared kernels, a single convolution."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast.evidence.calibrate.timed import instruction_launches, timed_kernels, timed_model
from meshcast.lower import Kernel, KernelKind

HLO = """HloModule m, is_scheduled=true

%fused (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %n = f32[64,64]{1,0} negate(%p)
}

%fused.1 (p.1: f32[64,64]) -> f32[64,64] {
  %p.1 = f32[64,64]{1,0} parameter(0)
  ROOT %n.1 = f32[64,64]{1,0} negate(%p.1)
}

%fused.2 (p.2: f32[64,64]) -> f32[64,64] {
  %p.2 = f32[64,64]{1,0} parameter(0)
  ROOT %e.2 = f32[64,64]{1,0} exponential(%p.2)
}

ENTRY %main {
  %a = f32[64,64]{1,0} parameter(0)
  %neg-fusion = f32[64,64]{1,0} fusion(%a), kind=kLoop, calls=%fused, metadata={deduplicated_name="neg-fusion"}
  %neg-fusion.1 = f32[64,64]{1,0} fusion(%neg-fusion), kind=kLoop, calls=%fused.1, metadata={deduplicated_name="neg-fusion"}
  ROOT %exp.fusion = f32[64,64]{1,0} fusion(%neg-fusion.1), kind=kLoop, calls=%fused.2
}
"""


def launch(op: str, kernel: str, us: float, count: float = 1.0) -> dict[str, Any]:
    return {"hlo_op": op, "kernel": kernel, "us": us, "count": count}


def test_kernels_of_a_graph_are_found_by_their_symbol() -> None:
    """Two negations share a kernel that ran twice, 6 us in all; the exponential took 5 us."""
    seen = [launch("command_buffer_7", "neg_fusion", 6.0, 2.0), launch("command_buffer_7", "exp_fusion", 5.0)]
    found = {item["hlo_op"]: item["us"] for item in instruction_launches(seen, HLO)}
    assert found == {"neg-fusion": 3.0, "neg-fusion.1": 3.0, "exp.fusion": 5.0}
    timed = timed_model(seen, [], HLO, 11.0)
    assert [seconds for _, seconds in timed] == pytest.approx([3e-6, 3e-6, 5e-6])
    assert all(kernel.read_bytes == kernel.written_bytes == 64 * 64 * 4 for kernel, _ in timed)


def test_equal_fusions_may_still_have_kernels_of_their_own() -> None:
    seen = [launch("command_buffer_7", "neg_fusion", 2.0), launch("command_buffer_7", "neg_fusion_1", 4.0)]
    assert [item["us"] for item in instruction_launches(seen, HLO)] == [3.0, 3.0]


def test_launches_outside_of_graphs_name_their_instruction() -> None:
    seen = [launch("neg-fusion", "neg_fusion", 2.0), launch("neg-fusion.1", "neg_fusion", 4.0)]
    assert {item["hlo_op"]: item["us"] for item in instruction_launches(seen, HLO)} == {
        "neg-fusion": 2.0,
        "neg-fusion.1": 4.0,
    }


def test_a_kernel_that_ran_more_often_than_its_instructions_is_left_out() -> None:
    assert instruction_launches([launch("command_buffer_1", "neg_fusion", 6.0, 5.0)], HLO) == []


def test_a_library_launches_what_it_likes() -> None:
    seen = [launch("exp.fusion", "vendor_main", 6.0), launch("exp.fusion", "vendor_tail", 1.0)]
    (found,) = instruction_launches(seen, HLO)
    assert (found["hlo_op"], found["us"]) == ("exp.fusion", 7.0)


def _kernel(kind: KernelKind) -> Kernel:
    return Kernel(name="", kind=kind, dtype="bf16", read_bytes=8, written_bytes=8)


def test_a_single_convolution_takes_as_long_as_its_library() -> None:
    convolution, transpose = _kernel(KernelKind.CONVOLUTION), _kernel(KernelKind.TRANSPOSE)
    seen = [launch("cudnn-conv-bw-filter.1", "xmma", 30.0), launch("cudnn-conv-bw-filter.1", "nchw", 2.0)]
    seen.append(launch("loop_transpose_fusion", "loop_transpose_fusion", 5.0))
    assert timed_kernels(seen, [(convolution, 1), (transpose, 1)], None, 37.0) == [(convolution, pytest.approx(32e-6))]
    assert timed_kernels(seen, [(convolution, 2), (transpose, 1)], None, 37.0) == []
    assert timed_kernels(seen, [(convolution, 1)], None, 37.0) == [(convolution, pytest.approx(37e-6))]
