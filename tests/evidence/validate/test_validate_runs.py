"""Metrics by hand, and invented runs through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from meshcast.base.errors import UnsupportedError
from meshcast.cli.app import app
from meshcast.evidence.validate.runs.comparison import source_name, validate_run
from meshcast.evidence.validate.runs.metrics import Metric, metric_of, model_flops
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.evidence.validate.runs.shapes import RunModel
from meshcast.evidence.validate.runs.target import run_target
from meshcast.options.options import Options
from meshcast.zoo import models

HEADER = (
    "id,source_url,hardware,devices,model,layers,hidden,ffn,heads,kv_heads,vocab,seq,gbs,mbs,precision,fsdp,tp,pp,"
    "recompute,metric,value"
)
SMALL = "2,256,512,4,4,1024,256,16,2,bf16"
ROWS = [
    f"one-1,https://github.com/x/maxtext/a,H100 80GB SXM,8,Llama-9,{SMALL},8,1,1,full,tokens/s/GPU,900000",
    f"one-2,https://github.com/x/maxtext/b,TPU v5e-8,8,Llama-9,{SMALL},8,1,1,full,step_time_s,0.002",
    f"two-1,https://github.com/NVIDIA/Megatron-LM,DGX-A100,8,Llama-9,{SMALL},1,1,8,full,step_time_s,0.002",
    "two-2,https://github.com/NVIDIA/Megatron-LM,DGX-A100,8,Llama-9,,,,,,,256,,,bf16,,,,,step_time_s,0.002",
]


def run_row(**changes: Any) -> RunRow:
    asked: dict[str, Any] = {
        "id": "a-1", "hardware": "A100 80GB SXM", "devices": 8, "model": "22B", "metric": "step_time_s", "value": 1.42,
        "counts": {"seq": 2048, "gbs": 4, "mbs": 4}, "degrees": {"tp": 8}, "precision": "fp16", "recompute": "full",
        "source": "https://arxiv.org/abs/2205.05198",
    }  # fmt: skip
    return RunRow(**asked | changes)


def figure(metric: str, seconds: float = 2.0, **changes: Any) -> float:
    row = run_row(metric=metric, **changes)
    return metric_of(row, run_target(row)).of(seconds)


def test_rates_by_hand() -> None:
    assert figure("step_time_s") == 2.0
    assert figure("tokens/s") == 4 * 2048 / 2
    assert figure("tokens/s/GPU") == 4 * 2048 / 2 / 8
    assert figure("samples/s") == 2.0


def test_model_flops_are_narayanan_s_formula() -> None:
    """72 B s l h^2 (1 + s/6h + V/12lh) a step, biases and norms aside; 4/3 of it where the source counts recomputation."""
    layers, width, seq, vocab = 48, 6144, 2048, 51200
    step = 72 * 4 * seq * layers * width**2 * (1 + seq / (6 * width) + vocab / (12 * layers * width))
    assert figure("model TFLOP/s/GPU") == pytest.approx(step / 2 / 8 / 1e12, rel=1e-3)
    assert figure("TFLOP/s/GPU") == pytest.approx(4 / 3 * step / 2 / 8 / 1e12, rel=1e-3)
    assert figure("MFU_%") == pytest.approx(100 * step / 2 / 8 / 312e12, rel=1e-3)
    halved = figure("model TFLOP/s/GPU", notes="FLOPs = 6N + causal (halved) attention")
    pairs = 6 * layers * width * seq * 4 * seq / 2 / 8 / 1e12
    assert figure("model TFLOP/s/GPU") - halved == pytest.approx(pairs, rel=1e-6)


@pytest.mark.parametrize(
    ("spelt", "plain"),
    [
        ("s/step", "step_time_s"), ("Step time (s)", "step_time_s"), ("seconds per step", "step_time_s"),
        ("iteration time s", "step_time_s"), ("sec/iteration", "step_time_s"), ("s", "step_time_s"),
        ("step time ms", "step_time_ms"), ("ms/step", "step_time_ms"), ("ms", "step_time_ms"),
        ("tokens/sec/device", "tokens/s/GPU"), ("tokens per second per chip", "tokens/s/GPU"), ("tok/GPU/s", "tokens/s/GPU"),
        ("tokens_per_sec", "tokens/s"), ("throughput (tokens/s)", "tokens/s"), ("samples/sec", "samples/s"),
        ("sequences/second", "samples/s"), ("img/s", "samples/s"), ("TFLOPs/GPU", "TFLOP/s/GPU"),
        ("achieved teraFLOP/s per GPU", "TFLOP/s/GPU"), ("TFLOPS/s/chip", "TFLOP/s/GPU"),
        ("model TFLOPs/GPU/s", "model TFLOP/s/GPU"), ("MFU %", "MFU_%"), ("MFU (%)", "MFU_%"), ("mfu", "MFU_%"),
        ("model FLOPs utilization %", "MFU_%"), ("Model FLOP Utilisation (MFU)", "MFU_%"),
    ],
)  # fmt: skip
def test_common_spellings_mean_the_same(spelt: str, plain: str) -> None:
    assert figure(spelt, value=40.0) == pytest.approx(figure(plain, value=40.0))


def test_units_by_hand() -> None:
    assert figure("step time ms") == 2000.0
    assert figure("steps/s") == 0.5
    assert figure("aggregate PFLOP/s") == pytest.approx(figure("TFLOP/s/GPU") * 8 / 1000)
    assert figure("MFU", value=0.4) == pytest.approx(figure("MFU", value=40.0) / 100)
    row = run_row(metric="step time ms", value=1420.0)
    assert metric_of(row, run_target(row)).seconds(1420.0) == pytest.approx(1.42)


def test_a_fraction_of_the_peak_is_told_as_one() -> None:
    found = validate_run(run_row(metric="MFU", value=0.4), Options(fidelity="roofline"))
    assert found.row.predicted is not None
    assert 0.2 < found.row.predicted < 1
    assert "an MFU of at most 1 is a fraction, not percent" in found.target.assumptions


def test_of_experts_the_active_ones_count() -> None:
    model = models()["mixtral-8x7b"]
    active = 12.88e9 - 32000 * 4096  # the embedding is looked up
    expected = 6 * active + 12 * 32 * 4096 * 2048
    assert model_flops(RunModel(builder=model, settings={}), 2048) == pytest.approx(expected, rel=0.01)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no definition of the metric 'goodput'"):
        figure("goodput")
    with pytest.raises(UnsupportedError, match=r"known are step_time_s.*MFU_%"):
        figure("step time")  # in what?
    with pytest.raises(UnsupportedError, match="reads no tokens"):
        figure("tokens/s", model="ResNet-50", degrees={"dp": 8}, counts={"gbs": 1024})


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e12))
def test_a_metric_gives_the_step_time_back(seconds: float, constant: float) -> None:
    for metric in (
        Metric(name="a", definition=""),
        Metric(name="b", definition="", constant=constant),
        Metric(name="c", definition="", unit=1e-3),
    ):
        assert metric.seconds(metric.of(seconds)) == pytest.approx(seconds)


def test_sources_by_their_short_names() -> None:
    assert source_name(run_row()) == "arxiv.org 2205.05198"
    assert source_name(run_row(source="https://github.com/pytorch/torchtitan/blob/x.md")) == "torchtitan"
    assert source_name(run_row(source="")) == "no source"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["validate", "runs", *words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_runs_end_to_end(file: Path) -> None:
    code, out = invoke(str(file), "--json")
    assert code == 0
    *lines, summary = map(json.loads, out.splitlines())
    assert [line["id"] for line in lines] == ["one-1", "one-2", "two-1", "two-2"]
    first = lines[0]
    assert first["unit"] == "tokens/s/GPU"
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)
    times = first["step_time_s"]
    assert times["predicted"] == pytest.approx(16 * 256 / 8 / first["predicted"])
    assert "seq=256" in first["command"]
    assert "lacks" in lines[3]["why"]
    assert summary["kind"] == "runs"
    assert (summary["rows"], summary["groups"]["maxtext"]["rows"]) == (4, 2)
    assert summary["failed"] == sum(line["predicted"] is None for line in lines)
    assert set(summary["by"]) == {"hardware", "stack", "metric"}


def test_a_broken_row_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    broken = ROWS[0].replace("one-1", "bad-1").replace("900000", "~900k")
    path.write_text("\n".join([HEADER, broken, "short,line", ROWS[0]]) + "\n")
    code, out = invoke(str(path), "--json")
    *lines, summary = map(json.loads, out.splitlines())
    assert code == 0
    assert lines[0]["why"] == "lacks a positive number for value: line 2 has '~900k'"
    assert lines[1]["why"].startswith("lacks hardware, devices, model, metric, value (blank in line 3)")
    assert lines[2]["predicted"] > 0
    assert (summary["rows"], summary["failed"]) == (3, 2)


def test_rows_can_be_chosen(file: Path) -> None:
    _, out = invoke(str(file), "--json", "--only", "^two-2")
    assert [json.loads(line).get("id") for line in out.splitlines()] == ["two-2", None]
    _, out = invoke(str(file), "--json", "--limit", "1", "--only", "v5e")
    assert json.loads(out.splitlines()[0])["id"] == "one-2"


def test_tables_name_what_is_missing_and_assumed(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    _, out = invoke(str(file), "--markdown", str(page))
    for text in (out, page.read_text()):
        assert "the model's layers, hidden, heads, ffn, vocab" in text
        assert "Llama-9: layers as in llama3-8b" in text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "NVFP4"}, "unsupported: --plan: precision=nvfp4"),
        ({"precision": "int8"}, "unsupported: --plan: precision=int8"),
        (
            {"precision": "int8", "model": "ResNet-50", "degrees": {}, "counts": {"gbs": 1024}, "metric": "images/s"},
            "unsupported: precision: resnet50 has no products in int8",
        ),
    ],
)
def test_products_that_no_plan_has_are_unsupported(changes: dict[str, Any], why: str) -> None:
    found = validate_run(run_row(**changes), Options()).row.why
    assert found is not None
    assert found.startswith(why)


def test_what_does_not_fit_is_timed_when_asked_for() -> None:
    row = run_row(counts={"seq": 2048, "gbs": 64, "mbs": 64}, recompute="none")
    refused = validate_run(row, Options())
    assert refused.row.why is not None
    assert refused.row.why.startswith("infeasible")
    timed = validate_run(row, Options(), over_memory=True)
    assert timed.row.predicted is not None
    assert timed.over_memory
    assert timed.memory == refused.memory
