"""What would let a model fit, in the words of plans: only what the plan has not and the model can have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast import predict
from meshcast.hardware import load_device
from meshcast.jobs.planned import Plan, model_of
from meshcast.jobs.planned.memory_parts import with_memory_parts
from meshcast.options.options import Options
from meshcast.results import Infeasible, Prediction
from meshcast.simulate import MemoryUse

GIB = 2**30


def too_large(**roles: int) -> Prediction:
    """A prediction of a tiny model with the memory of a large one, on 80 GiB."""
    temporaries = roles.pop("temporaries")
    held = sum(roles.values())
    memory = MemoryUse(
        peak=held + temporaries, arguments=held, outputs=0, temporaries=temporaries, aliased=0, by_role=roles
    )
    fitting = predict("llama3-tiny", Options(on="h100-sxm", fidelity="roofline", levers=False))
    problem = Infeasible(resource="memory_bytes", demand=memory.peak, bound=80 * GIB, levers=("stage 0", "generic"))
    return replace(fitting, memory=memory, infeasible=problem, timed=None)


def levers(
    plan: str, *, mode: str = "train", model: str = "llama3-tiny", on: str = "h100-sxm", **roles: int
) -> tuple[str, ...]:
    found = with_memory_parts(
        too_large(**roles), model_of(model), Plan.parse(plan), Options(settings={"mode": mode}), load_device(on)
    ).infeasible
    assert found is not None
    return found.levers


def test_activations_are_saved_by_the_plan_s_words() -> None:
    activations, larger = levers("dp=8,mbs=6", temporaries=160 * GIB)
    assert activations.startswith("activations and other temporaries take 160 GiB of a device: remat=full (now none)")
    assert all(word in activations for word in ("attention=flash (now plain)", "mbs=3 (now 6)", "tp=2 (now 1)"))
    assert "offload=activations (now none)" in activations
    assert "sp=1" not in activations  # there is nothing to split without tp
    assert larger == "use 2.0 times as many devices, or devices with at least 160 GiB"


@pytest.mark.parametrize("remat", ["full", "whole"])  # both keep a layer's input alone
def test_nothing_is_named_that_the_plan_has(remat: str) -> None:
    activations, _ = levers(f"tp=2,sp=1,remat={remat},attention=flash,gradients=bf16", temporaries=160 * GIB)
    assert not any(word in activations for word in ("remat", "attention=", "mbs", "sp=", "gradients"))


def test_one_thing_at_a_time_is_put_at_the_host() -> None:
    activations, state, _ = levers("dp=2,offload=activations", temporaries=80 * GIB, parameter=80 * GIB)
    assert "offload" not in activations + state


def test_nothing_is_named_that_the_model_cannot_have() -> None:
    """Eight heads are no sixteen shares; convolutions have neither heads nor stages."""
    assert "tp=16" not in levers("tp=8", temporaries=160 * GIB)[0]
    activations, state, _ = levers("dp=2", model="resnet-tiny", temporaries=80 * GIB, parameter=80 * GIB)
    assert not any(word in activations + state for word in ("tp=", "cp=", "pp=", "attention", "offload", "ep="))


def test_state_is_shared_out_further() -> None:
    state, _ = levers("dp=8", temporaries=GIB, parameter=40 * GIB, optimizer_state=80 * GIB)
    assert state.startswith("weights, gradients and the optimizer's state take 120 GiB of a device: zero=3 (now 0)")
    assert "fsdp=2 (now 1)" in state
    assert "offload=optimizer (now none)" in state
    (state, _) = levers("dp=8", on="tpu-v3", temporaries=GIB, parameter=40 * GIB, optimizer_state=80 * GIB)
    assert "offload" not in state  # nothing is known of its host's link
    stage, staged, _ = levers("dp=8,pp=2,schedule=gpipe", temporaries=GIB, parameter=40 * GIB, optimizer_state=80 * GIB)
    assert stage == "stage 0"
    assert "zero=1 (now 0)" in staged
    _, activations, _ = levers("pp=2,schedule=gpipe,microbatches=4", temporaries=160 * GIB)
    assert "schedule=1f1b (now gpipe)" in activations
    assert "offload" not in activations  # not modelled beside stages


def test_serving_has_no_backward_pass() -> None:
    weights, cache, temporaries, _ = levers(
        "dp=1", mode="decode", temporaries=30 * GIB, parameter=40 * GIB, cache=60 * GIB
    )
    assert weights == "weights take 40 GiB of a device: tp=2 (now 1), fsdp=2 (now 1)"
    assert cache.startswith("caches take 60 GiB of a device: a smaller batch, dp=2 (now 1) for the same batch")
    assert "remat" not in weights + cache + temporaries


def test_models_that_do_not_fit_say_so_in_the_plan_s_words() -> None:
    """Through `predict`: with a plan, and of a pass that answers also without one."""
    planned = predict("llama3-tiny", Options(on="h100-sxm", plan="mbs=8192", settings={"seq": "2048"}))
    assert planned.infeasible is not None
    assert any("remat=full (now none)" in lever for lever in planned.infeasible.levers)
    answering = predict("llama3-tiny", Options(on="h100-sxm", settings={"mode": "decode", "batch": "8388608"}))
    assert answering.infeasible is not None
    assert any(lever.startswith("caches take") for lever in answering.infeasible.levers)
