"""Rows of published runs as targets: models, plans, hardware, software; what they lack and what is assumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError
from meshcast.evidence.validate.runs.parallelism import shared_out
from meshcast.evidence.validate.runs.rows import RunRow, read_run_rows
from meshcast.evidence.validate.runs.target import RunTarget, run_target

LLAMA = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "seq": 8192}


def row(**changes: Any) -> RunRow:
    given: dict[str, Any] = {
        "id": "invented-1", "hardware": "H100 80GB SXM", "devices": 8, "model": "Llama-3.1-8B", "metric": "step_time_s",
        "value": 1.0, "counts": {**LLAMA, "gbs": 16, "mbs": 2}, "degrees": {"fsdp": 8}, "precision": "bf16",
        "recompute": "full", "source": "https://github.com/pytorch/torchtitan/page",
    }  # fmt: skip
    return RunRow(**given | changes)


def target(**changes: Any) -> RunTarget:
    return run_target(row(**changes))


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


def test_sizes_of_the_row_override_the_zoo() -> None:
    found = target(counts={**LLAMA, "layers": 4, "vocab": 1024, "gbs": 16, "mbs": 2})
    assert found.model is not None
    assert found.model.settings == {"layers": 4, "vocab": 1024}


@pytest.mark.parametrize(
    ("model", "counts", "name", "settings"),
    [
        ("22B", {}, "megatron-22b", {}),
        ("GPT-3 175B", {}, "gpt3-175b", {}),
        ("Mixtral-8x22B (dropped)", {}, "mixtral-8x22b", {}),
        ("Gemma3-12B", {}, "gemma3-12b", {}),
        ("Qwen3-235B-A22B", {"ffn": 1536}, "qwen3-235b-a22b", {}),
        ("Llama-9-3B", {"layers": 2, "hidden": 64, "heads": 4, "ffn": 96, "vocab": 512}, "llama3-8b",
         {"layers": 2, "dim": 64, "heads": 4, "kv_heads": 4, "ffn": 96, "vocab": 512, "head_dim": 16}),
    ],
)  # fmt: skip
def test_models_by_name_and_by_sizes(model: str, counts: dict[str, int], name: str, settings: dict[str, Any]) -> None:
    found = target(model=model, counts={**counts, "seq": 2048, "gbs": 16, "mbs": 2})
    assert found.missing == ()
    assert found.model is not None
    assert (found.model.name, found.model.settings) == (name, settings)


def test_words_say_what_columns_cannot() -> None:
    sizes = {"layers": 8, "hidden": 512, "heads": 4, "kv_heads": 4, "ffn": 256, "vocab": 1024, "seq": 2048}
    words = "relu MLP (2 mats), head_dim 256, tied embeddings"
    plain = target(model="MaxText 1B", counts={**sizes, "gbs": 16, "mbs": 2}, other=words).settings
    assert plain["head_dim"] == 256
    assert (plain["gated"], plain["activation"], plain["tied"]) == (False, "relu", True)
    words = "MoE 32 experts top4; dropless"
    routed = target(model="Some MoE", counts={**sizes, "gbs": 16, "mbs": 2}, other=words).settings
    assert (routed["experts"], routed["active"], routed["capacity_factor"]) == (32, 4, 1.0)


def test_what_a_row_lacks_is_named() -> None:
    unknown = target(model="llama3-100m", counts={}, degrees={})
    assert any("layers, hidden, heads, ffn, vocab" in each for each in unknown.missing)
    assert "gbs" in unknown.missing
    assert any("parallelism" in each for each in target(degrees={}).missing)
    assert any("'abacus'" in each for each in target(hardware="abacus").missing)
    assert any("no multiple" in each for each in target(counts={**LLAMA, "gbs": 17, "mbs": 2}).missing)
    assert any("do not divide" in each for each in target(degrees={"tp": 3}).missing)
    assert any("precision" in each for each in target(precision="int3").missing)


@pytest.mark.parametrize(
    ("changes", "stack", "assumed"),
    [
        ({"source": "", "stack": "nemo"}, "nemo", None),
        ({"stack": "XLA"}, "xla", None),
        ({"source": "", "stack": "torchtitan"}, "pytorch-fsdp", None),
        ({"source": "", "other": "Megatron-DeepSpeed"}, "megatron-2022", None),
        ({"source": "", "other": "PaxML"}, "xla", None),
        ({"source": "", "notes": "DeepSpeed ZeRO-3"}, "pytorch-fsdp", "stack pytorch-fsdp, for DeepSpeed"),
        ({"source": "", "notes": "MLPerf v4.0"}, "nemo", "stack nemo, for MLPerf"),
        ({"source": "", "notes": "MLPerf v4.0", "hardware": "TPU v5e-8"}, "maxtext", "stack maxtext, for MLPerf"),
        ({"source": "", "hardware": "TPU v5e-8"}, "maxtext", "the usual one on TPUs"),
        ({"hardware": "TPU v5e-8"}, "xla", "where words say pytorch-fsdp"),
        ({"source": ""}, "pytorch-fsdp", "the usual one for fsdp on NVIDIA"),
        ({"source": "", "degrees": {"tp": 8}}, "megatron", "the usual one for tp, pp, cp on NVIDIA"),
        ({"source": "", "degrees": {"dp": 8}}, "pytorch-ddp", "the usual one on NVIDIA"),
    ],
)
def test_software_by_column_by_words_or_the_usual_one(changes: dict[str, Any], stack: str, assumed: str | None) -> None:
    found = target(**changes)
    assert found.missing == ()
    assert found.stack is not None
    assert found.stack.name == stack
    said = [each for each in found.assumptions if each.startswith("stack ")]
    assert bool(said) == (assumed is not None)
    assert assumed is None or assumed in said[0]


def test_a_stack_that_is_none_is_named() -> None:
    (lacking,) = target(stack="megatorn").missing
    assert lacking.startswith("a stack that is known: no stack 'megatorn' (did you mean 'megatron'")


def test_experts_share_the_data_parallel_ranks() -> None:
    found = target(
        model="DeepSeek-V3", devices=256, degrees={"tp": 1, "pp": 2, "vp": 8, "ep": 32, "fsdp": 0, "cp": 1},
        counts={"seq": 4096, "gbs": 4096, "mbs": 1}, recompute="", source="https://github.com/NVIDIA-NeMo/Megatron-Bridge",
    )  # fmt: skip
    assert found.missing == ()
    plan = found.plan
    assert (plan["dp"], plan["ep"], plan["pp"], plan["vp"], plan["schedule"], plan["zero"]) == (
        4,
        32,
        2,
        8,
        "interleaved",
        1,
    )
    assert any("recomputation none" in each for each in found.assumptions)


def test_layers_that_do_not_divide_leave_the_ends_fewer() -> None:
    assert shared_out(126, 16) == [7, *[8] * 14, 7]
    assert shared_out(61, 16) == [3, *[4] * 13, 3, 3]
    assert shared_out(8, 4) == [2, 2, 2, 2]


@given(st.integers(1, 200), st.integers(1, 64))
def test_every_layer_has_its_part(layers: int, parts: int) -> None:
    counts = shared_out(layers, parts)
    assert (sum(counts), len(counts)) == (layers, parts)
    assert max(counts) - min(counts) <= 1


def test_attention_is_the_stacks() -> None:
    """A fused kernel wherever the stack has one, also on TPUs; over split sequences as the stack moves its keys."""
    for hardware in ("TPU v5e-8", "H100"):
        assert target(hardware=hardware, source="https://github.com/x/maxtext").plan["attention"] == "flash"
    split = target(degrees={"fsdp": 4, "cp": 2})
    assert split.plan["attention"] == "flash-all-gather"


def test_sharded_gradients_with_whole_weights_are_zero_two() -> None:
    plan = target(other="SHARD_GRAD_OP").plan
    assert (plan["dp"], plan["fsdp"], plan["zero"]) == (8, 1, 2)


def test_a_batch_for_each_device_is_a_larger_one_for_each_rank() -> None:
    maxtext = target(
        degrees={"fsdp": 2, "tp": 4}, counts={**LLAMA, "gbs": 16, "mbs": 2}, source="https://github.com/x/maxtext"
    )
    assert maxtext.plan["mbs"] == 8
    assert target(degrees={"fsdp": 2, "tp": 4}).plan["mbs"] == 2


def test_pipelines_of_local_batches_get_a_microbatch() -> None:
    found = target(devices=64, degrees={"fsdp": 1, "tp": 8, "pp": 8}, counts={**LLAMA, "gbs": 32, "mbs": 32},
                   notes="mbs column holds LOCAL batch size", other="interleaved 1F1B")  # fmt: skip
    assert (found.plan["mbs"], found.plan["vp"]) == (4, 2)
    assert any("local batch" in each for each in found.assumptions)


@pytest.mark.parametrize(
    ("hardware", "cluster", "device", "devices"),
    [
        ("H100 96GB HBM2e 2.4TB/s 500W (NVLink8, 400Gb/s RDMA per GPU)", "dgx-h100", "h100-sxm-500w", 8),
        ("A100 40GB SXM (1600Gb/s RoCE/node)", "dgx-a100-40gb", "a100-sxm-40gb", 8),
        ("V100 16GB SXM", "dgx-v100", "v100-sxm2-16gb", 8),
        ("V100 32GB DGX-2", "dgx-2", "v100-sxm2-32gb", 8),
        ("DGX-GB300", "gb300-nvl72", "gb300", 8),
        ("TPU 2x v6e-256", "tpu-v6e-pod", "tpu-v6e", 8),
        ("TPU v5p-256 (128 chips)", "tpu-v5p-pod", "tpu-v5p", 8),
        ("TPU v3-8 (8 cores)", "tpu-v3-pod", "tpu-v3", 4),
    ],
)
def test_hardware_by_its_words(hardware: str, cluster: str, device: str, devices: int) -> None:
    found = target(hardware=hardware)
    assert found.on is not None
    assert (found.on.name, found.on.device.name, found.devices) == (cluster, device, devices)


def test_a_host_s_network_is_shared_by_its_devices() -> None:
    found = target(hardware="A100 40GB SXM (1600Gb/s RoCE/node)", devices=16, degrees={"fsdp": 16})
    assert found.on is not None
    assert found.on.levels[1].bandwidth == pytest.approx(25e9)
    assert found.on.levels[1].link.name == "roce"


def test_rows_of_tables_and_images() -> None:
    images = target(model="ResNet-50 v1.5", counts={"gbs": 1024}, degrees={}, precision="", recompute="")
    assert images.missing == ()
    assert images.plan_text == "dp=8,mbs=128,precision=bf16"
    tables = target(model="DLRM large (82GB)", counts={"gbs": 65536, "mbs": 8192}, degrees={}, precision="TF32")
    assert tables.settings["tables"] == 32
    assert tables.settings["tables"] * tables.settings["rows"] * 128 * 4 == pytest.approx(82e9, rel=1e-3)


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("a,H100,eight,Llama-3-8B,step_time_s,1.5,16", "a whole number of at least 1 for devices: line 3 has 'eight'"),
        ("a,H100,-8,Llama-3-8B,step_time_s,1.5,16", "a whole number of at least 1 for devices: line 3 has '-8'"),
        ("a,H100,8,Llama-3-8B,step_time_s,0,16", "a positive number for value: line 3 has '0'"),
        ("a,H100,8,Llama-3-8B,step_time_s,~6k,16", "a positive number for value: line 3 has '~6k'"),
        ("a,H100,8,Llama-3-8B,step_time_s,1.5,2.5", "a whole number of at least 1 for gbs: line 3 has '2.5'"),
        ("a,H100,8,Llama-3-8B,step_time_s,inf,inf", "a whole number of at least 1 for gbs: line 3 has 'inf'"),
        ("a,,8,Llama-3-8B,,1.5,16", "hardware, metric (blank in line 3)"),
        ("a,H100", "devices, model, metric, value (blank in line 3)"),
        ("a,H100, SXM,8,Llama-3-8B,step_time_s,1.5,16", "a cell for each column of the header: line 3 has 1 more"),
    ],
)
def test_a_row_that_cannot_be_read_says_what_it_lacks(tmp_path: Path, line: str, lacking: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"id,hardware,devices,model,metric,value,gbs\nb,H100,8,Llama-3-8B,step_time_s,1.5,16\n{line}\n")
    whole, broken = read_run_rows(path)
    assert (whole.value, whole.counts, whole.unread) == (1.5, {"gbs": 16}, ())
    assert any(each.startswith(lacking) for each in broken.unread)
    assert run_target(broken).missing == broken.unread


def test_a_row_without_a_name_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,hardware,devices,model,metric,value\n,H100,8,Llama-3-8B,step_time_s,1.5\n")
    (row,) = read_run_rows(path)
    assert (row.id, row.unread) == ("line 2", ("id (blank in line 2)",))


def test_the_reader_refuses_a_file_without_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,hardware,devices\n")
    with pytest.raises(InputError, match="no column model, metric, value"):
        read_run_rows(path)


@pytest.mark.parametrize(
    ("recompute", "remat", "offload"),
    [
        ("custom: offload layer-input,q,k,v to host", "heads", "activations"),
        ("custom: offload layer-input", "full", "activations"),
        ("custom: keep layer-input on device; remat qkv", "full", None),
        ("save_qkv_proj", "heads", None),
    ],
)
def test_what_layers_keep_and_where(recompute: str, remat: str, offload: str | None) -> None:
    plan = target(recompute=recompute, source="https://github.com/AI-Hypercomputer/maxtext/page").plan
    assert (plan["remat"], plan.get("offload")) == (remat, offload)


def test_fsdp_beside_stages_keeps_weights() -> None:
    """Its shards share out the optimizer; alone, those of context ranks are shards too."""
    staged = target(devices=32, degrees={"fsdp": 4, "pp": 4, "tp": 2}, counts={**LLAMA, "gbs": 64, "mbs": 1})
    assert {key: staged.plan[key] for key in ("dp", "fsdp", "zero")} == {"dp": 4, "fsdp": 1, "zero": 1}
    split = target(degrees={"fsdp": 1, "cp": 8}, counts={**LLAMA, "gbs": 1, "mbs": 1})
    assert split.plan["zero"] == 3
    assert "zero" not in target(degrees={"fsdp": 4, "cp": 2}, counts={**LLAMA, "gbs": 4, "mbs": 1}).plan
