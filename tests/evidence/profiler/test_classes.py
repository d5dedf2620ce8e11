"""Classes by names as profilers report them."""

from __future__ import annotations

import pytest

from meshcast.evidence.profiler import MeasuredKernel
from meshcast.evidence.profiler.classes import class_of, is_collective


@pytest.mark.parametrize(
    ("op", "scope", "name", "expected"),
    [
        ("custom-call.6", "", "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "matmul"),
        ("cudnn-conv.3", "", "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "convolution"),
        ("gemm_fusion_dot.2", "", "gemm_fusion_dot_2", "matmul"),
        ("", "", "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "convolution"),
        ("", "aten::_cudnn_attention_backward", "void cudnn::fusion::convert_dq_to_16bits<true>(...)", "attention"),
        ("", "aten::mm", "Memset (Device)", "copy"),
        ("", "", "[CUDA memcpy Host-to-Device]", "copy"),
        ("loop_dynamic_slice_fusion.26", "jit(f)/while", "MemcpyD2D", "copy"),
        ("input_reduce_fusion.1", "", "input_reduce_fusion_1", "reduction"),
        ("loop_convert_fusion", "", "loop_convert_fusion", "element-wise"),
        ("", "aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<...>", "element-wise"),
        ("", "aten::_log_softmax", "cunn_SoftMaxForward<4, float>", "reduction"),
        ("input_scatter_fusion", "", "input_scatter_fusion", "gather and scatter"),
        ("", "", "DeviceRadixSortOnesweepKernel", "sort"),
        ("all-reduce-start.1", "", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collective: all-reduce"),
        ("", "", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "collective: reduce-scatter"),
        ("", "", "ncclDevKernel_AllGather_RING_LL", "collective: all-gather"),
        ("", "", "ncclDevKernel_SendRecv", "collective: collective-permute"),
        ("", "nccl:all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "collective: all-to-all"),
        ("", "nccl:_allgather_base", "ncclDevKernel_Generic_4(...)", "collective: all-gather"),
        ("", "nccl:_reduce_scatter_base", "ncclKernel_ReduceScatter_RING_LL", "collective: reduce-scatter"),
        ("", "", "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(...)", "attention"),
        ("", "aten::cudnn_convolution", "void cudnn::engines_precompiled::nchwToNhwcKernel<...>", "copy"),
        ("fusion.12", "", "sort_4_1", "sort"),
        ("fusion.12", "", "fusion_12", "element-wise"),
        ("", "", "my_secret_kernel", "other"),
        ("", "", "", "other"),
    ],
)
def test_classes(op: str, scope: str, name: str, expected: str) -> None:
    found = class_of(MeasuredKernel(name=name, op=op, scope=scope, start=0.0, duration=1.0))
    assert found == expected
    assert is_collective(found) == expected.startswith("collective")
