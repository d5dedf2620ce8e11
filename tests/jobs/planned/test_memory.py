"""What a planned training step keeps, against formulas that are known by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from meshcast.jobs.planned import Plan, plan_target, stages
from meshcast.jobs.planned.target import model_of
from meshcast.partition import partition
from meshcast.programs import setting_value
from meshcast.workload import read_workload

SEQ, MICROBATCH = 64, 2


def middle_part(model: str, plan: Plan, settings: dict[str, str]) -> dict[str, Any]:
    """The programs of a part that is neither the first nor the last, which are captured alone."""
    builder = model_of(model)
    chosen = {name: setting_value(text) for name, text in settings.items()}
    counts = stages.layers_of_parts(plan, builder.configured(**chosen).layers, model)
    _, (name, _, key), _ = stages._different_parts(builder, plan, chosen, "cuda", counts)
    assert name == "middle"
    _, backward = stages._passes(key)
    return {"backward": backward, "update": stages._update(key)}


@cache
def argument_bytes(model: str, plan: str, program: str, prefix: str, **settings: str) -> int:
    """Bytes on one device of what a middle part's program takes under a name."""
    said = {"batch": "16", "seq": str(SEQ), "layers": "4", **settings}
    programs = middle_part(model, Plan.parse(f"pp=4,mbs={MICROBATCH},{plan}"), said)
    workload = read_workload(partition(programs[program]))
    return sum(
        workload.tensors[value].bytes
        for argument, value in zip(workload.arguments, workload.body.inputs, strict=True)
        if argument.name.startswith(prefix)
    )


def saved(model: str, plan: str, **settings: str) -> int:
    return argument_bytes(model, plan, "backward", "saved", **settings)


def gpt_layer(*, dim: int, heads: int) -> int:
    """Korthikanti 2022, section 4.1, without dropout: input, norm, qkv, context, sum, norm, up, activation; the softmax."""
    tokens = SEQ * MICROBATCH
    return tokens * dim * (2 + 2 + 6 + 2 + 2 + 2 + 8 + 8) + 2 * heads * SEQ * SEQ * MICROBATCH


def test_a_layer_of_gpt_saves_what_its_kernels_read() -> None:
    assert saved("gpt2-tiny", "remat=none", dim="64", heads="4") == gpt_layer(dim=64, heads=4)


def test_with_sequence_parallelism_every_saved_value_is_shared_out() -> None:
    """Section 4.2.2: what the backward pass gathers again is not kept whole."""
    assert saved("gpt2-tiny", "tp=2,sp=1", dim="64", heads="4") == gpt_layer(dim=64, heads=4) // 2


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama3-tiny"])
def test_more_recomputation_keeps_less(model: str) -> None:
    kept = [saved(model, f"remat={remat}") for remat in ("autodiff", "none", "attention", "full")]
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == len(kept)


def test_fp8_keeps_inputs_of_products_in_a_byte_and_no_weights() -> None:
    half, byte = (saved("llama3-tiny", f"precision={precision}") for precision in ("bf16", "fp8"))
    assert byte < half


def test_gradients_in_half_precision_are_half() -> None:
    wide, half = (
        argument_bytes("llama3-tiny", f"gradients={gradients}", "backward", "gradients")
        for gradients in ("fp32", "bf16")
    )
    assert half * 2 == wide
    state = [argument_bytes("llama3-tiny", f"gradients={g}", "update", "opt_state") for g in ("fp32", "bf16")]
    assert state[0] == state[1]


def test_zero_shares_out_over_all_that_hold_the_same() -> None:
    """Experts' state over replicas, everything else over those that split the experts too."""
    whole, shared = (
        argument_bytes("mixtral-tiny", f"ep=2,zero={zero}", "update", "opt_state", group="16") for zero in (0, 1)
    )
    experts = argument_bytes("mixtral-tiny", "ep=2", "update", "params['layers']['layers']['gate']", group="16")
    assert experts
    rest = whole - 3 * experts // 2 * 12
    assert shared == pytest.approx(3 * experts // 2 * 12 + rest / 2, rel=0.01)


def test_settings_that_a_plan_decides_are_refused() -> None:
    from meshcast.base.errors import UsageError

    decided: dict[str, Any] = {"gradient_dtype": "bfloat16"}
    with pytest.raises(UsageError, match="decided by the plan"):
        plan_target("llama3-tiny", Plan.parse("dp=2"), settings=decided)


def test_models_that_mark_nothing_save_what_differentiation_asks_for() -> None:
    from meshcast.base.errors import UnsupportedError
    from meshcast.jobs.planned.settings import step_settings
    from meshcast.zoo import zoo

    bert, llama = zoo()["bert-tiny"], zoo()["llama3-tiny"]
    assert step_settings(Plan.parse("dp=2"), bert, {"batch": 4})["remat"] == "autodiff"
    assert step_settings(Plan.parse("dp=2"), llama, {"batch": 4})["remat"] == "none"
    with pytest.raises(UnsupportedError, match="does not mark"):
        step_settings(Plan.parse("dp=2,remat=attention"), bert, {"batch": 4})
