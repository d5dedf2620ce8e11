"""cuDNN's attention captured where there is no GPU: forward and backward, masks, groups of heads, windows, biases."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax._src.cudnn import fused_attention_stablehlo as asked

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.programs import capture
from meshcast.workload import read_workload
from meshcast.workload.graph import Attention, Cost

QUERY = jax.ShapeDtypeStruct((2, 512, 8, 64), jnp.bfloat16)
KEY = jax.ShapeDtypeStruct((2, 512, 2, 64), jnp.bfloat16)
BIAS = jax.ShapeDtypeStruct((1, 8, 512, 512), jnp.bfloat16)


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn", **options)


def calls(function: Any, *args: Any) -> list[Cost]:
    workload = read_workload(capture(function, *args, name="attention"))
    return [op.cost for op in workload.body.ops if "cudnn" in op.name]


@pytest.mark.parametrize(
    ("options", "causal", "window"),
    [({}, False, 0), ({"is_causal": True}, True, 0), ({"is_causal": True, "local_window_size": (127, 0)}, True, 128)],
)
def test_cudnn_is_captured_without_a_gpu(options: dict[str, Any], causal: bool, window: int) -> None:
    (cost,) = calls(lambda q, k, v: attention(q, k, v, **options), QUERY, KEY, KEY)
    shape = cost.geometry
    assert isinstance(shape, Attention)
    assert (shape.heads, shape.kv_heads, shape.q_len, shape.causal, shape.window) == (8, 2, 512, causal, window)


def test_a_bias_is_one_more_operand() -> None:
    (cost,) = calls(lambda q, k, v, b: attention(q, k, v, bias=b), QUERY, QUERY, QUERY, BIAS)
    assert len(cost.operand_bytes) == 4


def test_forward_and_backward_are_a_call_each() -> None:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, is_causal=True).astype(jnp.float32).sum()

    shapes = [cost.geometry for cost in calls(jax.grad(loss, argnums=(0, 1, 2)), QUERY, KEY, KEY)]
    assert [shape.backward for shape in shapes if isinstance(shape, Attention)] == [False, True]


def test_jax_has_its_own_answers_back_afterwards() -> None:
    before = (asked.check_cudnn_version, asked.check_compute_capability)
    calls(attention, QUERY, KEY, KEY)
    with pytest.raises(InputError, match="head dim"):  # what cuDNN cannot do on any GPU is still refused
        capture(attention, *[jax.ShapeDtypeStruct((2, 512, 8, 260), jnp.bfloat16)] * 3)
    assert (asked.check_cudnn_version, asked.check_compute_capability) == before


def test_on_other_platforms_the_error_says_where_it_runs() -> None:
    for platform in ("rocm", "tpu"):
        with pytest.raises(UnsupportedError, match=r"cuDNN is not detected|dot_product_attention") as refused:
            capture(attention, QUERY, KEY, KEY, platform=platform)
        assert "NVIDIA" in (refused.value.fix or "")
