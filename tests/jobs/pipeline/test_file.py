"""A pipeline's file, the examples, and the commands that take one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast import Options, compare, prepare
from meshcast.base.errors import InputError, UsageError
from meshcast.cli.app import app
from meshcast.jobs.pipeline import GradientReduction, read_pipeline
from tests.jobs.pipeline.as_files import write_as_files

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
HEAD = 'schema = "meshcast.pipeline/1"\n'
STAGE = '[[stages]]\nforward = "a.mlir"\nbackward = "b.mlir"\n'


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first example, its programs captured once."""
    return write_as_files(EXAMPLES / "tiny.toml", tmp_path_factory.mktemp("tiny"))


def written(folder: Path, text: str) -> Path:
    path = folder / "model.toml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "programs.py").touch()
    text = f"""{HEAD}
name = "model"
schedule = "interleaved"
virtual_stages = 2
microbatches = 8
mesh = {{ data = 4, tensor = 2 }}
overlap_sends = false
barrier = false
reduce = {{ over = ["data"], kind = "reduce_scatter", buckets = 3 }}
wiring = {{ input = "h" }}
[[stages]]
name = "all"
count = 4
forward = "programs.py:forward"
backward = "package.module:backward"
"""
    found = read_pipeline(written(tmp_path, text))
    assert (found.name, found.schedule, found.virtual_stages, found.microbatches) == ("model", "interleaved", 2, 8)
    assert (found.stages, found.positions, found.devices) == (2, 4, 16)
    assert found.reduction == GradientReduction(over=("data",), kind="reduce_scatter", buckets=3)
    assert (found.overlap_sends, found.barrier, found.wiring.input, found.wiring.saved) == (False, False, "h", "saved")
    (part,) = found.parts
    assert part.forward == f"{tmp_path}/programs.py:forward"
    assert part.backward == "package.module:backward"


def test_what_is_left_out(tmp_path: Path) -> None:
    found = read_pipeline(written(tmp_path, f"{HEAD}microbatches = 2\n{STAGE}"))
    assert (found.name, found.schedule, found.virtual_stages, found.devices) == ("model", "1f1b", 1, 1)
    assert found.reduction is None
    assert found.barrier is None


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("microbatches = 2", "model.toml", "schema None"),
        (f"{HEAD}microbatches = 2", "model.toml", r"missing tables \[\[stages\]\]"),
        (f"{HEAD}microbatch = 2\n{STAGE}", "model.toml:2", "unknown key 'microbatch', did you mean 'microbatches'"),
        (
            f"{HEAD}microbatches = 0\n{STAGE}",
            "model.toml:2",
            "microbatches: expected a whole number of at least 1, got 0",
        ),
        (f"{HEAD}microbatches = 2\nschedule = '1f'\n{STAGE}", "model.toml:3", "schedule: expected one of gpipe, 1f1b"),
        (f"{HEAD}microbatches = 2\n{STAGE}forwards = 'x'", "model.toml:6", "unknown key 'stages.0.forwards'"),
        (f"{HEAD}microbatches = 2\nwiring = {{ inputs = 'h' }}\n{STAGE}", "model.toml:3", "unknown key 'wiring"),
        (
            f"{HEAD}microbatches = 2\nreduce = {{ over = [] }}\n{STAGE}",
            "model.toml:3",
            "reduce.over: expected the mesh",
        ),
        (f"{HEAD}microbatches = 2\nreduce = {{ over = ['d'], kind = 'sum' }}\n{STAGE}", "model.toml:3", "all_reduce"),
        (f"{HEAD}microbatches = ", "model.toml:2", "not valid TOML"),
    ],
)
def test_mistakes_are_named_with_their_lines(tmp_path: Path, text: str, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_pipeline(written(tmp_path, text))
    assert str(caught.value.where).endswith(where)


def test_a_part_without_a_backward_program(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="part 'part 0' has no backward program") as caught:
        read_pipeline(written(tmp_path, f"{HEAD}microbatches = 2\n[[stages]]\nforward = 'a.mlir'\n"))
    assert str(caught.value.where).endswith("model.toml:3")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no such file"):
        read_pipeline(Path("nowhere.toml"))


@pytest.mark.parametrize(("name", "levers"), [("tiny", ()), ("tiny_zero_bubble", ("--levers", "none"))])
def test_the_example_is_predicted(name: str, levers: tuple[str, ...]) -> None:
    """Both examples, and of the first what else would help."""
    words = ["predict", str(EXAMPLES / f"{name}.toml"), "--on", "dgx-h100", "--json", *levers]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["target"]["mesh"] == {"pipeline": 4, "data": 2, "tensor": 2}
    assert found["target"]["devices"] == 16
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_time_s"])
    assert found["step_time_interval_s"][0] <= found["step_time_s"] <= found["step_time_interval_s"][1]
    assert [stage["parts"] for stage in found["pipeline"]["stages"]] == ["first", "middle 1", "middle 2", "last"]
    assert found["memory_bytes"]["peak"] == max(s["memory_bytes"]["peak"] for s in found["pipeline"]["stages"])
    assert 0 < found["pipeline"]["bubble"] < 0.5
    assert {"all_reduce", "collective_permute"} <= {share["kind"] for share in found["collectives"]}


def test_the_example_is_shown(tiny: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(tiny), "--on", "dgx-h100"])
    assert result.exit_code == 0, result.output
    lines = [line.split()[-1] for line in result.stdout.splitlines() if line.strip().startswith("stage")]
    assert len(lines) == 4
    assert all(set(line) <= set("FBRU.") for line in lines)
    assert lines[0].startswith("F")
    assert lines[3].startswith(".")


def test_the_table_for_people(tiny: Path) -> None:
    result = CliRunner().invoke(app, ["predict", str(tiny), "--on", "dgx-h100", "--levers", "none"])
    assert "Pipeline: 1f1b, 4 stages, 8 microbatches" in result.stdout
    assert "critical path: stage" in result.stdout


def test_a_pipeline_is_compared_and_is_no_single_program(tiny: Path) -> None:
    found = compare(tiny, on="dgx-h100,dgx-a100", fidelities="roofline")
    assert [cell.status for cell in found.cells] == ["answered", "answered"]
    with pytest.raises(UsageError, match="a pipeline has several programs"):
        prepare(tiny, Options(on="dgx-h100"))


@pytest.mark.parametrize("name", ["model.yaml", "missing.yml"])
def test_a_yaml_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.yaml").write_text("stages: []")
    result = CliRunner().invoke(app, ["predict", str(tmp_path / name), "--on", "dgx-h100", "--json"])
    assert result.exit_code == 2
    assert "pipelines are TOML" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("flag", "value", "instead"),
    [
        ("--placement", "optimise", "order the axes"),
        ("--fabric", "graph.toml", "behind --on"),
        ("--beside", "all_reduce:1GiB:2-3", "--background"),
    ],
)
def test_what_concerns_the_devices_of_one_program_is_refused(flag: str, value: str, instead: str) -> None:
    command = ["predict", str(EXAMPLES / "tiny.toml"), "--on", "dgx-h100", "--json", flag, value]
    result = CliRunner().invoke(app, command)
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == 2
    assert error["where"] == flag
    assert instead in error["fix"]
