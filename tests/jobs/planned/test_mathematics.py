"""A plan changes who computes what, never what is computed.

Matrix FLOPs of all devices are those of one device and what the plan says that it computes besides: products that `remat`
makes again, and routing that devices of `tp` repeat. The vocabulary is chosen such that nothing is padded.
"""

from __future__ import annotations

from functools import cache
from unittest import mock

import pytest

from meshcast import Options, predict
from meshcast.jobs.pipeline import Pipeline
from meshcast.jobs.planned import Plan, Redundancy, plan_target, redundancy
from meshcast.jobs.planned.stages import build_pipeline
from meshcast.jobs.planned.target import model_of
from meshcast.partition import partition
from meshcast.programs import setting_value
from meshcast.programs.program import Program
from meshcast.workload import read_workload

BATCH, SEQ = 16, 64
GPT = "gpt2-tiny", {"vocab": "1024", "layers": "4"}
LLAMA = "llama3-tiny", {"layers": "4"}
MIXTRAL = "mixtral-tiny", {"layers": "2", "group": "16"}


def _matrix_flops(program: Program) -> float:
    return sum(read_workload(partition(program)).totals.matrix_flops.values())


def _settings(model: str) -> dict[str, str]:
    sizes = dict([GPT, LLAMA, MIXTRAL])[model]
    return {"batch": str(BATCH), "seq": str(SEQ), **sizes}


def _without_updates(model: str, plan: Plan, settings: dict[str, str]) -> Pipeline:
    """A pipeline whose optimizer, which has no products, is not captured; such a one is not kept for others."""
    chosen = {name: setting_value(text) for name, text in settings.items()}
    with mock.patch("meshcast.jobs.planned.stages._update", return_value=None):
        return build_pipeline(model_of(model), plan, chosen, "cuda")


@cache
def total_flops(model: str, plan: str, **settings: str) -> float:
    """Matrix FLOPs of a step on all devices."""
    parsed, asked = Plan.parse(plan), {**_settings(model), **settings}
    if parsed.one_program:
        program = plan_target(model, parsed, settings=asked)
        assert isinstance(program, Program)
        return _matrix_flops(program) * program.devices
    planned = _without_updates(model, parsed, asked)
    passes = [
        part.count * _matrix_flops(program)
        for part in planned.parts
        for program in (part.forward, part.backward, part.weight)
        if program is not None
    ]
    return planned.microbatches * planned.mesh.size * sum(passes)


@cache
def stated(model: str, tp: int, remat: str) -> Redundancy:
    """What a plan says; it depends on no other key."""
    said = redundancy(model, Plan.parse(f"tp={tp},remat={remat}"), settings=_settings(model))
    assert (said.recomputed_flops > 0) == (remat in ("selective", "full", "whole"))
    assert (said.repeated_flops > 0) == (tp > 1 and model == MIXTRAL[0])
    return said


# Keys alone, but those that stand among others below in the same way: tp, fsdp, a plain pipeline, remat.
ALONE = [
    "dp=4", "tp=4,sp=1", "cp=4", "cp=4,attention=ring", "pp=2,vp=2", "pp=2,schedule=zb-h1", "dp=4,zero=1", "dp=4,zero=2",
    "cp=4,zero=3", "fsdp=4,offload=optimizer",
]  # fmt: skip
TOGETHER = [
    "dp=2,tp=2,mbs=2,remat=full",
    "dp=2,fsdp=2,tp=2,sp=1,remat=selective",
    "fsdp=2,cp=2,tp=2,attention=ring",
    "dp=2,tp=2,pp=2,remat=full",
    "dp=2,tp=2,sp=1,pp=2,vp=2,zero=1,remat=selective",
    "fsdp=2,tp=2,pp=2,remat=products",
    "cp=2,tp=2,pp=2,attention=ring,remat=full",
    "fsdp=2,cp=2,pp=2,vp=2,remat=full",
    "dp=2,fsdp=2,tp=2,pp=2,zero=1,mbs=2,remat=selective",
    "pp=4,layers-per-stage=0+2x2+0,tp=2",
    "fsdp=2,tp=2,sp=1,pp=4,schedule=zb-h2,remat=full",
]


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        *((LLAMA[0], plan) for plan in ALONE),
        *((GPT[0], plan) for plan in TOGETHER),
        *((MIXTRAL[0], plan) for plan in ("ep=4", "fsdp=2,ep=2,tp=2", "ep=2,tp=2,pp=2,remat=full", "ep=2,cp=2")),
    ],
)
def test_flops_are_the_model_and_what_the_plan_states(model: str, plan: str) -> None:
    parsed = Plan.parse(plan)
    assert total_flops(model, plan) == pytest.approx(stated(model, parsed.tp, parsed.remat).total_flops, rel=1e-9)


def test_the_redundancy_can_be_printed() -> None:
    said = stated(MIXTRAL[0], 2, "full")
    assert said.share == pytest.approx((said.recomputed_flops + said.repeated_flops) / said.model_flops)
    assert f"{100 * said.share:.2f} %" in str(said)


@pytest.mark.parametrize("plan", ["precision=fp8", "precision=fp8,dp=2,tp=2,sp=1", "precision=fp8,fsdp=2,pp=2"])
def test_precision_changes_no_count(plan: str) -> None:
    assert total_flops(LLAMA[0], plan) == pytest.approx(stated(LLAMA[0], 1, "none").total_flops, rel=1e-9)


def test_recomputation_is_what_it_says() -> None:
    """`full` adds the layers' forward pass, `selective` attention's two products, `products` and `none` nothing."""
    none, products, selective, full = (
        total_flops(LLAMA[0], f"remat={remat}") for remat in ("none", "products", "selective", "full")
    )
    tokens, layers, dim, width = BATCH * SEQ, 4, 64, 8 * 16
    attention = 2 * 2 * tokens * SEQ * width * layers
    weights = layers * (dim * width + 2 * dim * 4 * 16 + width * dim + 3 * dim * 128)
    assert products == none
    assert 0 < selective - none <= attention  # the last product of the two is not needed again
    # The last products of a layer, wo and down, are not needed again.
    assert attention + 2 * tokens * (weights - layers * 128 * dim) >= full - none >= selective - none


@pytest.mark.parametrize("parallel", ["", ",tp=2", ",pp=2", ",pp=2,vp=2"])
def test_whole_layers_run_again_to_their_end(parallel: str) -> None:
    """`whole`: the forward pass of all layers and nothing less, so `full` and the last product of each, `down`."""
    none, full, whole = (total_flops(LLAMA[0], f"remat={remat}{parallel}") for remat in ("none", "full", "whole"))
    tokens, layers, dim, width, ffn = BATCH * SEQ, 4, 64, 8 * 16, 128
    weights = layers * (dim * width + 2 * dim * 4 * 16 + width * dim + 3 * dim * ffn)
    attention = 2 * 2 * tokens * SEQ * width * layers
    assert whole - none == pytest.approx(2 * tokens * weights + attention)
    assert whole - full == pytest.approx(2 * tokens * layers * ffn * dim)


def test_every_second_product_is_computed_again() -> None:
    """`alternate`: keys, the attention's result and `up` of the seven products of a layer; in fp8 all that are needed."""
    kept, alternate = (total_flops(LLAMA[0], f"attention=flash,remat={remat}") for remat in ("products", "alternate"))
    tokens, layers, dim, width = BATCH * SEQ, 4, 64, 8 * 16
    second = dim * 4 * 16 + width * dim + dim * 128
    assert alternate - kept == pytest.approx(2 * tokens * layers * second)
    narrow = total_flops(LLAMA[0], "attention=flash,remat=alternate,precision=fp8")
    needed = dim * width + 2 * dim * 4 * 16 + width * dim + 2 * dim * 128
    assert narrow - kept == pytest.approx(2 * tokens * layers * needed)


def test_fused_attention_is_causal() -> None:
    """The fused kernel skips masked scores, and its backward pass has five products to the forward's two."""
    plain, flash = (total_flops(GPT[0], f"attention={kind}") for kind in ("plain", "flash"))
    pairs, width, layers = SEQ * (SEQ + 1) // 2, 64, 4
    assert plain - flash == pytest.approx(BATCH * layers * width * (12 * SEQ**2 - 14 * pairs))
    assert total_flops(GPT[0], "attention=flash,dp=2,tp=2") == pytest.approx(flash)
    assert total_flops(GPT[0], "attention=flash,dp=2,tp=2,sp=1,pp=2") == pytest.approx(flash)


@pytest.mark.parametrize(
    ("name", "plan", "kind"),
    [
        (GPT[0], "cp=2", "flash"),
        (LLAMA[0], "cp=2", "flash-ring"),
        (LLAMA[0], "cp=4", "flash-parts"),
        (GPT[0], "cp=2", "flash-all-gather"),
        (LLAMA[0], "cp=4,tp=2,sp=1", "flash"),
        (GPT[0], "cp=4,tp=2,sp=1", "flash-ring"),
        (LLAMA[0], "cp=4,tp=2,sp=1", "flash-all-gather"),
        (GPT[0], "cp=2,pp=2", "flash-ring"),
        (LLAMA[0], "cp=2,pp=2", "flash-all-gather"),
    ],
)
def test_every_pair_of_a_split_sequence_is_computed_once(name: str, plan: str, kind: str) -> None:
    """Both ways to split a sequence leave masked pairs out, and all devices compute the same number of the others."""
    flash = total_flops(name, "attention=flash")
    assert total_flops(name, f"{plan},attention={kind}") == pytest.approx(flash, rel=1e-9)


def test_a_tpu_computes_scores_in_both_backward_kernels() -> None:
    """Four products of a pair for keys and values and three for queries, where cuDNN has five in all."""
    said = {"batch": str(BATCH), "seq": str(SEQ), **GPT[1]}

    def flops(platform: str) -> float:
        program = plan_target(GPT[0], Plan.parse("attention=flash"), settings=said, platform=platform)
        assert isinstance(program, Program)
        return _matrix_flops(program)

    cuda, tpu = flops("cuda"), flops("tpu")
    pairs, width, layers = SEQ * (SEQ + 1) // 2, 64, 4
    assert tpu - cuda == pytest.approx(2 * BATCH * layers * width * pairs * (7 - 5))


def test_windows_leave_pairs_out() -> None:
    """A query sees its window's keys; split over devices the same ones, and no branch is more than the busiest device's."""
    whole, near = (total_flops(LLAMA[0], "attention=flash", **chosen) for chosen in ({}, {"window": "8"}))
    pairs, seen, width, layers = SEQ * (SEQ + 1) // 2, 8 * 9 // 2 + (SEQ - 8) * 8, 8 * 16, 4
    assert whole - near == pytest.approx(BATCH * layers * width * 14 * (pairs - seen))
    split = total_flops(LLAMA[0], "cp=2,attention=flash", window="8")
    assert near <= split <= near + BATCH * layers * width * 14 * 2 * 8 * 8


@pytest.mark.parametrize(
    "plan",
    [
        "tp=4,sp=1",
        "cp=4,zero=3",
        "dp=4,zero=1",
        "dp=2,pp=2,vp=2,zero=1",
        "pp=2,schedule=zb-h1",
        "fsdp=4,offload=optimizer",
    ],
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
    settings = {"batch": "16", "seq": "64", "layers": "4"}
    whole, shared = (
        predict("llama3-tiny", Options(on="dgx-h100", plan=plan, settings=settings)).memory.by_role
        for plan in ("dp=4", "dp=4,zero=1")
    )
    parameters = whole["parameter"] / 4
    assert whole["optimizer_state"] == pytest.approx(8 * parameters, rel=1e-4)
    assert shared["parameter"] == 2 * parameters
    assert shared["optimizer_state"] == pytest.approx(12 * parameters / 4, rel=1e-4)
