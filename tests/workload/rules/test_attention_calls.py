"""Attention calls of TPUs and of Transformer Engine: FLOPs from names, operands and attributes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.workload.graph import Attention, Cost
from meshcast.zoo.attention_note import ATTENTION_NOTE

CostOf = Callable[..., Cost]
B, H, K, S, D = 2, 8, 2, 1024, 128
Q, KV, ROWS = f"tensor<{B}x{H}x{S}x{D}xbf16>", f"tensor<{B}x{K}x{S}x{D}xbf16>", f"tensor<{B}x{H}x{S}xf32>"
PAIRS = S * (S + 1) // 2


def _quoted(value: object) -> str:
    return json.dumps(value).replace("\\", "\\5C").replace('"', "\\22")


def _splash(
    cost_of: CostOf, name: str, operands: list[str], results: list[str], frontend: dict[str, object] | None = None
) -> Cost:
    noted = ", ".join(f'{key} = "{_quoted(value)}"' for key, value in (frontend or {}).items())
    more = f", mhlo.frontend_attributes = {{{noted}}}" if noted else ""
    attributes = f'call_target_name = "tpu_custom_call", kernel_name = "{name}", backend_config = ""{more}'
    return cost_of("stablehlo.custom_call", operands, results, attributes)


def _note(**more: Any) -> dict[str, object]:
    return {f'"{ATTENTION_NOTE}"': {"causal": True, "window": 0, "heads_first": True, **more}}


@pytest.mark.parametrize(("phase", "widths"), [("fwd_residuals", 2), ("dkv_no_residuals", 4), ("dq_no_residuals", 3)])
def test_a_noted_kernel_is_counted_by_its_pairs(cost_of: CostOf, phase: str, widths: int) -> None:
    more = [] if phase.startswith("fwd") else [ROWS, Q, ROWS]
    cost = _splash(cost_of, f"splash_mha_{phase}", [Q, KV, KV, *more], [Q], _note())
    assert cost.matrix_flops == 2 * B * H * PAIRS * widths * D
    assert cost.transcendentals == B * H * PAIRS
    assert isinstance(cost.geometry, Attention)
    assert (cost.geometry.heads, cost.geometry.kv_heads, cost.geometry.backward) == (H, K, widths > 2)


def test_a_window_and_lengths_first(cost_of: CostOf) -> None:
    q, kv = f"tensor<{B}x{S}x{H}x{D}xbf16>", f"tensor<{B}x{S}x{K}x{D}xbf16>"
    cost = _splash(cost_of, "splash_mha_fwd_no_residuals", [q, kv, kv], [q], _note(window=256, heads_first=False))
    assert cost.transcendentals == B * H * (256 * 257 // 2 + (S - 256) * 256)


@pytest.mark.parametrize(
    ("numbers", "columns", "causal", "window"),
    [([], 4, False, 0), ([f"tensor<{S}x128xi32>"], 4, True, 0), ([f"tensor<{S}x128xi32>"], 2, True, 256)],
)
def test_jax_own_kernel_by_its_shapes(
    cost_of: CostOf, numbers: list[str], columns: int, causal: bool, window: int
) -> None:
    """Positions of queries are an operand where the mask is computed, and a window's grid has fewer blocks a row."""
    mask = f"tensor<1x4x{columns}xi8>"
    metadata = {"xprof_metadata": json.dumps({"block_q": 256, "block_kv": 256})}
    cost = _splash(
        cost_of, "splash_mha_fwd_residuals", [mask, mask, Q, KV, KV, *numbers], [Q, ROWS],
        {"kernel_metadata": metadata},
    )  # fmt: skip
    assert isinstance(cost.geometry, Attention)
    assert (cost.geometry.causal, cost.geometry.window, cost.geometry.block) == (causal, window, 256)


def test_one_head_of_keys_without_a_dimension(cost_of: CostOf) -> None:
    key = f"tensor<{B}x{S}x{D}xbf16>"
    cost = _splash(cost_of, "splash_mqa_fwd_residuals", [Q, key, key], [Q])
    assert isinstance(cost.geometry, Attention)
    assert (cost.geometry.batch, cost.geometry.kv_heads, cost.geometry.kv_len) == (B, 1, S)
    assert cost.matrix_flops == 4 * B * H * S * S * D


def test_backward_passes_of_flash_attention_count_all_pairs(cost_of: CostOf) -> None:
    cost = _splash(cost_of, "_flash_attention_dkv_kernel", [Q, Q, Q, ROWS, ROWS, Q, ROWS], [Q, Q])
    assert cost.matrix_flops == 8 * B * H * S * S * D


def test_other_kernels_stay_unknown(cost_of: CostOf) -> None:
    with pytest.raises(UnsupportedError, match="no cost_estimate"):
        _splash(cost_of, "my_kernel", [Q, KV, KV], [Q])


def _engine(cost_of: CostOf, target: str, **config: int) -> Cost:
    sizes = {
        "input_batch": B, "q_max_seqlen": S, "kv_max_seqlen": S, "attn_heads": H, "num_gqa_groups": K,
        "qk_head_dim": D, "v_head_dim": 64, "mask_type": 2, "window_size_left": -1, **config,
    }  # fmt: skip
    typed = ", ".join(f"{name} = {size} : i64" for name, size in sizes.items() if size is not None)
    attributes = f'call_target_name = "{target}", api_version = 4 : i32, mhlo.backend_config = {{{typed}}}'
    return cost_of("stablehlo.custom_call", [Q, KV, KV], [Q, "tensor<0xui8>"], attributes)


def test_transformer_engine_says_its_sizes(cost_of: CostOf) -> None:
    forward, backward = (_engine(cost_of, f"te_fused_attn_{way}_ffi") for way in ("forward", "backward"))
    assert forward.matrix_flops == 2 * B * H * PAIRS * (D + 64)
    assert backward.matrix_flops == 2 * B * H * PAIRS * (3 * D + 2 * 64)
    assert _engine(cost_of, "te_fused_attn_forward_ffi", mask_type=0).transcendentals == B * H * S * S
    near = _engine(cost_of, "te_fused_attn_forward_ffi", window_size_left=255)
    assert near.transcendentals == B * H * (256 * 257 // 2 + (S - 256) * 256)


def test_transformer_engine_without_sizes_is_refused(cost_of: CostOf) -> None:
    attributes = 'call_target_name = "te_fused_attn_forward_ffi", mhlo.backend_config = {attn_heads = 8 : i64}'
    with pytest.raises(UnsupportedError, match="no input_batch, q_max_seqlen"):
        cost_of("stablehlo.custom_call", [Q, KV, KV], [Q], attributes)
