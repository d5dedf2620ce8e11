"""MFU counts the model's own products, whatever a plan, a kernel or a mesh makes devices compute beside them."""

from __future__ import annotations

from typing import Any

import pytest

import meshcast
from meshcast.jobs.planned import Plan, redundancy

SHAPE = {"layers": "2", "dim": "512", "heads": "4", "kv_heads": "2", "ffn": "1024", "vocab": "1024"}
TRAINING = {**SHAPE, "batch": "8", "seq": "1024"}


def useful(model: str, on: str, plan: str, settings: dict[str, str]) -> tuple[float, float]:
    """MFU and HFU times the step time: FLOPs of a device over one peak."""
    found = meshcast.predict(model, on=on, plan=plan, settings=settings, lowering="modelled", fidelity="roofline")
    assert found.step_time_s is not None
    assert found.mfu is not None
    assert found.hfu is not None
    return found.mfu * found.step_time_s, found.hfu * found.step_time_s


@pytest.mark.parametrize("on", ["dgx-h100", "tpu-v5p-pod"])
def test_recomputation_is_none_of_the_models_own_work(on: str) -> None:
    """On TPUs recomputed products are fused with what the backward pass does with them."""
    kept, all_kept = useful("llama3-8b", on, "fsdp=4,mbs=2,attention=plain", TRAINING)
    assert kept == pytest.approx(all_kept)
    for remat in ("selective", "full"):
        model, hardware = useful("llama3-8b", on, f"fsdp=4,mbs=2,attention=plain,remat={remat}", TRAINING)
        assert model == pytest.approx(kept, rel=1e-9)
        assert hardware > 1.001 * kept


@pytest.mark.parametrize(("on", "again"), [("dgx-h100", 1), ("tpu-v5p-pod", 3)])
def test_scores_that_a_fused_backward_pass_computes_again(on: str, again: int) -> None:
    """Of seven products over the pairs six are the model's; of the nine of TPUs' three kernels, too."""
    kept, hardware = useful("llama3-8b", on, "fsdp=4,mbs=2,attention=flash", TRAINING)
    full, _ = useful("llama3-8b", on, "fsdp=4,mbs=2,attention=flash,remat=full", TRAINING)
    assert full == pytest.approx(kept, rel=1e-9)
    layers, dim, ffn, vocab, length = 2, 512, 1024, 1024, 1024
    heads, head = 4, 128
    weights = layers * (2 * dim * dim + 2 * dim * 2 * head + 3 * dim * ffn) + vocab * dim
    pair = 2 * head * heads * layers * (length + 1) / 2  # of one product over the pairs, for each token
    assert hardware / kept == pytest.approx(1 + again * pair / (6 * weights + 6 * pair), rel=1e-6)


@pytest.mark.parametrize("on", ["dgx-h100", "tpu-v5p-pod"])
def test_what_devices_compute_alike_counts_once(on: str) -> None:
    """Every device of "tensor" routes all tokens of its group."""
    settings = {"batch": "8", "seq": "64", "layers": "1"}
    alone, all_alone = useful("mixtral-tiny", on, "ep=2,fsdp=2,attention=plain", settings)
    model, hardware = useful("mixtral-tiny", on, "ep=2,tp=2,mbs=2,attention=plain", settings)
    assert alone == pytest.approx(all_alone)
    assert model == pytest.approx(alone, rel=1e-9)
    assert hardware > 1.01 * model
    said = redundancy("mixtral-tiny", Plan.parse("ep=2,tp=2,mbs=2"), settings=settings)
    assert hardware / model == pytest.approx(1 + said.repeated_flops / said.model_flops)


@pytest.mark.parametrize("plan", ["fsdp=2", "pp=2,microbatches=2"])
def test_the_types_of_the_peak_are_known(plan: str) -> None:
    asked: dict[str, Any] = {"on": "dgx-h100", "lowering": "modelled", "fidelity": "roofline", "settings": SHAPE}
    assert meshcast.predict("llama3-8b", plan=plan, **asked).matrix_types == ("bf16",)
    assert meshcast.predict("llama3-8b", plan=f"{plan},precision=tf32", **asked).matrix_types == ("tf32",)
