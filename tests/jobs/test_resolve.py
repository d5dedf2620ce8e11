"""A target and its options become a job: what the kinds are, and that nothing is looked at, read, run or carried out twice."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast import Options, Pipeline, compare, predict, prepare, trace
from meshcast.base import InputError, UsageError
from meshcast.cli.app import app
from meshcast.hardware import document
from meshcast.jobs import (
    PipelineJob,
    ProgramJob,
    ServingJob,
    TraceJob,
    front,
    job_source,
    one_program,
    predict_job,
    resolve,
    resolve_job,
)
from meshcast.jobs.stated import source as stated_source
from meshcast.programs import CaptureOptions, files, source_of
from meshcast.zoo import Plan, huggingface
from tests.jobs.stated.test_job_files import JOB
from tests.jobs.test_verdicts import two_stages
from tests.jobs.traced.jobs import compute, job

FIXTURES = Path(__file__).parents[1] / "fixtures"
TANH = FIXTURES / "tanh.mlir"
STEP = """
import jax, jax.numpy as jnp
from pathlib import Path

def step():
    with open(Path(__file__).with_suffix(".runs"), "a") as runs:
        runs.write("run\\n")
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    return lambda x: jnp.tanh(x @ x), (x,)
"""
# Every pass of both stages is one function, of two that count how often they are run.
STAGES = """
import jax, jax.numpy as jnp
from pathlib import Path

X, W = jax.ShapeDtypeStruct((64, 64), "float32"), {"w": jax.ShapeDtypeStruct((64, 64), "float32")}

def count():
    with open(Path(__file__).with_suffix(".runs"), "a") as runs:
        runs.write("run\\n")

def forward():
    count()
    return lambda params, x: (jnp.tanh(x @ params["w"]), {"x": x}), (W, X)

def backward():
    count()
    def passed(params, saved, dy, gradients):
        _, vjp = jax.vjp(lambda w, x: jnp.tanh(x @ w), params["w"], saved["x"])
        dw, dx = vjp(dy)
        return dx, {"w": gradients["w"] + dw}
    return passed, (W, {"x": X}, X, W)
"""
PIPELINE = """
schema = "meshcast.pipeline/1"
microbatches = 4
[[stages]]
name = "half"
count = 2
forward = "stages.py:forward"
backward = "stages.py:backward"
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Counter[str]]:
    """Counts calls of functions by their names."""
    found: Counter[str] = Counter()

    def count(owner: Any, name: str) -> Counter[str]:
        before = getattr(owner, name)

        def counting(*args: Any, **named: Any) -> Any:
            found[name] += 1
            return before(*args, **named)

        monkeypatch.setattr(owner, name, counting)
        return found

    return count


def runs_of(path: Path) -> int:
    """How often functions of a file were run."""
    counted = path.with_suffix(".runs")
    return counted.read_text().count("run") if counted.exists() else 0


def run_cli(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_kinds(tmp_path: Path) -> None:
    options, plan = Options(on="dgx-h100"), Options(on="dgx-h100", plan="pp=2", settings={"batch": "4"})
    assert isinstance(resolve_job(TANH, options), ProgramJob)
    assert isinstance(resolve_job("llama3-tiny", options), ProgramJob)
    assert isinstance(resolve_job("llama3-tiny", plan), PipelineJob)
    assert isinstance(resolve_job(two_stages(), options), PipelineJob)
    assert isinstance(resolve_job("any.toml", options), PipelineJob)
    assert isinstance(resolve_job("llama3-tiny", options.having(settings={"mode": "serve"})), ServingJob)
    assert isinstance(resolve_job(job(tmp_path, [[compute(0, 1.0)]], {}), options), TraceJob)


def test_stages_of_a_program_are_the_jobs_own() -> None:
    found = one_program(resolve_job(FIXTURES / "sharded.mlir", Options(on="dgx-h100")))
    assert found.program.devices > 1
    assert found.local.partitioned
    assert found.run.lowered is found.lowered
    assert found.predict().step_time_s == predict(FIXTURES / "sharded.mlir", on="dgx-h100").step_time_s


@pytest.mark.parametrize(
    ("target", "settings", "why"),
    [
        (two_stages, {}, "a pipeline has several programs"),
        (lambda: "llama3-tiny", {"mode": "serve"}, "mode serve is two programs"),
        (lambda: "dlrm-tiny", {"mode": "serve"}, "has no mode 'serve'"),
        (lambda: FIXTURES / "stage/tensor.0.et", {}, "a trace is of a job that ran"),
    ],
)
def test_what_is_not_one_program(target: Callable[[], Any], settings: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        prepare(target(), Options(on="dgx-h100", settings=settings))


@pytest.mark.parametrize("target", [TANH, two_stages()])
def test_a_plan_is_for_models(target: Path | Pipeline) -> None:
    with pytest.raises(UsageError, match="a plan is for models"):
        resolve_job(target, Options(on="dgx-h100", plan="dp=2"))


def test_a_file_is_read_once_a_command(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    found = calls(files, "read_program")
    predict(TANH, on="h200", levers=3)
    assert found.pop("read_program") == 1
    # On two platforms: what a file holds was lowered before.
    compared = compare(TANH, on="h200,tpu-v5e", fidelities="roofline,analytical,auto")
    assert [cell.status for cell in compared.cells] == ["answered"] * 6
    assert found.pop("read_program") == 1
    run_cli("show", TANH, "--kernels", "--json")
    assert found.pop("read_program") == 1
    for form, name in (("chakra", "job"), ("perfetto", "job.pftrace"), ("kineto", "job.json")):
        run_cli("trace", TANH, "--on", "h200", "--format", form, "-o", tmp_path / name, "--json")
        assert found.pop("read_program") == 1, form
    # The program is written to a file, which is read back once.
    run_cli("trace", TANH, "--on", "h200", "--format", "stablehlo", "-o", tmp_path / "job.mlir", "--json")
    assert found.pop("read_program") == 2


def test_a_function_is_run_once_a_command(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    asked = calls(front, "resolve_job")
    path = tmp_path / "step.py"
    path.write_text(STEP)
    target, before = f"{path}:step", 0

    def runs() -> int:
        nonlocal before
        now, before = runs_of(path) - before, runs_of(path)
        return now

    predict(target, on="h200", levers=3)
    assert asked["resolve_job"] > 1  # the question itself, and what would help
    assert runs() == 1
    compared = compare(target, on="h200,tpu-v5e", fidelities="roofline,analytical,auto")
    assert [cell.status for cell in compared.cells] == ["answered"] * 6
    assert runs() == 1
    run_cli("show", target, "--json")
    assert runs() == 1
    run_cli("trace", target, "--on", "h200", "--format", "stablehlo", "-o", tmp_path / "job.mlir", "--json")
    assert runs() == 1


def test_standard_input_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TANH.read_bytes())))
    compared = compare("-", on="h200,tpu-v5e", fidelities="roofline,analytical")
    assert [cell.status for cell in compared.cells] == ["answered"] * 4
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TANH.read_bytes())))
    written = trace("-", tmp_path / "job.mlir", format="stablehlo", on="h200", fidelity="analytical")
    assert written.summary["step_time_s"] == written.summary["step_time_after_s"] == compared.cells[1].step_time_s


def test_what_a_function_gives_is_captured_for_each_platform(tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    path.write_text(STEP)
    source = source_of(f"{path}:step")
    first, other = (source.program(CaptureOptions(platform=name)) for name in ("cuda", "tpu"))
    assert source.program(CaptureOptions(platform="cuda")) is first
    assert first is not other
    assert runs_of(path) == 1


def test_what_cannot_be_read_is_tried_once(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    path = tmp_path / "broken.mlir"
    path.write_text("module {")
    found = calls(files, "read_program")
    compared = compare(path, on="h200,b200", fidelities="roofline,analytical")
    assert [cell.status for cell in compared.cells] == ["failed"] * 4
    assert found["read_program"] == 1
    source = source_of(path)
    for _ in range(2):
        with pytest.raises(InputError):
            source.program(CaptureOptions())
    assert found["read_program"] == 2


def test_programs_of_a_pipeline_are_captured_once(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    asked = calls(front, "resolve_job")
    (tmp_path / "stages.py").write_text(STAGES)
    (tmp_path / "job.toml").write_text(PIPELINE)
    predict(tmp_path / "job.toml", on="dgx-h100", levers=3)
    assert asked["resolve_job"] > 1  # the question itself, and what would help
    assert runs_of(tmp_path / "stages.py") == 2
    compared = compare(tmp_path / "job.toml", on="dgx-h100,dgx-a100", fidelities="roofline,analytical")
    assert [cell.status for cell in compared.cells] == ["answered"] * 4
    assert runs_of(tmp_path / "stages.py") == 4
    run_cli("show", tmp_path / "job.toml", "--on", "dgx-h100")
    assert runs_of(tmp_path / "stages.py") == 6


@pytest.mark.parametrize("plan", ["dp=2,tp=2", "pp=2"])
def test_a_plan_is_read_and_carried_out_once(plan: str, calls: Callable[[Any, str], Counter[str]]) -> None:
    calls(Plan, "parse")
    found = calls(resolve, "planned_model")
    settings = {"layers": "2", "batch": "4", "seq": "64"}
    predict("llama3-tiny", on="dgx-h100", plan=plan, settings=settings, levers=False)
    assert found == {"parse": 1, "planned_model": 1}


def test_a_device_is_loaded_once(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    device = tmp_path / "mine.toml"
    shutil.copy(Path(__file__).parents[1] / "golden/inputs/device.toml", device)
    found = calls(document, "read_document")
    alone = predict(TANH, on=str(device), levers=False)
    once = found.pop("read_document")
    assert alone.timed is not None
    compared = compare([TANH, FIXTURES / "sharded.mlir"], on=str(device), fidelities="roofline,analytical,auto")
    assert len(compared.cells) == 6
    assert found.pop("read_document") == once


def test_a_configuration_is_read_once(calls: Callable[[Any, str], Counter[str]]) -> None:
    config = FIXTURES / "huggingface/gpt2.json"
    found = calls(huggingface, "read_builder")
    settings = {"layers": "1", "batch": "1", "seq": "64"}
    predict(config, on="h200", settings=settings, levers=1)
    assert found.pop("read_builder") == 1
    compared = compare(config, on="h200,tpu-v5e", fidelities="roofline,analytical,auto", settings=settings)
    assert [cell.status for cell in compared.cells] == ["answered"] * 6
    assert found.pop("read_builder") == 1
    run_cli("show", config, "--set", "layers=1", "--json")
    assert found.pop("read_builder") == 1


def test_a_configuration_that_serves_is_read_once(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    found = calls(huggingface, "read_builder")
    serving = (
        "--set",
        "layers=1",
        "--set",
        "mode=serve",
        "--set",
        "batch=1",
        "--set",
        "prompt=64",
        "--set",
        "output=8",
    )
    config = FIXTURES / "huggingface/gpt2.json"
    run_cli("trace", config, *serving, "--on", "h200", "--format", "kineto", "-o", tmp_path / "job.json", "--json")
    assert found.pop("read_builder") == 1


def test_the_file_of_a_job_is_read_once(tmp_path: Path, calls: Callable[[Any, str], Counter[str]]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("h100-sxm", "a100-80gb"))
    found = calls(stated_source, "read_job")
    compared = compare(path, fidelities="roofline,analytical")
    assert [cell.status for cell in compared.cells] == ["answered"] * 2
    assert found.pop("read_job") == 1
    run_cli("trace", path, "--format", "chakra", "-o", tmp_path / "job", "--json")
    assert found.pop("read_job") == 1
    # The files for ASTRA-sim are of the hardware that the job names: 312 TFLOP/s, and not those of the default device.
    assert json.loads((tmp_path / "job.astra/system.json").read_text())["peak-perf"] == 312


def test_a_job_is_predicted_as_its_target_is() -> None:
    options = Options(on="dgx-h100", plan="pp=2", settings={"layers": "2", "batch": "4", "seq": "64"}, levers=False)
    source = job_source("llama3-tiny")
    mine, theirs = (json.loads(json.dumps(each.to_json())) for each in (
        predict_job(resolve_job(source, options)), predict("llama3-tiny", options)
    ))  # fmt: skip
    for each in (mine, theirs):
        del each["tool"]
    assert mine == theirs
