"""Fused attention on TPUs by hand: whole blocks, whole arrays, steps of the grid."""

from __future__ import annotations

import pytest

from meshcast.estimate.tpu.attention import BLOCKS, attention
from meshcast.hardware import load_device
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.workload.graph import Attention
from meshcast.workload.rules.attention import attended
from tests.estimate.tpu.test_models import far, machine, seconds

V6E = load_device("tpu-v6e")


def attending(length: int, head: int, *, window: int = 0, block: int = 0, causal: bool = True) -> Kernel:
    """Attention of four heads, forward, as the reader counts it."""
    shape = Attention(
        batch=1, heads=4, kv_heads=4, q_len=length, kv_len=length, head_dim=head, dtype="bf16", causal=causal,
        backward=False, window=window, block=block,
    )  # fmt: skip
    scores = 4 * attended(shape)
    return Kernel(
        kind=KernelKind.ATTENTION, name="attention", dtype="bf16", matrix_flops=4 * scores * head,
        vector_flops=4 * scores, transcendentals=scores, geometry=shape,
    )  # fmt: skip


def test_heads_take_whole_arrays() -> None:
    """v6e's arrays are 256 wide: heads of 128 take as long as heads of 256 on them; v5e's are full of either."""
    for name, ratio in (("tpu-v6e", 1.0), ("tpu-v5e", 2.0)):
        unhidden = machine(name, softmax_share=1e-9, step_cycles=1e-9, kernel_cycles=1e-9)
        narrow, wide = (attention(attending(8192, head), unhidden).time for head in (128, 256))
        assert wide / narrow == pytest.approx(ratio, rel=1e-3)


def test_attention_is_computed_in_whole_blocks() -> None:
    """Arrays alone: a causal mask's blocks are n (n + 1) / 2 of n^2, a window's end on both sides inside of blocks."""
    arrays = machine(softmax_share=1e-9, step_cycles=1e-9, kernel_cycles=1e-9)
    all_pairs = attention(attending(4096, 256, causal=False), arrays).time
    triangle = attention(attending(4096, 256, block=1024), arrays).time
    assert triangle / all_pairs == pytest.approx(10 / 16, rel=1e-3)
    band = attention(attending(4096, 256, window=512, block=512), arrays).time
    assert band / all_pairs == pytest.approx((512 + 512 - 32) / 4096, rel=0.02)


def test_every_step_of_the_grid_costs() -> None:
    """Nothing but steps: 4 heads of 8 x 8 blocks, computed or skipped; a window of one block visits two a row."""
    steps = machine(array_loss=1e-9, softmax_share=1e-9, step_cycles=1e9, kernel_cycles=1e-9)
    counted = attention(attending(4096, 128, block=512), steps).time * V6E.clock_hz / 1e9
    assert counted == pytest.approx(4 * 8 * 8, rel=1e-3)
    near = attention(attending(4096, 128, window=512, block=512), steps).time * V6E.clock_hz / 1e9
    assert near == pytest.approx(4 * 8 * 2, rel=1e-3)


def test_blocks_that_are_not_told_are_the_fastest() -> None:
    for length in (512, 4096, 32768):
        told = [seconds(far(attending(length, 128, block=block))) for block in BLOCKS]
        assert seconds(far(attending(length, 128))) == min(told)
