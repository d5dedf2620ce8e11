"""Invented runs through the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.cli.app import app
from meshcast.evidence.validate.runs.comparison import set_apart, source_name, validate_run
from meshcast.evidence.validate.runs.next_stack import is_same, next_stack
from meshcast.evidence.validate.runs.planned import row_target
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import load_device
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.software import overlap_of
from meshcast.options import load_stack
from meshcast.options.options import Options

HEADER = (
    "id,source_url,grade,device,devices,framework,model,layers,hidden,ffn,heads,kv_heads,vocab,seq,gbs,mbs,precision,fsdp,tp,pp,"
    "recompute,published_metric,published_value,step_time_s"
)
SMALL = "2,256,512,4,4,1024,256,16,2,bf16"
MAXTEXT, MEGATRON = "https://github.com/x/maxtext", "https://github.com/NVIDIA/Megatron-LM"
ROWS = [
    f"one-1,{MAXTEXT}/a,A,h100-sxm,8,maxtext,llama-9,{SMALL},8,1,1,full,tokens/s/GPU,900000,0.0006",
    f"one-2,{MAXTEXT}/b,B,tpu-v5e,8,maxtext,llama-9,{SMALL},8,1,1,full,step_time_s,0.002,0.002",
    f"two-1,{MEGATRON},A,a100-sxm-80gb,8,megatron,llama-9,{SMALL},1,1,8,full,step_time_s,0.002,0.002",
    f"two-2,{MEGATRON},A,a100-sxm-80gb,8,megatron,llama-9,,,,,,,256,,,bf16,,,,,step_time_s,0.002,0.002",
    f"two-3,{MEGATRON},C,a100-sxm-80gb,8,megatron,llama-9,{SMALL},1,1,8,full,MFU_%,40,",
]


def run_row(**changes: Any) -> RunRow:
    source = changes.pop("source", "https://arxiv.org/abs/2205.05198")
    stated: dict[str, Any] = {
        "device": "a100-sxm-80gb", "devices": 8, "model": "megatron-22b",
        "counts": {"seq": 2048, "gbs": 4}, "mbs": 4.0, "degrees": {"tp": 8}, "precision": "fp16", "recompute": "full",
        "framework": "megatron", "framework_version": "2022-05",
    }  # fmt: skip
    return RunRow(id="a-1", run=StatedRun(**stated | changes), step_time_s=1.42, source=source)


def test_sources_by_their_short_names() -> None:
    assert source_name(run_row()) == "arxiv.org 2205.05198"
    assert source_name(run_row(source="https://github.com/pytorch/torchtitan/blob/x.md")) == "torchtitan"
    assert source_name(run_row(source="")) == "no source"


def test_sources_are_set_apart_by_their_names_alone() -> None:
    assert [name for name in ("torchtitan", "llm-foundry", "gpu-recipes", "JAX-Toolbox") if set_apart(name)] == [
        "gpu-recipes",
        "JAX-Toolbox",
    ]


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
    assert [line["id"] for line in lines] == ["one-1", "one-2", "two-1", "two-2"]  # what is of grade C is not scored
    first = lines[0]
    assert (first["unit"], first["measured"], first["published"]) == ("s", 0.0006, "900000 tokens/s/GPU")
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)
    assert "seq=256" in first["command"]
    assert "lacks" in lines[3]["why"]
    assert summary["kind"] == "runs"
    assert (summary["rows"], summary["groups"]["maxtext"]["rows"], summary["over_memory"]) == (4, 2, [])
    assert summary["failed"] == sum(line["predicted"] is None for line in lines)
    assert set(summary["by"]) == {"apart", "hardware", "stack", "grade"}


def test_a_broken_row_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    broken = ROWS[0].replace("one-1", "bad-1").replace("0.0006", "~1 ms")
    path.write_text("\n".join([HEADER, broken, "short,line", ROWS[0]]) + "\n")
    code, out = invoke(str(path), "--json")
    *lines, summary = map(json.loads, out.splitlines())
    assert code == 0
    assert lines[0]["why"] == "lacks a positive number for step_time_s: line 2 has '~1 ms'"
    assert lines[1]["why"].startswith("lacks device, devices, model, step_time_s (blank in line 3)")
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
        assert "the zoo has no 'llama-9'" in text
        assert "llama-9: layers as in llama3-8b" in text


def test_products_that_a_device_does_not_have_are_unsupported() -> None:
    found = validate_run(run_row(precision="nvfp4"), Options()).row.why
    assert found is not None
    assert found.startswith("unsupported: --plan: precision=nvfp4, and a100-sxm-80gb multiplies")


def test_the_next_stack_is_another_one_that_fuses_alike() -> None:
    gpu, tpu = load_device("h100-sxm"), load_device("tpu-v5e")
    assert next_stack("composer", gpu) == "pytorch-fsdp"  # both eager, gather ahead of need
    assert next_stack("maxtext", gpu) == next_stack("maxtext", tpu) == "xla"
    assert is_same(load_stack("nemo"), load_stack("megatron"))  # one stack under two names
    assert next_stack("nemo", gpu) not in ("nemo", "megatron")
    # In fp16 DeepSpeed's optimizer adds gradients up as Megatron-LM's does, and nothing else tells the two stacks apart.
    assert next_stack("megatron-2022", gpu) == "megatron-deepspeed"
    half = partial(overlap_of, replace(run_row().run, precision="fp16"))
    assert next_stack("megatron-2022", gpu, half) == "mxnet"
    own, other = row_target(run_row()), row_target(run_row(), switched=True)
    assert own.stack is not None
    assert other.stack is not None
    asked = partial(overlap_of, run_row().run)
    assert other.stack.name == next_stack(own.stack.name, gpu, asked) != own.stack.name
    # Full recomputation stays, and each stack has its own way of it.
    assert (own.plan["remat"], other.plan["remat"]) == (own.stack.full, other.stack.full)


def test_what_ran_is_timed_and_named_where_it_is_predicted_not_to_fit() -> None:
    row = run_row(counts={"seq": 2048, "gbs": 64}, mbs=64.0, recompute="none")
    timed = validate_run(row, Options())
    assert timed.row.predicted is not None
    assert timed.over_memory
    refused = validate_run(row, Options(), over_memory=False)
    assert refused.row.why is not None
    assert refused.row.why.startswith("infeasible")
    assert timed.memory == refused.memory
