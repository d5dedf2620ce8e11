"""A plan as text: read, written, and refused where its parts do not go together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, MeshcastError, UnsupportedError, UsageError
from meshcast.jobs.planned import Plan

degrees = st.integers(min_value=1, max_value=64)


SPLIT = ("ring", "all-gather", "flash-ring", "flash-all-gather", "flash-parts")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    values: dict[str, Any] = {name: draw(degrees) for name in ("dp", "fsdp", "tp", "pp", "cp", "ep", "mbs")}
    values["remat"] = draw(st.sampled_from(["none", "products", "selective", "alternate", "full"]))
    values["precision"] = draw(st.sampled_from(["bf16", "fp32", "tf32", "fp8"]))
    values["zero"] = draw(st.integers(0, 3))
    values["sp"] = values["tp"] > 1 and draw(st.booleans())
    values["microbatches"] = draw(st.none() | degrees)
    values["offload"] = draw(st.sampled_from(["none", "optimizer"]))
    values["stack"] = draw(st.sampled_from([None, "megatron", "mine.toml"]))
    split = values["cp"] > 1
    values["attention"] = draw(st.sampled_from([None, "plain", "flash", *(SPLIT if split else [])]))
    if values["pp"] > 1:
        values["vp"] = draw(st.integers(1, 4))
        values["schedule"] = draw(
            st.sampled_from([None, "interleaved"] if values["vp"] > 1 else [None, "1f1b", "zb-h1"])
        )
        parts = values["pp"] * values["vp"]
        shares = st.lists(st.integers(0, 9), min_size=parts, max_size=parts).filter(any).map(tuple)
        values["layers_per_stage"] = draw(st.just(()) | shares)
    return Plan(**values)


@given(plans())
def test_text_and_plan_are_the_same(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan


def test_the_keys_of_the_command_line() -> None:
    plan = Plan.parse("dp=4,fsdp=8,tp=8,sp=1,pp=8,vp=2,cp=2,ep=1,mbs=1,remat=selective")
    assert plan == Plan(dp=4, fsdp=8, tp=8, sp=True, pp=8, vp=2, cp=2, remat="selective")
    assert plan.devices == 4 * 8 * 8 * 8 * 2
    assert plan.mesh == {"data": 4, "fsdp": 8, "context": 2, "tensor": 8}
    assert plan.pipeline_schedule == "interleaved"
    assert plan.attending == "all-gather"


def test_other_spellings() -> None:
    assert Plan.parse("hsdp=4x8") == Plan(dp=4, fsdp=8)
    assert Plan.parse(" dp = 2 , tp=2 ") == Plan(dp=2, tp=2)
    assert Plan.parse("pp=4,layers-per-stage=0+3x2+1").layers_per_stage == (0, 3, 3, 1)


def test_the_fields_that_a_text_gives() -> None:
    assert Plan.names_in("hsdp=2x4,layers-per-stage=1+2, pp=2,stack=xla") == {
        "dp", "fsdp", "layers_per_stage", "pp", "stack"
    }  # fmt: skip
    assert Plan.names_in(None) == frozenset()


def test_zero_3_shares_the_weights_out_over_replicas() -> None:
    assert Plan.parse("dp=4,fsdp=2,tp=2,zero=3").mesh == {"fsdp": 8, "tensor": 2}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", UsageError, "KEY=VALUE"),
        ("dp", UsageError, "KEY=VALUE"),
        ("dp=0", UsageError, "positive"),
        ("dp=-1", UsageError, "positive"),
        ("dp=two", UsageError, "positive"),
        ("dq=2", UsageError, "did you mean"),
        ("dp=2,dp=2", UsageError, "twice"),
        ("dp=2,hsdp=2x2", UsageError, "twice"),
        ("sp=2,tp=2", UsageError, "neither 0 nor 1"),
        ("zero=4", UsageError, "0, 1, 2 or 3"),
        ("remat=most", UsageError, "none of none, autodiff, products"),
        ("sp=1", InfeasibleError, "needs tp above 1"),
        ("vp=2", InfeasibleError, "needs pp above 1"),
        ("schedule=1f1b", InfeasibleError, "needs pp above 1"),
        ("pp=4,vp=2,schedule=1f1b", InfeasibleError, "interleaved"),
        ("pp=4,schedule=interleaved", InfeasibleError, "vp of 2 or more"),
        ("attention=ring", InfeasibleError, "cp is 1"),
        ("attention=flash-ring", InfeasibleError, "cp is 1"),
        ("pp=2,layers-per-stage=1+2+3", InfeasibleError, "names 3 parts"),
        ("pp=2,layers-per-stage=0x2", UsageError, "no layers"),
        ("pp=2,layers-per-stage=1x", UsageError, "no list of layers"),
        ("pp=2,layers-per-stage=x3", UsageError, "no list of layers"),
        ("pp=2,layers-per-stage=-1+3", UsageError, "positive"),
        ("pp=2,layers-per-stage=1x999999999999", UsageError, "more than"),
        ("layers-per-stage=4", InfeasibleError, "needs pp above 1"),
        ("dp=1.5", UsageError, "positive"),
        ("dp=1_0", UsageError, "positive"),
        ("dp=\uff12", UsageError, "positive"),  # a digit, but none of ours
        ("mbs=0", UsageError, "positive"),
        ("mbs=99999999999999999999", UsageError, "more than"),
        ("dp=99999999", UsageError, "more than"),
        ("vp=0,pp=2", UsageError, "positive"),
        ("microbatches=0", UsageError, "positive"),
        ("zero=-1", UsageError, "positive"),
        ("hsdp=4", UsageError, "REPLICASxSHARDS"),
        ("hsdp=4x", UsageError, "REPLICASxSHARDS"),
        ("hsdp=0x2", UsageError, "dp=0"),
        ("hsdp=2x2,fsdp=2", UsageError, "twice"),
        ("dp=2,", UsageError, "KEY=VALUE"),
        ("=2", UsageError, "KEY=VALUE"),
        ("dp==2", UsageError, "positive"),
        ("DP=2", UsageError, "a plan has no 'DP'"),
        ("precision=fp9", UsageError, "did you mean 'fp8'"),
        ("precision=mxfp4", UnsupportedError, "plans have no such products"),
        ("stack=", UsageError, "KEY=VALUE"),
        ("attention=sdpa", UsageError, "none of auto, plain, plain-bf16, flash"),
        ("offload=weights", UsageError, "none of none, optimizer, activations"),
        ("pp=2,offload=activations", UnsupportedError, "beside pp=2 stages is not modelled"),
        ("schedule=dualpipe,pp=2", UsageError, "none of 1f1b, gpipe, interleaved, zb-h1, zb-h2"),
        ("schedule=zb-h1", InfeasibleError, "needs pp above 1"),
        ("pp=4,vp=2,schedule=zb-h1", InfeasibleError, "vp of 2 or more"),
        ("pp=4,vp=2,schedule=gpipe", InfeasibleError, "vp of 2 or more"),
    ],
)
def test_what_is_refused(text: str, error: type[MeshcastError], said: str) -> None:
    with pytest.raises(error) as caught:
        Plan.parse(text)
    assert said in str(caught.value)


def test_microbatches() -> None:
    plan = Plan.parse("dp=4,fsdp=2,ep=2,mbs=2")
    assert plan.microbatches_of(96) == 3
    assert plan.microbatches_of(None) == 1
    with pytest.raises(InfeasibleError, match="no multiple of 32"):
        plan.microbatches_of(48)
    with pytest.raises(
        InfeasibleError, match=f"use a batch of {2**62 + 32},"
    ):  # to the digit, beyond what a float holds
        plan.microbatches_of(2**62 + 1)
    with pytest.raises(InfeasibleError, match="makes 3 microbatches"):
        Plan.parse("dp=4,microbatches=2").microbatches_of(12)
    with pytest.raises(UsageError, match="needs the global batch"):
        Plan.parse("pp=4").microbatches_of(None)
