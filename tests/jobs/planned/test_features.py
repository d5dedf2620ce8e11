"""What plans do beside splitting work: split backward passes, tied weights, state in the host's memory."""

from __future__ import annotations

import pytest

from meshcast import Options, predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.jobs.pipeline import Pipeline
from meshcast.jobs.planned import Plan, plan_target, redundancy
from meshcast.partition import partition
from meshcast.programs.program import Program
from meshcast.results import Prediction
from meshcast.workload import read_workload
from meshcast.workload.graph import Tensor

SETTINGS = {"batch": "16", "seq": "64", "layers": "4"}


def predicted(model: str, plan: str, on: str = "dgx-h100", **settings: str) -> Prediction:
    return predict(model, Options(on=on, plan=plan, settings={**SETTINGS, **settings}))


def test_zero_bubble_keeps_more_and_waits_less() -> None:
    """Equal work; gradients of products wait for their turn, and the pipeline's bubble shrinks from 1F1B to ZB-H2."""
    found = [predicted("llama3-tiny", f"pp=4,schedule={name}") for name in ("1f1b", "zb-h1", "zb-h2")]
    shares = [each.pipeline for each in found]
    work = [(each.hfu or 0) * (each.step_time_s or 0) for each in found]
    assert work == pytest.approx([work[0]] * 3)
    assert shares[1] is not None
    bubbles = [share.bubble for share in shares if share is not None and share.bubble is not None]
    assert bubbles == sorted(bubbles, reverse=True)
    assert len(set(bubbles)) == 3
    last = [share.stages[-1].memory_bytes["activations"] for share in shares if share is not None]
    assert last == sorted(last)
    assert [stage.in_flight for stage in shares[1].stages] == [4, 4, 4, 4]  # of 1F1B 4, 3, 2, 1


def test_the_loss_waits_with_its_logits() -> None:
    """Of the last part the gradient of the logits is kept for the projection's weights: rows x positions x vocabulary."""
    pipeline = plan_target("gpt2-tiny", Plan.parse("pp=2,schedule=zb-h1"), settings={**SETTINGS, "vocab": "1024"})
    assert isinstance(pipeline, Pipeline)
    kept = read_workload(partition(pipeline.parts[-1].backward))
    assert any(kept.tensors[value].shape == (1, 64, 1024) for value in kept.body.outputs)


def test_tied_embeddings_are_summed_over_both_ends() -> None:
    """fp32 gradients of 1024 x 64 numbers, split over two devices; the model with two tables sends none."""
    tied, apart = (predicted(model, "tp=2,pp=2", vocab="1024").collectives for model in ("gpt2-tiny", "llama3-tiny"))
    found = [share for share in tied if (share.kind, share.group) == ("all_reduce", "pipeline")]
    assert [(share.count, share.bytes_sent) for share in found] == [(1, 1024 * 64 * 4 / 2)]
    assert not [share for share in apart if (share.kind, share.group) == ("all_reduce", "pipeline")]


@pytest.mark.parametrize(("plan", "pieces"), [("pp=2,layers-per-stage=1+3", 3), ("fsdp=2", 4)])
def test_the_optimizer_leaves_the_device(plan: str, pieces: int) -> None:
    """Of the pieces, as many as the largest part has layers, two are on the device; 12 bytes a parameter in all."""
    moved = predicted("llama3-tiny", f"{plan},offload=optimizer")
    pipeline = plan_target("llama3-tiny", Plan.parse(f"{plan},offload=optimizer"), settings=SETTINGS)
    assert isinstance(pipeline, Pipeline)
    assert pipeline.host_state_pieces == pieces
    state = max(sum(a.bytes for a in _state(part.update)) for part in pipeline.parts)
    assert moved.memory.by_role["optimizer_state"] == pytest.approx(2 / pieces * state, abs=2)
    assert any("in the host's memory" in warning for warning in moved.warnings)
    assert moved.memory.peak == moved.memory.arguments + moved.memory.temporaries


def _state(program: Program) -> list[Tensor]:
    workload = read_workload(partition(program))
    pairs = zip(workload.arguments, workload.body.inputs, strict=True)
    return [workload.tensors[value] for argument, value in pairs if argument.name.startswith("opt_state")]


def test_offload_needs_a_link() -> None:
    with pytest.raises(UnsupportedError, match="no rate of it is known for tpu-v3"):
        predicted("llama3-tiny", "fsdp=4,offload=optimizer", on="tpu-v3-pod")


@pytest.mark.parametrize("plan", ["tp=2", "tp=2,pp=2", "tp=2,sp=1,pp=2,schedule=zb-h1"])
def test_recomputed_attention_is_known_as_such(plan: str) -> None:
    """Model and hardware FLOPs do not depend on how the work is shared out, fused attention included."""
    asked = Plan.parse(f"{plan},remat=selective,attention=flash")
    said = redundancy("llama3-tiny", asked, settings=SETTINGS)
    assert said.recomputed_flops > 0
    found = predicted("llama3-tiny", str(asked))
    assert found.hfu is not None
    assert found.mfu is not None
    assert found.hfu / found.mfu == pytest.approx(said.total_flops / said.model_flops)


@pytest.mark.parametrize("attention", ["flash", "flash-ring", "flash-all-gather", "flash-parts"])
def test_fused_attention_is_counted_as_such_where_sequences_are_split(attention: str) -> None:
    alone = redundancy("llama3-tiny", Plan.parse("attention=flash,mbs=8"), settings={"batch": "8"})
    split = redundancy("llama3-tiny", Plan.parse(f"cp=2,attention={attention},mbs=8"), settings={"batch": "8"})
    assert split == alone
    assert split.model_flops < redundancy("llama3-tiny", Plan.parse("mbs=8"), settings={"batch": "8"}).model_flops


@pytest.mark.parametrize("batch", ["many", "9" * 400])
def test_a_batch_that_is_no_number_of_samples_is_refused(batch: str) -> None:
    with pytest.raises(UsageError, match=r"batch is a positive integer below 2\^63, not "):
        redundancy("llama3-tiny", Plan(fsdp=4), settings={"batch": batch})


@pytest.mark.parametrize(
    ("plan", "shards"), [("cp=4,zero=3", 4), ("fsdp=2,cp=2", 4), ("dp=2,cp=2,zero=3", 4), ("cp=4", 1)]
)
def test_devices_that_split_sequences_store_shares_of_weights(plan: str, shards: int) -> None:
    """What is shared out is all but the norms, a few numbers."""
    whole, shared = (predicted("llama3-tiny", each).memory.by_role["parameter"] for each in ("dp=1", plan))
    assert shared == pytest.approx(whole / shards, rel=0.02)
