"""Rows of published runs as targets: models, plans, hardware, software; what they lack and what is assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.evidence.validate.runs import planned
from meshcast.evidence.validate.runs.comparison import validate_run
from meshcast.evidence.validate.runs.planned import row_target
from meshcast.evidence.validate.runs.rows import read_run_rows
from meshcast.hardware import Device
from meshcast.jobs.stated import systems
from meshcast.jobs.stated.asking import stated_options
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.parallelism import shared_out
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.target import RunTarget, run_target
from meshcast.options import Options

LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "ffn": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 128256,
    "seq": 8192,
}
SMALL = {"layers": 8, "hidden": 512, "heads": 4, "kv_heads": 4, "head_dim": 128, "ffn": 256, "vocab": 1024, "seq": 2048}


def run(**changes: Any) -> StatedRun:
    given: dict[str, Any] = {
        "device": "h100-sxm", "devices": 8, "model": "llama3-8b",
        "counts": {**LLAMA, "gbs": 16}, "mbs": 2.0, "degrees": {"dp": 1, "fsdp": 8}, "zero": 3, "precision": "bf16",
        "recompute": "full", "framework": "torchtitan", "flags": {"compiled": False},
    }  # fmt: skip
    return StatedRun(**given | changes)


def target(**changes: Any) -> RunTarget:
    if isinstance(changes.get("extra"), str):
        changes["extra"] = Extras.read(changes["extra"])
    return run_target(run(**changes))


def test_a_complete_row_lacks_nothing() -> None:
    found = target()
    assert found.missing == ()
    assert found.model is not None
    assert found.on is not None
    assert (found.model.name, found.model.settings, found.on.name) == ("llama3-8b", {}, "dgx-h100")
    assert found.plan_text == "dp=1,fsdp=8,mbs=2,remat=full,attention=flash,precision=bf16"
    assert found.settings == {"batch": 16, "seq": 8192}
    assert found.command.startswith(
        "meshcast predict llama3-8b --on dgx-h100 --devices 8 --stack pytorch-fsdp --plan dp=1"
    )


def test_the_command_has_the_device_and_the_overlap_of_the_row() -> None:
    """A cluster of the catalogue has its own device, a stack its own overlap: what a row changes of them is written."""
    found = target(device="h100-sxm-500w", scale_up="nvlink4-nvswitch-8")
    assert " --on h100-sxm-500w --devices 8 " in found.command
    assert "--overlap" not in found.command
    asynchronous = replace(found, overlap="prefetch,fsdp2,async-tp")
    assert " --overlap prefetch,fsdp2,async-tp " in asynchronous.command


def test_sizes_of_the_row_override_the_zoo() -> None:
    found = target(counts={**LLAMA, "layers": 4, "vocab": 1024, "gbs": 16})
    assert found.model is not None
    assert found.model.settings == {"layers": 4, "vocab": 1024}


@pytest.mark.parametrize(
    ("changes", "name", "settings"),
    [
        ({"model": "gemma3-12b", "counts": {"seq": 2048, "gbs": 16}}, "gemma3-12b", {}),
        ({"model": "llama-9", "counts": {**SMALL, "gbs": 16}}, "llama3-8b",
         {"layers": 8, "dim": 512, "heads": 4, "kv_heads": 4, "ffn": 256, "vocab": 1024}),
        # Two products, a tied embedding and as many keys as queries are a GPT; heads of another width are not.
        ({"model": "mpt-1b", "counts": {**SMALL, "gbs": 16}, "flags": {"gated_ffn": False, "tied_embeddings": True}},
         "gpt2-small",
         {"layers": 8, "dim": 512, "heads": 4, "ffn": 256, "vocab": 1024, "positions": 2048}),
        ({"model": "maxtext-1b", "counts": {**SMALL, "head_dim": 256, "gbs": 16}, "extra": "relu",
          "flags": {"gated_ffn": False, "tied_embeddings": True}}, "llama3-8b",
         {"layers": 8, "dim": 512, "heads": 4, "kv_heads": 4, "head_dim": 256, "ffn": 256, "vocab": 1024, "tied": True,
          "gated": False, "activation": "relu"}),
    ],
)  # fmt: skip
def test_models_by_name_and_by_sizes(changes: dict[str, Any], name: str, settings: dict[str, Any]) -> None:
    found = target(**changes)
    assert found.missing == ()
    assert found.model is not None
    assert (found.model.name, dict(found.model.settings)) == (name, settings)


@pytest.mark.parametrize("model", ["bert-9", "xlm-roberta-large", "electra-large"])
def test_families_of_encoders(model: str) -> None:
    found = target(model=model, counts={"seq": 128, "gbs": 16})
    assert found.model is not None
    assert found.model.builder.module == "bert"


@pytest.mark.parametrize("model", ["albert-base", "colbert", "bert4rec"])
def test_other_names_with_bert_in_them_are_no_encoders(model: str) -> None:
    assert target(model=model, counts={"seq": 128, "gbs": 16}).model is None


def test_experts_and_what_has_no_column() -> None:
    counts = {**SMALL, "gbs": 16, "experts": 32, "experts_per_token": 4, "moe_ffn": 128, "shared_experts": 1}
    extra = "dense_layers=3;mtp=1;window=128 on every 2nd layer;attention_sink;routing=forced-balanced,dropless"
    found = target(model="some-moe", counts=counts, extra=extra)
    settings = found.settings
    assert (settings["experts"], settings["active"], settings["expert_ffn"], settings["shared_ffn"]) == (
        32,
        4,
        128,
        128,
    )
    assert (settings["dense_layers"], settings["layers"], settings["capacity_factor"]) == (3, 9, 1.0)
    assert (settings["window"], settings["global_every"]) == (128, 2)
    assert any("attention sinks" in each for each in found.assumptions)
    every_second = target(model="some-moe", counts=counts, extra="moe on every 2nd layer;capacity_factor=1.5").settings
    assert (every_second["dense_layers"], every_second["capacity_factor"]) == (4, 1.5)


def test_experts_of_maxtext_compute_whole_tiles() -> None:
    """2 x 2048 x 4 = 16,384 rows are 32 tiles of 512, and 31 more are shared by two of 32 experts; of the 8 of a device 7."""
    counts = {**SMALL, "gbs": 16, "experts": 32, "experts_per_token": 4, "moe_ffn": 128}
    moe: dict[str, Any] = {"model": "some-moe", "counts": counts, "device": "tpu-v5p", "framework": "maxtext"}
    found = target(**moe, extra="dropless")
    assert found.settings["capacity_factor"] == pytest.approx(1 + 31 / 32)
    assert any("1.97 times" in each for each in found.assumptions)
    split = target(**moe, extra="dropless", degrees={"dp": 1, "fsdp": 8, "ep": 4})
    assert split.settings["capacity_factor"] == pytest.approx(1 + 7 / 32)
    dropping = target(**moe, extra="capacity_factor=1.5;dropping")
    assert dropping.settings["capacity_factor"] == 1.5


def test_extras_are_values_and_words() -> None:
    found = Extras.read(
        "mla:q_lora=1536,kv_lora=512;params=fp32,compute=bf16;cuda_graph=full-iteration;a2a_overlap;mtp=x"
    )
    assert dict(found.values) == {
        "q_lora": "1536", "kv_lora": "512", "params": "fp32", "compute": "bf16", "cuda_graph": "full-iteration", "mtp": "x",
    }  # fmt: skip
    assert found.words == {"a2a_overlap"}
    assert (found.graphs, found.whole("q_lora"), found.whole("mtp"), found.window) == (True, 1536, None, None)
    assert Extras.read("window=1024 on 5 of 6 layers").window == (1024, 6)
    assert Extras.read("") == Extras()


def test_what_a_row_lacks_is_named() -> None:
    assert any("seq" in each for each in target(counts={"gbs": 16}).missing)
    assert "gbs" in target(counts=LLAMA).missing
    assert any("the zoo has no 'abacus'" in each for each in target(model="abacus", counts={"gbs": 1}).missing)
    assert any("heads" in each for each in target(model="llama-9", counts={"layers": 2, "gbs": 1}).missing)
    assert any("'abacus'" in each for each in target(device="abacus").missing)
    assert any("tp=3 does not divide 8 devices" in each for each in target(degrees={"tp": 3}).missing)


def test_ranks_with_unequal_numbers_of_sequences_wait_for_the_fullest() -> None:
    """17 sequences on eight ranks: three for some, one after the other, as two do not divide three."""
    found = target(counts={**LLAMA, "gbs": 17})
    assert (found.missing, found.batch, found.filled_batch, found.plan["mbs"]) == ((), 17, 24, 1)
    assert found.settings["batch"] == 24
    assert "gbs" not in found.plan, "no word of a plan"
    assert "gbs=24, what the fullest ranks have for all: gbs=17 is no multiple of mbs=2 x 8 ranks" in found.assumptions
    assert found.contradictions, "a mistake in a file of one's own"


def test_a_part_of_a_sequence_that_no_ranks_share_is_a_whole_one() -> None:
    """Told once, whether the batch is enough for a sequence a rank or not."""
    said = "a microbatch of 0.5 does not fit fsdp=1 ranks"
    for batch, taken in ((8, "mbs=1"), (4, "gbs=8, what the fullest ranks have for all")):
        found = target(mbs=0.5, degrees={"dp": 8}, zero=0, counts={**LLAMA, "gbs": batch})
        assert (found.missing, found.batch, found.filled_batch, found.plan["mbs"]) == ((), batch, 8, 1)
        assert found.contradictions == (f"{taken}: {said}",)
        assert found.fixes == {f"{taken}: {said}": "use mbs=1, and a gbs that is a multiple of 8"}


def test_sizes_that_contradict_each_other_are_the_row_s_failure(tmp_path: Path) -> None:
    """Five heads cannot share three of keys: the row says so, and those beside it are still read."""
    path = tmp_path / "runs.csv"
    path.write_text(
        "id,device,devices,model,step_time_s,layers,hidden,ffn,heads,kv_heads,vocab,seq,gbs\n"
        "odd,h100-sxm,8,llama3-8b,1,2,640,256,5,3,1024,128,8\n"
    )
    found = row_target(read_run_rows(path)[0])
    assert any(each.startswith("sizes that fit each other: heads=5") for each in found.missing)


def test_other_errors_are_no_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has nothing to do with sizes is told as it is, as the failure of its row."""
    path = tmp_path / "runs.csv"
    path.write_text("id,device,devices,model,step_time_s\na,h100-sxm,8,llama3-8b,1\n")
    (row,) = read_run_rows(path)

    def broken(_: StatedRun) -> RunTarget:
        raise UnsupportedError("no such op")

    monkeypatch.setattr(planned, "run_target", broken)
    with pytest.raises(UnsupportedError, match="no such op"):
        row_target(row)
    result = validate_run(row, Options())
    assert (result.row.predicted, result.command) == (None, None)
    assert result.row.why is not None
    assert "no such op" in result.row.why
    assert "sizes" not in result.row.why


def test_a_device_that_cannot_be_read_is_not_taken_for_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a system is looked up as one, whatever is the matter with devices."""
    asked: list[str] = []

    def broken(name: str) -> Device:
        asked.append(name)
        raise InputError("a broken catalogue")

    monkeypatch.setattr(systems, "load_device", broken)
    assert target(device="dgx-h100").missing == ()
    assert asked == []
    assert any("a broken catalogue" in each for each in target(device="h100-sxm").missing)


@pytest.mark.parametrize(("name", "device"), [("gb200-nvl72", "gb200"), ("dgx-h100", "h100-sxm")])
def test_a_system_s_name_is_that_of_its_device(name: str, device: str) -> None:
    found = target(device=name)
    assert found.on is not None
    assert found.on.device.name == device


def test_devices_that_have_pcie_alone() -> None:
    """16 lanes of the fourth generation: 31.5 GB/s each way, and no switch that adds."""
    found = target(scale_up="pcie4-8")
    assert (found.missing, found.on is not None) == ((), True)
    assert found.on is not None
    inside = found.on.levels[0]
    assert (inside.size, inside.link.name, inside.in_network_reduction) == (8, "pcie", False)
    assert inside.bandwidth == pytest.approx(31.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("scale_up", "gigabytes"),
    [("pcie1-8", 4.0), ("pcie2-8", 8.0), ("pcie3-8", 15.75), ("pcie-8", 31.5), ("pcie5-8", 63.0), ("pcie6-8", 121.0)],
)
@pytest.mark.parametrize("device", ["h100-sxm", "v100-sxm2-32gb"])
def test_a_host_on_pcie_has_nothing_of_nvlink(device: str, scale_up: str, gigabytes: float) -> None:
    """2.5 Gbit/s x 16 lanes x 8/10 are 4 GB/s, from the third generation on 128/130; a microsecond a hop, as NCCL takes it."""
    found = target(device=device, scale_up=scale_up)
    assert found.on is not None
    inside = found.on.levels[0]
    assert inside.bandwidth == pytest.approx(gigabytes * 1e9, rel=1e-3)
    assert (inside.name, inside.topology, inside.size, inside.latency_s) == ("pcie", "switch", 8, 1e-6)


@pytest.mark.parametrize(("precision", "attention"), [("tf32", "plain"), ("fp32", "plain"), ("bf16", "flash")])
def test_fused_attention_is_half_precision_s(precision: str, attention: str) -> None:
    assert target(precision=precision, attention="cudnn").plan["attention"] == attention


def test_weights_are_shared_out_over_any_number_of_shards() -> None:
    """3,840 numbers over 128 x 4 ranks that store shares are no whole number each: the plan is the run's all the same."""
    counts = {**LLAMA, "hidden": 3840, "heads": 30, "kv_heads": 30, "gbs": 128}
    found = target(devices=512, degrees={"fsdp": 128, "cp": 4}, mbs=1.0, counts=counts, model="other")
    assert (found.missing, found.plan["fsdp"], found.plan["dp"]) == ((), 128, 1)


@pytest.mark.parametrize(
    ("changes", "stack", "assumed"),
    [
        ({"framework": "torchtitan", "flags": {"compiled": True}}, "pytorch-compile", None),
        ({"framework": "megatron-bridge"}, "nemo", None),
        ({"framework": "megatron", "framework_version": "2022-05 (paper)"}, "megatron-2022", None),
        ({"framework": "megatron", "framework_version": "core 0.14 (2025)"}, "megatron", None),
        ({"framework": "pytorch", "degrees": {"dp": 8}, "zero": 0}, "pytorch-ddp", None),
        ({"framework": "xla"}, "xla", None),
        ({"framework": "fms-fsdp"}, "pytorch-fsdp", "stack pytorch-fsdp, for fms-fsdp"),
        ({"framework": "deepspeed", "degrees": {"tp": 4, "pp": 2}, "framework_version": "megatron-deepspeed 2021"},
         "megatron-deepspeed", None),
        ({"framework": "deepspeed", "degrees": {"tp": 4}}, "megatron-deepspeed", None),
        ({"framework": "mlperf", "device": "mi300x", "degrees": {"dp": 8}}, "nemo", "stack nemo, for mlperf"),
        ({"framework": "axlearn", "device": "tpu-v5p"}, "maxtext", None),
        ({"framework": "abacus", "device": "tpu-v5e"}, "maxtext", "the usual one on TPUs"),
        ({"framework": ""}, "pytorch-fsdp", "the usual one for fsdp on NVIDIA"),
        ({"framework": "", "degrees": {"tp": 8}}, "megatron", "the usual one for tp, pp, cp on NVIDIA"),
        ({"framework": "", "degrees": {"dp": 8}}, "pytorch-ddp", "the usual one on NVIDIA"),
    ],
)  # fmt: skip
def test_software_by_framework_or_the_usual_one(changes: dict[str, Any], stack: str, assumed: str | None) -> None:
    found = target(**changes)
    assert found.missing == ()
    assert found.stack is not None
    assert found.stack.name == stack
    said = [each for each in found.assumptions if each.startswith("stack ")]
    assert bool(said) == (assumed is not None)
    assert assumed is None or assumed in said[0]


def test_what_a_stack_does_otherwise_is_the_row_s() -> None:
    usual = target(framework="megatron-bridge").stack
    told = target(framework="megatron-bridge", attention="plain", extra="cuda_graph=full-iteration").stack
    assert usual is not None
    assert told is not None
    assert (usual.host.graphs, told.host.graphs, told.attention) == (False, True, "plain")
    assert "async-tp" in target(flags={"async_tp": True}).overlap
    assert "async-tp" not in target(framework="megatron-bridge", flags={"async_tp": False}).overlap
    paired = target(framework="megatron-bridge", degrees={"dp": 4, "pp": 2, "vp": 2, "ep": 4}, extra="a2a_overlap")
    assert paired.overlap.endswith("paired-passes")


def test_a_replayed_program_holds_zeros() -> None:
    replayed, trained = (
        target(extra=Extras.read(text)) for text in ("weights=bf16;replay (hlo_runner)", "weights=bf16")
    )
    assert (replayed.values, trained.values) == ("zeros", "normal")
    assert [stated_options(each, Options()).estimate.data for each in (replayed, trained)] == ["zeros", "normal"]
    assert any("replayed" in each for each in replayed.assumptions)
    assert not any("replayed" in each for each in trained.assumptions)


def test_deepspeed_adds_gradients_up_in_fp16_where_that_is_the_precision() -> None:
    run = {"framework": "megatron-deepspeed", "degrees": {"tp": 4, "pp": 2}}
    assert [target(**run, precision=each).overlap for each in ("bf16", "fp16")] == ["wide-sums", ""]


def test_residuals_of_tensor_devices_are_split_as_the_row_or_the_rules_of_the_software_say() -> None:
    for framework, told, split in (("megatron", 0, 0), ("megatron", 1, 1), ("maxtext", 0, 1)):
        assert target(framework=framework, degrees={"fsdp": 4, "tp": 2, "sp": told}).plan["sp"] == split


def test_experts_share_the_ranks_of_the_batch() -> None:
    found = target(
        model="deepseek-v3", devices=256, counts={"seq": 4096, "gbs": 4096}, mbs=1.0, framework="megatron-bridge", zero=1,
        degrees={"dp": 128, "fsdp": 1, "tp": 1, "pp": 2, "vp": 8, "ep": 32, "cp": 1}, recompute="none",
    )  # fmt: skip
    assert found.missing == ()
    plan = found.plan
    assert [plan[key] for key in ("dp", "ep", "pp", "vp", "schedule", "zero")] == [4, 32, 2, 8, "interleaved", 1]
    sharded = target(
        model="mixtral-8x22b", counts={"seq": 4096, "gbs": 16, "experts": 8}, degrees={"fsdp": 8, "ep": 4}
    ).plan
    assert (sharded["fsdp"], sharded["ep"]) == (2, 4)


def test_layers_that_do_not_divide_leave_the_ends_fewer() -> None:
    assert shared_out(126, 16) == [7, *[8] * 14, 7]
    assert shared_out(61, 16) == [3, *[4] * 13, 3, 3]
    assert shared_out(8, 4) == [2, 2, 2, 2]


@given(st.integers(1, 200), st.integers(1, 64))
def test_every_layer_has_its_part(layers: int, parts: int) -> None:
    counts = shared_out(layers, parts)
    assert (sum(counts), len(counts)) == (layers, parts)
    assert max(counts) - min(counts) <= 1


def test_attention_is_the_row_s_and_moves_keys_as_the_stack_does() -> None:
    assert target(attention="splash", device="tpu-v5e", framework="maxtext").plan["attention"] == "flash"
    assert target(attention="plain", framework="maxtext").plan["attention"] == "plain"
    split = {"fsdp": 4, "cp": 2}
    assert target(degrees=split, mbs=1.0).plan["attention"] == "flash-parts"
    assert target(degrees=split, mbs=1.0, extra=Extras.read("window=1024")).plan["attention"] == "flash-all-gather"
    assert target(degrees=split, mbs=1.0, attention="plain").plan["attention"] == "all-gather"


@pytest.mark.parametrize(
    ("changes", "plan"),
    [
        ({"zero": 2}, {"dp": 8, "fsdp": 1, "zero": 2}),  # weights whole, the rest in shares
        ({"zero": 1, "degrees": {"dp": 8}}, {"dp": 8, "fsdp": 1, "zero": 1}),
        (
            {"zero": 2, "devices": 32, "degrees": {"fsdp": 4, "pp": 4, "tp": 2}, "mbs": 1.0},
            {"dp": 4, "fsdp": 1, "zero": 1},
        ),
        ({"degrees": {"fsdp": 1, "cp": 8}, "counts": {**LLAMA, "gbs": 1}, "mbs": 1.0}, {"dp": 1, "fsdp": 1, "zero": 3}),
        # Half a sequence for each rank: two of them share one by position.
        ({"counts": {**LLAMA, "gbs": 4}, "mbs": 0.5}, {"fsdp": 4, "cp": 2, "mbs": 1, "zero": 3}),
        ({"counts": {**LLAMA, "gbs": 12}, "mbs": 1.5}, {"fsdp": 4, "cp": 2, "mbs": 3, "zero": 3}),
    ],
)
def test_what_ranks_store_in_shares(changes: dict[str, Any], plan: dict[str, int]) -> None:
    found = target(**changes)
    assert found.missing == ()
    assert {key: found.plan[key] for key in plan} == plan


def test_stage_three_shares_weights_out_over_ranks_that_are_told_as_replicas() -> None:
    """DeepSpeed's rows have no degree of their own for shards, and beside stages weights stay gathered."""
    found = target(framework="deepspeed", degrees={"dp": 8, "fsdp": 1}, zero=3)
    assert (found.plan["dp"], found.plan["fsdp"]) == (1, 8)
    staged = target(framework="deepspeed", degrees={"dp": 2, "fsdp": 1, "pp": 4}, zero=3)
    assert (staged.plan["dp"], staged.plan["fsdp"], staged.plan["zero"]) == (2, 1, 1)


def test_the_optimizer_s_state_is_shared_out_over_context_ranks_alone_too() -> None:
    found = target(framework="megatron", degrees={"dp": 1, "cp": 8}, zero=1, counts={**LLAMA, "gbs": 4}, mbs=1.0)
    assert (found.plan["zero"], found.plan["cp"]) == (1, 8)


@pytest.mark.parametrize(
    ("recompute", "remat", "offload"),
    [
        ("none", "none", None),
        ("full:20-layers", "full", None),
        ("selective", "selective", None),
        ("policy:selective-op", "alternate", None),
        ("policy:minimal", "selective", None),
        ("policy:minimal_with_context", "products", None),
        ("policy:minimal_flash", "products", None),
        ("policy:save_dot_except_mlp", "projections", None),
        ("policy:save_out_proj", "full", None),
        ("policy:core_attn+mlp", "projections", None),
        ("policy:save:q+k+v+out_proj+context", "attention", None),
        ("policy:save:q+k+v+out_proj+context+mlpwi+mlpwo", "products", None),
        ("policy:save_dot_with_context_except_mlp", "attention", None),
        ("policy:mla_up_proj", "none", None),
        ("policy:mla_up_proj+mlp", "attention", None),
        ("policy:save:q+k+v", "heads", None),
        ("offload:layer_input+q+k+v", "heads", "activations"),
        ("offload:layer_input+out_proj+q+k+v", "projections", "activations"),
        ("offload:layer_input", "full", "activations"),
        ("offload:activations-of-40-layers", "none", "activations"),
    ],
)
def test_what_layers_keep_and_where(recompute: str, remat: str, offload: str | None) -> None:
    plan = target(recompute=recompute, framework="maxtext").plan
    assert (plan["remat"], plan.get("offload")) == (remat, offload)


def test_scores_that_are_products_are_multiplied_again_though_their_result_is_kept() -> None:
    found = target(recompute="policy:minimal_with_context", framework="maxtext", attention="plain")
    assert found.plan["remat"] == "selective"


MOE = {**LLAMA, "experts": 128, "experts_per_token": 8, "moe_ffn": 1536, "gbs": 256}


def moe(**changes: Any) -> RunTarget:
    given: dict[str, Any] = {
        "model": "of-experts", "counts": MOE, "devices": 64, "framework": "megatron-bridge", "zero": 1, "mbs": 1.0,
        "degrees": {"dp": 32, "tp": 2, "sp": 1, "ep": 32}, "extra": "dispatcher=deepep;dropless",
    }  # fmt: skip
    return target(**given | changes)


def test_tensor_ranks_share_out_whole_experts_where_that_is_told_or_cannot_be_otherwise() -> None:
    split = moe()
    assert split.model is not None
    assert "whole_experts" not in split.model.settings
    assert (split.plan["ep"], split.plan["dp"]) == (32, 1)
    told = moe(extra="dispatcher=deepep;etp=1")
    reaching = moe(degrees={"dp": 32, "tp": 2, "sp": 1, "ep": 64})
    for found, ranks in ((told, 16), (reaching, 32)):
        assert found.missing == ()
        assert found.model is not None
        assert found.model.settings["whole_experts"] is True
        assert found.plan["ep"] == ranks
        assert any("expert_tensor_parallel_size=1" in each for each in found.assumptions)


def test_a_token_goes_to_each_host_once_where_a_dispatcher_does_that() -> None:
    assert "one-copy" in moe().overlap.split(",")
    plain = moe(extra="dropless")
    assert "one-copy" not in plain.overlap.split(",")
    assert any("no dispatcher is told" in each for each in plain.assumptions)


def test_capped_scores_are_no_reason_to_refuse_a_run_that_was_run() -> None:
    found = target(model="gemma2-27b", counts={"seq": 4096, "gbs": 16}, attention="cudnn", framework="nemo")
    assert found.model is not None
    assert found.model.settings["attention_cap"] == 0.0
    assert found.plan["attention"] == "flash"
    assert any("without caps" in each for each in found.assumptions)
    on_tpus = target(model="gemma2-27b", counts={"seq": 4096, "gbs": 16}, device="tpu-v5p", framework="maxtext")
    assert on_tpus.model is not None
    assert "attention_cap" not in on_tpus.model.settings


def test_a_policy_that_nobody_knows_is_the_stack_s_habit() -> None:
    found = target(recompute="policy:abacus")
    assert found.plan["remat"] == "none"
    assert any("no policy that is known" in each for each in found.assumptions)


@pytest.mark.parametrize(
    ("changes", "cluster", "device", "inside"),
    [
        ({"device": "h100-sxm-500w", "scale_up": "nvlink4-nvswitch-8"}, "dgx-h100", "h100-sxm-500w", 8),
        ({"device": "a100-sxm-40gb", "scale_up": "nvlink3-nvswitch", "devices_per_host": 4}, "dgx-a100-40gb", "a100-sxm-40gb", 4),
        ({"device": "v100-sxm2-32gb", "scale_up": "nvswitch-16"}, "dgx-v100", "v100-sxm2-32gb", 16),
        ({"device": "gb300", "scale_up": "nvlink5-nvl72", "devices_per_host": 4}, "gb300-nvl72", "gb300", 72),
        ({"device": "tpu7x"}, "tpu-v7-core-pod", "tpu-v7-core", 2),
        ({"device": "tpu-v5e", "slices": 2}, "tpu-v5e-pod", "tpu-v5e", 4),
    ],
)  # fmt: skip
def test_hardware_by_its_cells(changes: dict[str, Any], cluster: str, device: str, inside: int) -> None:
    found = target(**changes, framework="")
    assert found.on is not None
    assert (found.on.name, found.on.device.name, found.on.levels[0].size) == (cluster, device, inside)


def test_the_network_between_hosts_has_the_row_s_rate() -> None:
    found = target(
        device="a100-sxm-40gb", devices=16, degrees={"fsdp": 16}, scale_out="roce", gbit_per_device=200.0, mbs=1.0
    )
    assert found.on is not None
    assert (found.on.levels[1].bandwidth, found.on.levels[1].link.name) == (pytest.approx(25e9), "roce")
    untold = target(devices=16, degrees={"fsdp": 16}, mbs=1.0)
    assert any("Gbit/s a device" in each for each in untold.assumptions)


def test_a_power_limit_is_the_device_s() -> None:
    limited, usual = target(device_note="500 W").on, target(device_note="700 W").on
    assert limited is not None
    assert usual is not None
    assert (limited.device.tdp_watts, usual.device.tdp_watts) == (500.0, 700.0)


def test_rows_of_tables_and_images() -> None:
    images = target(model="resnet50", counts={"gbs": 1024}, degrees={"dp": 8}, mbs=None, precision="", recompute="")
    assert images.missing == ()
    assert images.plan_text == "dp=8,mbs=128,precision=bf16"
    tables = target(
        model="dlrm", counts={"gbs": 65536}, degrees={"dp": 8}, mbs=8192.0, precision="tf32",
        extra="26 tables x 128;criteo fl=3, 82 gb of fp32 embeddings",
    )  # fmt: skip
    assert (tables.settings["tables"], tables.settings["align"]) == (32, 8)
    assert tables.settings["tables"] * tables.settings["rows"] * 128 * 4 == pytest.approx(82e9, rel=1e-3)


def test_encoders_and_models_of_diffusion_multiply_in_fewer_bits() -> None:
    """Their products are those of decoders; they have a mesh in place of a plan."""
    asked = {"degrees": {"dp": 8}, "mbs": 8.0, "zero": 0}
    for model, precision, products in (("bert-large", "fp8-delayed", "fp8"), ("flux.1-schnell", "mxfp8", "mxfp8")):
        found = target(model=model, counts={"gbs": 64, "seq": 512}, precision=precision, **asked)
        assert (found.missing, found.contradictions) == ((), ())
        settings = stated_options(found, Options()).program.settings
        assert (settings["products"], settings["compute_dtype"]) == (products, "bfloat16")


def test_xla_combines_the_gradients_of_models_without_a_plan() -> None:
    """30 MiB of all-reduces become one; decoders, whose layers' gradients are stacked, and one device have nothing to combine."""
    asked = {"device": "tpu-v4", "counts": {"gbs": 64}, "degrees": {"dp": 8}, "mbs": 8.0, "framework": "jax", "zero": 0}
    assert target(model="resnet50", **asked).overlap == "buckets=31457280B"
    alone = {"devices": 1, "degrees": {"dp": 1}, "mbs": 64.0}
    assert target(model="resnet50", **asked | alone).overlap == ""
    assert "buckets" not in target(device="tpu-v4", framework="jax").overlap


def test_families_that_a_part_of_a_name_tells_have_the_run_s_sizes() -> None:
    """Where it gives them; without any, no size is guessed."""
    sizes = {"layers": 48, "hidden": 1664, "heads": 16, "ffn": 8192, "gbs": 64}
    asked = {"degrees": {"dp": 8}, "mbs": 8.0, "precision": "bf16"}
    found = target(model="vit-bigG-14", counts=sizes, **asked)
    assert found.model is not None
    assert (found.missing, found.model.name) == ((), "vit-b16")
    assert (found.settings["layers"], found.settings["dim"], found.settings["ffn"]) == (48, 1664, 8192)
    state = target(
        model="mamba2-7b", counts={"layers": 56, "hidden": 4096, "vocab": 50288, "seq": 2048, "gbs": 64}, **asked
    )
    assert (state.missing, state.settings["mixers"], state.settings["dim"]) == ((), 56, 4096)
    assert target(model="vit-unknown", counts={"gbs": 64}, **asked).missing != ()


@pytest.mark.parametrize(
    ("task", "model"),
    [("stable_diffusion", "unet-sd2"), ("flux1", "flux.1-schnell"), ("llama31_405b", "llama3-405b"),
     ("llama2_70b_lora", "llama2-70b"), ("resnet", "resnet50"),
     ("maskrcnn", "mask-rcnn"), ("dlrm_dcnv2", "dlrm-dcnv2"), ("3d-unet", "unet3d")],
)  # fmt: skip
def test_tasks_of_mlperf_are_models(task: str, model: str) -> None:
    found = target(model=task, counts={"gbs": 64, "seq": 512}, degrees={"dp": 8}, mbs=8.0, framework="mlperf")
    assert found.model is not None
    assert (found.missing, found.model.name) == ((), model)


def test_pictures_have_the_side_that_is_told() -> None:
    """In latents an eighth of it; a video's patches are the positions of a sequence."""
    sides = {"resnet50": 192, "flux.1-schnell": 24, "unet-sdxl": 24}
    for model, side in sides.items():
        found = target(model=model, counts={"gbs": 64}, degrees={"dp": 8}, mbs=8.0, extra="images 192x192")
        assert (found.missing, found.settings["image"]) == ((), side)
    video = target(model="wan2.1-14b", counts={"gbs": 8, "seq": 75600}, degrees={"fsdp": 2, "cp": 4}, mbs=1.0)
    assert (video.missing, video.settings["tokens"]) == ((), 75600)
    assert stated_options(video, Options()).program.mesh == {"fsdp": 2, "context": 4}


def test_a_state_that_takes_most_of_a_device_is_shared_out_where_that_is_told() -> None:
    """12 billion weights of 16 bytes do not fit 80 GB; those of BERT do, many times over."""
    asked = {"degrees": {"dp": 8}, "mbs": 1.0, "zero": 1}
    large = target(model="flux.1-dev", counts={"gbs": 8}, **asked)
    small = target(model="bert-large", counts={"gbs": 8, "seq": 512}, **asked)
    settings = stated_options(large, Options()).program.settings
    assert (settings["zero"], settings["param_dtype"]) == ("1", "bfloat16")
    assert "zero" not in stated_options(small, Options()).program.settings


def test_an_encoder_that_tells_no_length_has_its_own() -> None:
    found = target(model="rnnt", counts={"gbs": 64}, degrees={"dp": 8}, mbs=8.0)
    assert (found.missing, found.seq) == ((), None)
    assert "seq=512, as rnnt has it" in found.assumptions


def test_what_has_more_parts_than_layers_or_positions_is_taken_as_the_nearest() -> None:
    """54 layers leave 12 x 5 = 60 parts empty, 12 x 4 = 48 not; 12 ranks do not share 2,048 positions, and have all of them."""
    counts = {**SMALL, "layers": 54, "gbs": 96}
    staged = target(model="other", counts=counts, degrees={"pp": 12, "vp": 5}, devices=24, mbs=1.0, zero=1)
    assert (staged.missing, staged.plan["vp"]) == ((), 4)
    odd = {**SMALL, "heads": 12, "kv_heads": 12, "hidden": 1536, "ffn": 3072, "vocab": 1536, "gbs": 96}
    split = target(model="other", counts=odd, degrees={"tp": 12, "sp": 1}, devices=24, mbs=1.0, zero=1)
    assert (split.missing, split.plan["sp"]) == ((), 0)


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("a,h100-sxm,eight,llama3-8b,1.5,16,2", "a whole number of at least 1 for devices: line 3 has 'eight'"),
        ("a,h100-sxm,-8,llama3-8b,1.5,16,2", "a whole number of at least 1 for devices: line 3 has '-8'"),
        ("a,h100-sxm,8,llama3-8b,0,16,2", "a positive number for step_time_s: line 3 has '0'"),
        ("a,h100-sxm,8,llama3-8b,~6k,16,2", "a positive number for step_time_s: line 3 has '~6k'"),
        ("a,h100-sxm,8,llama3-8b,1.5,inf,2", "a whole number of at least 1 for gbs: line 3 has 'inf'"),
        ("a,h100-sxm,8,llama3-8b,1.5,16,x", "a positive number for mbs: line 3 has 'x'"),
        ("a,,8,llama3-8b,,16,2", "device, step_time_s (blank in line 3)"),
        ("a,h100-sxm", "devices, model, step_time_s (blank in line 3)"),
        ("a,h100, sxm,8,llama3-8b,1.5,16,2", "a cell for each column of the header: line 3 has 1 more"),
    ],
)
def test_a_row_that_cannot_be_read_says_what_it_lacks(tmp_path: Path, line: str, lacking: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"id,device,devices,model,step_time_s,gbs,mbs\nb,h100-sxm,8,llama3-8b,1.5,16,0.5\n{line}\n")
    whole, broken = read_run_rows(path)
    assert (whole.step_time_s, whole.run.counts, whole.run.mbs, whole.unread) == (1.5, {"gbs": 16}, 0.5, ())
    assert any(each.startswith(lacking) for each in broken.unread)
    assert row_target(broken).missing == broken.unread


def test_a_row_without_a_name_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,device,devices,model,step_time_s\n,h100-sxm,8,llama3-8b,1.5\n")
    (found,) = read_run_rows(path)
    assert (found.id, found.unread) == ("line 2", ("id (blank in line 2)",))


def test_a_row_that_is_not_scored_needs_no_time(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,device,devices,model,grade,step_time_s\na,h100-sxm,8,llama3-8b,C,\n")
    (found,) = read_run_rows(path)
    assert (found.scored, found.unread) == (False, ())


def test_the_reader_refuses_a_file_without_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,device,devices\n")
    with pytest.raises(InputError, match="no column model, step_time_s"):
        read_run_rows(path)


@pytest.mark.parametrize(
    ("told", "planned"),
    [
        ("fp8-tensor", "fp8"), ("fp8_cs", "fp8"), ("fp8-blockwise", "fp8"), ("fp8", "fp8"), ("fp8-mx", "mxfp8"),
        ("fp8-rowwise", "fp8-rowwise"),
        ("nvfp4", "nvfp4"), ("bf16-mixed", "bf16"), ("fp16-amp", "bf16"), ("int8-aqt", "int8"), ("fp8x", "fp8"),
        ("qwix-fp8", "fp8"), ("fp8-mx-v2", "mxfp8"), ("amp", "bf16"), ("abacus", "bf16"),
        ("int8-rowwise", "int8"), ("rowwise", "fp8-rowwise"),
    ],
)  # fmt: skip
def test_the_words_for_a_precision_are_the_plan_s_or_their_own(told: str, planned: str) -> None:
    assert target(precision=told).plan["precision"] == planned


@pytest.mark.parametrize(
    ("model", "precision"), [("unet-sd2", "fp8-delayed"), ("resnet50", "int8"), ("convnext-tiny", "mxfp8")]
)
def test_models_without_products_in_fewer_bits_are_taken_in_bf16(model: str, precision: str) -> None:
    found = target(model=model, counts={"gbs": 64, "seq": 512}, degrees={"dp": 8}, precision=precision, mbs=8.0)
    assert (found.missing, found.plan["precision"]) == ((), "bf16")
    assert any(each.startswith(f"precision bf16: {model} has no products in") for each in found.contradictions)


@pytest.mark.parametrize(
    ("recompute", "degrees", "again"),
    [
        ("full:20-layers", {"fsdp": 8}, 20), ("full:4-layers", {"fsdp": 8}, 4), ("full:4-layers", {"fsdp": 2, "pp": 4}, 4),
        ("full:1-layer", {"fsdp": 2, "pp": 4, "vp": 2}, 1), ("full:8-layers", {"fsdp": 2, "pp": 4}, None),
        ("full:40-layers", {"fsdp": 8}, None),
    ],
)  # fmt: skip
def test_so_many_layers_of_a_part_are_computed_again(
    recompute: str, degrees: dict[str, int], again: int | None
) -> None:
    found = target(recompute=recompute, degrees=degrees)
    assert found.model is not None
    assert found.plan["remat"] == "full"
    assert found.model.settings.get("recomputed") == again


@pytest.mark.parametrize(("recompute", "remat"), [("full:20-layers", "full"), ("full:4-layers", "none")])
def test_of_layers_that_are_counted_other_models_do_what_most_of_a_stage_do(recompute: str, remat: str) -> None:
    counts = {**SMALL, "layers": 32, "gbs": 16}
    found = target(
        model="gpt-small", recompute=recompute, counts=counts, flags={"gated_ffn": False, "tied_embeddings": True}
    )
    assert found.model is not None
    assert found.model.builder.module == "gpt"
    assert found.plan["remat"] == remat


def test_policies_that_offload_keep_the_same_at_the_host() -> None:
    plan = target(recompute="policy:qkv_proj_offloaded", framework="maxtext").plan
    assert (plan["remat"], plan["offload"]) == ("heads", "activations")


def test_a_microbatch_that_does_not_divide_the_batch_is_the_next_smaller_one_that_does() -> None:
    found = target(mbs=3.0, counts={**LLAMA, "gbs": 32})
    assert (found.missing, found.plan["mbs"]) == ((), 2)
    assert found.contradictions == ("mbs=2: gbs=32 is no multiple of mbs=3 x 8 ranks",)


def test_what_tensor_ranks_cannot_share_evenly_is_filled_up_or_copied() -> None:
    counts = {**LLAMA, "hidden": 6144, "heads": 48, "kv_heads": 1, "vocab": 256000, "gbs": 16}
    found = target(devices=24, degrees={"fsdp": 2, "tp": 12}, counts=counts, mbs=8.0)
    assert found.missing == ()
    assert found.model is not None
    assert (found.model.config.vocab, found.model.config.kv_heads) == (256512, 12)
    assert {"a vocabulary of 256000 filled up to 256512, which tp=12 shares evenly"} <= set(found.assumptions)


def test_ranks_that_cannot_share_weights_evenly_share_them_all_the_same() -> None:
    found = target(devices=24, degrees={"dp": 1, "fsdp": 24}, counts={**LLAMA, "gbs": 48})
    assert (found.missing, found.contradictions) == ((), ())
    assert (found.plan["dp"], found.plan["fsdp"]) == (1, 24)
