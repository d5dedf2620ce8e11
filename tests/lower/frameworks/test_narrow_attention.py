"""Fused attention in 8 bits, as a rewrite of a lowered program and as a run's words ask for it."""

from __future__ import annotations

from dataclasses import replace

from meshcast.estimate.measurements.silicon_kernels import attention_kernel
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.software import overlap_of
from meshcast.lower.frameworks.narrow_attention import NARROW, with_narrow_attention
from meshcast.lower.kernel import Kernel, LoopStep, Schedule, Step
from meshcast.options import load_stack
from meshcast.workload.graph import Attention

SHAPE = Attention(
    batch=1, heads=8, kv_heads=8, q_len=1024, kv_len=1024, head_dim=128, dtype="bf16", causal=True, backward=False
)


def block(*steps: Step) -> Schedule:
    return Schedule(inputs=(), outputs=(), steps=steps)


def only(schedule: Schedule) -> Kernel:
    (step,) = schedule.steps
    assert isinstance(step, Kernel)
    return step


def test_attention_of_two_bytes_becomes_one() -> None:
    wide = attention_kernel(SHAPE)
    narrow = only(with_narrow_attention(block(wide)))
    assert narrow == replace(wide, dtype=NARROW, geometry=replace(SHAPE, dtype=NARROW))


def test_it_is_found_inside_loops() -> None:
    loop = LoopStep(label="while", body=block(attention_kernel(SHAPE)), trips=2, reads=(), writes=())
    (found,) = with_narrow_attention(block(loop)).steps
    assert isinstance(found, LoopStep)
    assert only(found.body).dtype == NARROW


def test_attention_in_fp32_stays() -> None:
    wide = attention_kernel(replace(SHAPE, dtype="f32"))
    assert with_narrow_attention(block(wide)) == block(wide)


def test_a_run_asks_for_it_by_a_word() -> None:
    run = StatedRun(
        device="gb300", devices=8, model="llama3-8b", extra=Extras.read("dispatcher=hybridep;fp8_attention")
    )
    assert overlap_of(run, load_stack("nemo")).endswith(",narrow-attention")
    assert "narrow-attention" not in overlap_of(replace(run, extra=Extras()), load_stack("nemo"))
