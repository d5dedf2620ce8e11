"""A stated run as a question: microbatches of models that have no plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.jobs.stated.asking import stated_options
from meshcast.jobs.stated.extras import Extras
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.target import run_target
from meshcast.options import Options

BERT = StatedRun(
    device="a100-sxm-80gb", devices=8, model="bert-large", counts={"seq": 128, "gbs": 4096}, mbs=64, precision="fp16",
    framework="pytorch",
)  # fmt: skip


@pytest.mark.parametrize(("micro", "asked"), [(64, "8"), (128, "4"), (512, None)])
def test_an_encoder_adds_up_gradients_over_its_microbatches(micro: int, asked: str | None) -> None:
    """4,096 sequences on eight devices: as many microbatches of each as there are, and no word where it is one."""
    settings = stated_options(run_target(replace(BERT, mbs=micro)), Options()).program.settings
    assert settings.get("accumulate") == asked


def test_a_batch_that_ranks_do_not_divide_is_the_fullest_ones() -> None:
    """4,100 sequences on eight ranks: some have 513, which are nine microbatches of 57, and the others wait for them."""
    settings = stated_options(run_target(replace(BERT, counts={"seq": 128, "gbs": 4100})), Options()).program.settings
    assert (settings["batch"], settings["accumulate"]) == ("4104", "9")


def test_tensorflow_picks_kinds_of_tokens_by_a_product() -> None:
    """As Google's and NVIDIA's code for it does; PyTorch's looks them up."""
    tensorflow = run_target(replace(BERT, framework="tensorflow", flags={"compiled": True}))
    assert stated_options(tensorflow, Options()).program.settings["one_hot_types"] == "true"
    assert "one_hot_types" not in stated_options(run_target(BERT), Options()).program.settings


@pytest.mark.parametrize(
    ("model", "extra", "rank"),
    [
        ("llama2-70b", "lora=8", 8),
        ("llama2-70b-lora", "", 16),
        ("llama2-70b", "peft=lora", 16),
        ("llama2-70b", "", None),
    ],
)
def test_adapters_are_trained_where_a_run_says_so(model: str, extra: str, rank: int | None) -> None:
    run = replace(BERT, model=model, counts={"seq": 8192, "gbs": 8}, mbs=1, extra=Extras.read(extra))
    target = run_target(run)
    assert target.model is not None
    assert (target.model.name, target.model.settings.get("lora")) == ("llama2-70b", rank)


def test_an_encoder_and_decoder_are_split_as_a_run_says() -> None:
    """T5X: 64 devices, of which pairs share layers and eight share weights."""
    counts = {"seq": 512, "gbs": 1024}
    degrees = {"tp": 2, "fsdp": 8, "dp": 4}
    run = replace(
        BERT, model="t5-xl", device="h100-sxm", devices=64, counts=counts, degrees=degrees, mbs=32, framework="t5x"
    )
    options = stated_options(run_target(run), Options())
    assert options.program.mesh == {"data": 4, "fsdp": 8, "tensor": 2}
    assert "accumulate" not in options.program.settings


@pytest.mark.parametrize(
    ("told", "version", "taken"),
    [("", "jax 24.04", "flash"), ("plain", "jax 24.04", "plain"), ("", "2023", "plain"), ("cudnn", "2023", "flash")],
)
def test_paxml_fuses_attention_on_gpus_unless_it_is_told(told: str, version: str, taken: str) -> None:
    run = replace(
        BERT, model="llama2-7b", device="h100-sxm", counts={"seq": 4096, "gbs": 16}, degrees={"fsdp": 8}, mbs=2,
        framework="paxml", framework_version=version, attention=told, precision="bf16",
    )  # fmt: skip
    assert run_target(run).plan["attention"] == taken
