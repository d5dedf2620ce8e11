"""A plan changes who computes what, never what is computed: matrix FLOPs of all devices are those of one device.

What a plan adds is what it states: `remat` computes products again, and so the plan is compared with one device and the
same `remat`; the vocabulary is chosen such that nothing is padded.
"""

from __future__ import annotations

import math
from functools import cache

import pytest

from meshcast.capture.program import Program
from meshcast.partition import partition
from meshcast.pipeline import Options, predict
from meshcast.pipelined import Pipeline
from meshcast.plans import Plan, plan_target
from meshcast.workload import read_workload

BATCH, SEQ = 16, 64
GPT = "gpt2-tiny", {"vocab": "1024", "layers": "4"}
LLAMA = "llama3-tiny", {"layers": "4"}
MIXTRAL = "mixtral-tiny", {"layers": "2", "group": "16"}


def _matrix_flops(program: Program) -> float:
    return sum(read_workload(partition(program)).totals.matrix_flops.values())


@cache
def total_flops(model: str, settings: tuple[tuple[str, str], ...], plan: str) -> float:
    """Matrix FLOPs of a step on all devices."""
    said = {"batch": str(BATCH), "seq": str(SEQ), **dict(settings)}
    planned = plan_target(model, Plan.parse(plan), settings=said)
    if isinstance(planned, Program):
        return _matrix_flops(planned) * planned.devices
    assert isinstance(planned, Pipeline)
    times = planned.microbatches * planned.mesh.size
    return sum(
        part.count * times * (_matrix_flops(part.forward) + _matrix_flops(part.backward)) for part in planned.parts
    )


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=lambda model: model[0])
@pytest.mark.parametrize(
    ("plan", "alone"),
    [
        # Each parallelism alone.
        ("dp=4", "dp=1"),
        ("fsdp=4", "dp=1"),
        ("tp=4", "dp=1"),
        ("tp=4,sp=1", "dp=1"),
        ("cp=4", "dp=1"),
        ("cp=4,attention=ring", "dp=1"),
        ("pp=2", "dp=1"),
        ("pp=2,vp=2", "dp=1"),
        ("dp=4,zero=1", "dp=1"),
        ("dp=4,zero=2", "dp=1"),
        ("dp=4,zero=3", "dp=1"),
        # Together.
        ("dp=2,tp=2,mbs=2,remat=full", "remat=full"),
        ("dp=2,fsdp=2,tp=2,sp=1,remat=selective", "remat=selective"),
        ("fsdp=2,cp=2,tp=2,attention=ring", "dp=1"),
        ("dp=2,tp=2,pp=2,remat=full", "remat=full"),
        ("dp=2,tp=2,sp=1,pp=2,vp=2,zero=1,remat=selective", "remat=selective"),
        ("fsdp=2,tp=2,pp=4,remat=products", "remat=products"),
        ("cp=2,tp=2,pp=2,attention=ring,remat=full", "remat=full"),
        ("fsdp=2,cp=2,pp=2,vp=2,remat=full", "remat=full"),
        ("dp=2,fsdp=2,tp=2,pp=2,zero=1,mbs=2,remat=selective", "remat=selective"),
        ("pp=4,layers-per-stage=0+2x2+0,tp=2", "dp=1"),
    ],
)  # fmt: skip
def test_flops_stay(model: tuple[str, dict[str, str]], plan: str, alone: str) -> None:
    name, settings = model
    items = tuple(settings.items())
    assert total_flops(name, items, plan) == pytest.approx(total_flops(name, items, alone), rel=1e-9)


@pytest.mark.parametrize("plan", ["ep=4", "dp=2,ep=2", "fsdp=2,ep=2,tp=2", "ep=4,pp=2", "ep=2,cp=2"])
def test_flops_of_experts_stay(plan: str) -> None:
    """Tensor parallelism splits experts, not the choice of them: routing and the one-hot products are on all devices."""
    name, settings = MIXTRAL
    items = tuple(settings.items())
    tokens, dim, experts, active, group = BATCH * SEQ, 64, 8, 2, 16
    slots = experts * math.ceil(active * group * 1.25 / experts)
    router, combine, dispatch = 3 * dim * experts, 3 * dim * slots, 2 * dim * slots  # of passes forward and backward
    repeated = 2 * tokens * 2 * (router + combine + dispatch + 2 * active * slots)
    expected = total_flops(name, items, "dp=1") + (Plan.parse(plan).tp - 1) * repeated
    assert total_flops(name, items, plan) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("plan", ["precision=fp8", "precision=fp8,dp=2,tp=2,sp=1", "precision=fp8,fsdp=2,pp=2"])
def test_precision_changes_no_count(plan: str) -> None:
    name, items = LLAMA[0], tuple(LLAMA[1].items())
    assert total_flops(name, items, plan) == pytest.approx(total_flops(name, items, "dp=1"), rel=1e-9)


def test_recomputation_is_what_it_says() -> None:
    """`full` adds the layers' forward pass, `selective` attention's two products, `products` and `none` nothing."""
    name, items = LLAMA[0], tuple(LLAMA[1].items())
    none, products, selective, full = (
        total_flops(name, items, f"remat={remat}") for remat in ("none", "products", "selective", "full")
    )
    tokens, layers, dim, width = BATCH * SEQ, 4, 64, 8 * 16
    attention = 2 * 2 * tokens * SEQ * width * layers
    weights = layers * (dim * width + 2 * dim * 4 * 16 + width * dim + 3 * dim * 128)
    assert products == none
    assert 0 < selective - none <= attention  # the last product of the two is not needed again
    # The last products of a layer, wo and down, are not needed again.
    assert attention + 2 * tokens * (weights - layers * 128 * dim) >= full - none >= selective - none


def test_every_second_product_is_computed_again() -> None:
    """`alternate`: keys, the attention's result and `up` of the seven products of a layer; in fp8 all that are needed."""
    name, items = LLAMA[0], tuple(LLAMA[1].items())
    kept, alternate = (
        total_flops(name, items, f"attention=flash,remat={remat}") for remat in ("products", "alternate")
    )
    tokens, layers, dim, width = BATCH * SEQ, 4, 64, 8 * 16
    second = dim * 4 * 16 + width * dim + dim * 128
    assert alternate - kept == pytest.approx(2 * tokens * layers * second)
    narrow = total_flops(name, items, "attention=flash,remat=alternate,precision=fp8")
    needed = dim * width + 2 * dim * 4 * 16 + width * dim + 2 * dim * 128
    assert narrow - kept == pytest.approx(2 * tokens * layers * needed)


def test_fused_attention_is_causal() -> None:
    """The fused kernel skips masked scores, and its backward pass has five products to the forward's two."""
    name, items = GPT[0], tuple(GPT[1].items())
    plain, flash = (total_flops(name, items, f"attention={kind}") for kind in ("plain", "flash"))
    pairs, width, layers = SEQ * (SEQ + 1) // 2, 64, 4
    assert plain - flash == pytest.approx(BATCH * layers * width * (12 * SEQ**2 - 14 * pairs))
    assert total_flops(name, items, "attention=flash,dp=2,tp=2") == pytest.approx(flash)
    assert total_flops(name, items, "attention=flash,dp=2,tp=2,sp=1,pp=2") == pytest.approx(flash)


@pytest.mark.parametrize(
    "plan",
    ["dp=2,tp=2", "fsdp=4,zero=0,remat=full", "dp=4,zero=1", "dp=2,tp=2,pp=2,remat=full", "dp=2,pp=2,vp=2,zero=1"],
)
def test_memory_adds_up(plan: str) -> None:
    settings = {"batch": "16", "seq": "64", "layers": "4"}
    prediction = predict("llama3-tiny", Options(on="dgx-h100", plan=plan, settings=settings))
    memory = prediction.memory
    assert memory.peak == memory.arguments + memory.outputs + memory.temporaries - memory.aliased
    assert sum(memory.by_role.values()) == memory.arguments
    if prediction.pipeline is not None:
        for stage in prediction.pipeline.stages:
            parts = dict(stage.memory_bytes)
            assert parts.pop("peak") == sum(parts.values())


def test_the_optimizer_is_shared_out() -> None:
    """Adam's moments and, in half precision, the fp32 copy: 12 bytes a parameter over four replicas."""
    settings = {"batch": "16", "seq": "64"}
    whole, shared = (
        predict("llama3-tiny", Options(on="dgx-h100", plan=plan, settings=settings)).memory.by_role
        for plan in ("dp=4", "dp=4,zero=1")
    )
    parameters = whole["parameter"] / 4
    assert whole["optimizer_state"] == pytest.approx(8 * parameters, rel=1e-4)
    assert shared["parameter"] == 2 * parameters
    assert shared["optimizer_state"] == pytest.approx(12 * parameters / 4, rel=1e-4)
