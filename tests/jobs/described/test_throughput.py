"""Tokens, images and samples: the batch over the step, per device and per day, with the model's own arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast import predict
from meshcast.results.throughput import Throughput, format_count

ROOFLINE: dict[str, Any] = {"on": "dgx-h100", "levers": False, "fidelity": "roofline"}


def test_rates_by_hand() -> None:
    done = Throughput(unit="tokens", units=64 * 4096, seconds=0.5, devices=64, model_flops=2e14)
    assert done.to_json() == {
        "unit": "tokens",
        "per_s": 524_288.0,
        "per_device_s": 8192.0,
        "per_day": 524_288.0 * 86_400,
        "model_flops_per_device_s": 4e14,
    }
    said = "524,000 tokens/s, 8,190 per device, 45.3 billion per day; model 400 TFLOP/s per device"
    assert done.rows() == [("throughput", said)]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.4216, "0.422"), (999.6, "1,000"), (1234, "1,230"), (999_600, "1 million"), (2.48e10, "24.8 billion")],
)
def test_counts_for_people(number: float, text: str) -> None:
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("target", "options", "unit", "units"),
    [
        ("llama3-tiny", {"settings": {"batch": "4", "seq": "128"}}, "tokens", 4 * 128),
        ("llama3-tiny", {"plan": "dp=2,mbs=3", "settings": {"batch": "12"}}, "tokens", 12 * 2048),
        ("llama3-tiny", {"plan": "pp=2,microbatches=4,mbs=2"}, "tokens", 8 * 2048),
        ("llama3-tiny-decode", {"settings": {"batch": "4"}}, "tokens", 4),
        ("llama3-tiny-prefill", {"settings": {"batch": "4", "seq": "64"}}, "tokens", 4 * 64),
        ("t5-tiny", {"settings": {"batch": "2", "seq": "64", "target": "16"}}, "tokens", 2 * 80),
        ("resnet-tiny", {"settings": {"batch": "16"}}, "images", 16),
        ("dlrm-tiny", {"settings": {"batch": "128"}, "devices": 2}, "samples", 2 * 128),  # each device has its own
    ],
)  # fmt: skip
def test_units_of_a_step(target: str, options: dict[str, Any], unit: str, units: int) -> None:
    found = predict(target, **options, **ROOFLINE)
    assert found.throughput is not None
    assert found.step_time_s is not None
    assert found.throughput.unit == unit
    assert found.throughput.per_s == pytest.approx(units / found.step_time_s, rel=1e-12)
    assert found.throughput.per_device_s == pytest.approx(found.throughput.per_s / found.devices, rel=1e-12)
    assert found.throughput.model_flops_per_device_s == found.model_flops_per_device_s


def test_served_requests() -> None:
    settings = {"mode": "serve", "prompt": "64", "output": "8", "batch": "4"}
    found = predict("llama3-tiny", settings=settings, **ROOFLINE)
    assert found.serving is not None
    assert found.throughput is not None
    done = found.throughput.to_json()
    assert done["per_s"] == pytest.approx(found.serving.tokens_per_s, rel=1e-12)
    assert done["requests_per_s"] == pytest.approx(done["per_s"] / 8, rel=1e-12)


def test_served_arithmetic_is_that_of_whole_requests() -> None:
    """The same work as one pass over the prompts and seven decoding steps, over the time that the tokens are counted by."""
    model: dict[str, Any] = {"target": "llama3-tiny", "on": "h100-sxm", "levers": False, "fidelity": "roofline"}
    served = predict(**model, settings={"mode": "serve", "prompt": "64", "output": "8", "batch": "4"})
    prompts = predict(**model, settings={"mode": "prefill", "seq": "64", "batch": "4", "context": "72"})
    step = predict(**model, settings={"mode": "decode", "context": "72", "batch": "4"})
    assert prompts.model_flops is not None
    assert step.model_flops is not None
    assert served.serving is not None
    assert served.serving.request_s is not None
    assert served.throughput is not None
    whole = (prompts.model_flops + 7 * step.model_flops) / served.serving.request_s
    assert served.throughput.model_flops_per_device_s == pytest.approx(whole, rel=1e-12)
    assert served.model_flops_per_device_s == step.model_flops_per_device_s


def test_the_models_arithmetic_is_mfu_times_the_peak() -> None:
    found = predict("llama3-tiny", plan="pp=2,microbatches=4,remat=full", **ROOFLINE)
    whole = predict("llama3-tiny", settings={"batch": "4"}, **ROOFLINE)
    assert found.model_flops is not None
    assert whole.model_flops is not None
    assert found.mfu is not None
    peak = 989.4e12
    assert found.model_flops_per_device_s == pytest.approx(found.mfu * peak, rel=1e-3)
    # Two stages share the model's own FLOPs, which recomputation adds nothing to.
    assert 2 * found.model_flops == pytest.approx(whole.model_flops, rel=1e-6)


def test_a_program_has_no_throughput_but_its_arithmetic() -> None:
    found = predict("tests/fixtures/sharded.mlir", **ROOFLINE)
    assert found.to_json()["throughput"] is None
    assert found.model_flops_per_device_s
    assert "model" in str(found).partition("MFU")[2].splitlines()[0]


def test_devices_that_run_alike_have_a_batch_each_in_words_too() -> None:
    found = predict("dlrm-tiny", settings={"batch": "128"}, devices=2, **ROOFLINE)
    assert [text for text in found.warnings if "all 2 devices run it alike, each on a batch of its own" in text]
