"""Words of a run that have no cell of their own: names of software, items of `extra`, fractions of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshcast.base.errors import InputError
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.file import job_text, read_job
from meshcast.jobs.stated.frameworks import canonical, nearest_name
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.target import RunTarget
from meshcast.jobs.stated.vocabulary import not_understood
from tests.evidence.validate.test_run_targets import SMALL, run, target
from tests.jobs.stated.test_job_files import JOB, written

IMAGES: dict[str, Any] = {
    "model": "resnet50", "counts": {"gbs": 128}, "mbs": 16.0, "degrees": {"dp": 8}, "zero": 0, "recompute": "none",
}  # fmt: skip
TEXTS: dict[str, Any] = {
    "model": "bert-large", "counts": {"gbs": 48, "seq": 512}, "mbs": 6.0, "degrees": {"dp": 8}, "zero": 0, "recompute": "none",
}  # fmt: skip
LATENT = "mla:q_lora=192,kv_lora=64,qk_nope=32,qk_rope=16,v=48"


def assumed(found: RunTarget, words: str) -> bool:
    return any(words in each for each in found.assumptions)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("Megatron-LM", "megatron"), ("megatron_lm", "megatron"), ("nemo2", "nemo"), ("NVIDIA NeMo", "nemo"),
        ("NeMo Framework 25.04", "nemo"), ("transformers", "huggingface"), ("HF Trainer", "huggingface"),
        ("ColossalAI", "colossalai"), ("Colossal-AI", "colossalai"), ("neuronx", "neuronx"), ("NeuronX Distributed", "neuronx"),
        ("HugeCTR", "hugectr"), ("MLPerf (NVIDIA)", "mlperf"), ("mlperf v4.1", "mlperf"), ("TorchTitan", "torchtitan"),
        ("LLM Foundry", "llm-foundry"), ("megatron-2022", "megatron-2022"), ("Megatron Bridge", "megatron-bridge"),
        ("maxtext", "maxtext"), ("DeepSpeed 0.14.2", "deepspeed"), ("t5x", "t5x"), ("fsdp2", "pytorch-fsdp"),
        ("abacus", "abacus"),
    ],
)  # fmt: skip
def test_case_dashes_vendors_and_versions_of_a_framework_do_not_matter(told: str, name: str) -> None:
    assert canonical(told) == name


def test_an_unknown_framework_is_taken_as_the_nearest_by_its_name() -> None:
    assert (nearest_name("megatron-lm-fork"), nearest_name("torchtitn"), nearest_name("abacus")) == (
        "megatron", "torchtitan", None,
    )  # fmt: skip
    found = target(framework="torchtitn")
    assert found.stack is not None
    assert found.stack.name == "pytorch-fsdp"
    assert assumed(found, "framework torchtitan: torchtitn is none that is known")


@pytest.mark.parametrize(("changes", "stack"), [(IMAGES, "mxnet"), (TEXTS, "apex"), ({}, "nemo")])
def test_the_software_of_a_submission_to_mlperf_goes_by_its_model(changes: dict[str, Any], stack: str) -> None:
    found = target(framework="MLPerf", **changes)
    assert found.stack is not None
    assert found.stack.name == stack
    assert assumed(found, f"stack {stack}, for mlperf")
    assert ("late-reductions" in found.overlap) == (stack != "nemo")


def test_what_has_no_plan_is_reduced_in_buckets_by_megatron_too() -> None:
    told = target(**TEXTS, framework="nemo").overlap.split(",")
    assert {"buckets=80000000B", "late-reductions"} <= set(told)
    assert "late-reductions" not in target(framework="nemo").overlap


def test_a_graph_of_a_whole_step_holds_its_convolutions_too() -> None:
    part, whole = (
        target(**IMAGES, framework="mxnet", extra=f"cuda_graph={kind}").stack for kind in ("te", "full-iteration")
    )
    assert part is not None
    assert whole is not None
    assert part.host.convolution > whole.host.convolution == whole.host.graph_kernel


def test_items_that_nobody_understands_are_listed_and_are_mistakes_in_a_file(tmp_path: Path) -> None:
    extra = "dense_layer=3; blah; images 224x224; dropless; mtp=two"
    assert not_understood(Extras.read(extra)) == ("dense_layer=3", "mtp=two", "blah")
    found = target(extra=extra)
    assert found.missing == ()
    assert "not understood: dense_layer=3, mtp=two, blah" in found.assumptions
    path = written(tmp_path, JOB.replace("seq = 256", 'seq = 256\nextra = ["dense_layer=3"]'))
    with pytest.raises(InputError) as caught:
        read_job(path)
    assert caught.value.where == f"{path}:13"
    assert "nothing is known as 'dense_layer=3', did you mean 'dense_layers'?" in caught.value.message


def test_the_file_of_a_row_leaves_out_what_is_not_understood(tmp_path: Path) -> None:
    row = run(extra=Extras.read("blah; dropless; routing=forced-balanced,whatever"))
    text = job_text(row)
    assert "# not understood, and left out: blah, whatever" in text
    assert read_job(written(tmp_path, text))[0].extra == Extras.read("dropless; routing=forced-balanced")


@pytest.mark.parametrize(
    ("told", "virtual", "word", "doubted"),
    [
        ("zero-bubble", 1, "zb-h1", False), ("ZB-H2", 1, "zb-h2", False), ("Interleaved1F1B", 2, "interleaved", False),
        ("1f1b", 2, "interleaved", False), ("gpipe", 1, "gpipe", False), ("zbv", 2, "interleaved", True),
        ("dualpipe", 1, "1f1b", True),
    ],
)  # fmt: skip
def test_schedules_by_their_names(told: str, virtual: int, word: str, doubted: bool) -> None:
    changes: dict[str, Any] = {"degrees": {"dp": 4, "pp": 2, "vp": virtual}, "zero": 1}
    found = target(**changes, framework="megatron", extra=f"schedule={told}")
    assert found.plan["schedule"] == word
    assert assumed(found, "no schedule") == doubted


def test_texts_that_are_not_filled_up_are_half_as_long() -> None:
    full, short, told = (target(**TEXTS, extra=extra) for extra in ("", "unpad", "mean_seq=230"))
    assert (full.seq, short.seq, told.seq) == (512, 256, 230)
    assert (full.batch, short.batch) == (48, 48)
    assert assumed(short, "half of those of 512 are padding in Wikipedia's texts")
    other = target(**{**TEXTS, "counts": {"gbs": 48, "seq": 128}}, extra="packed")
    assert (other.seq, assumed(other, "mean_seq=N")) == (128, True)


def test_an_optimizer_that_the_zoo_does_not_have_is_told() -> None:
    assert assumed(target(extra="optimizer=adafactor"), "AdamW, that of the zoo's model, in place of adafactor")
    assert not assumed(target(extra="optimizer=adamw"), "optimizer")
    assert assumed(target(**TEXTS, extra="lamb"), "in place of lamb")
    assert not assumed(target(**IMAGES, extra="sgd"), "optimizer")


@pytest.mark.parametrize(
    ("changes", "name"), [({}, "kimi-k2-1t"), ({"experts": 8, "moe_ffn": 128}, "deepseek-v3-671b")]
)
def test_latent_attention_is_a_run_s_own(changes: dict[str, int], name: str) -> None:
    counts = {**SMALL, "gbs": 16, **changes}
    found = target(model=name, counts=counts, extra=LATENT)
    assert found.missing == ()
    assert found.model is not None
    config = found.model.config
    widths = (config.latent_rank, config.query_rank, config.head_dim, config.rope_dim, config.value_dim)
    assert widths == (64, 192, 32, 16, 48)
    assert (config.experts, config.shared_ffn, config.dense_layers) == (changes.get("experts", 0), 0, 0)
    whole = target(model=name, counts=counts)
    assert assumed(whole, "whole keys and values")
    assert getattr(whole.model and whole.model.config, "latent_rank", None) == 0


def test_a_fraction_of_the_blocks_is_computed_again() -> None:
    """`selective_checkpointing=1/2` of fms-fsdp; a layer is a block."""
    half = target(recompute="policy:1/2", framework="fms-fsdp", zero=3)
    assert half.model is not None
    assert (half.model.config.recomputed, half.plan["remat"]) == (16, "full")
    assert (target(recompute="policy:1/1").plan["remat"], target(recompute="policy:0/1").plan["remat"]) == (
        "full",
        "none",
    )


@pytest.mark.parametrize(
    ("recompute", "remat", "said"),
    [
        ("full:block", "full", "'full:block' is taken as full"),
        ("selective:moe_act+layernorm", "none", "it is small beside the rest"),
        ("selective:core_attn", "selective", ""),
        ("selective:whatever", "selective", "whatever is no part of a layer that is known"),
    ],
)
def test_what_stands_behind_a_word_for_recomputation_is_told(recompute: str, remat: str, said: str) -> None:
    found = target(recompute=recompute, framework="maxtext")
    assert found.plan["remat"] == remat
    assert not said or assumed(found, said)


def test_hosts_that_no_product_has_are_told() -> None:
    odd = StatedRun(device="h100-sxm", devices=9, model="llama3-8b", devices_per_host=3)
    assert assumed(target(**{"device": odd.device, "devices": 9, "devices_per_host": 3}), "hosts of 3 devices")
    assert not assumed(target(devices_per_host=4), "hosts of")


def test_switches_between_hosts_add_where_a_run_says_so() -> None:
    many: dict[str, Any] = {**TEXTS, "devices": 64, "counts": {"gbs": 384, "seq": 512}, "degrees": {"dp": 64}}
    asked = [
        target(**many, scale_out=fabric, extra=extra).on
        for fabric, extra in (("infiniband-ndr", ""), ("infiniband-ndr", "sharp"), ("roce", "sharp"))
    ]
    assert [each is not None and each.levels[-1].in_network_asked for each in asked] == [False, True, False]
    assert assumed(target(**many, scale_out="roce", extra="sharp"), "do not add")


def test_a_recommender_with_cross_layers_is_no_other_one() -> None:
    found = target(**{**IMAGES, "model": "dlrm-dcnv2", "counts": {"gbs": 65536}, "mbs": 8192.0})
    assert found.model is not None
    assert (found.model.name, found.model.config.crosses) == ("dlrm-dcnv2", 3)
