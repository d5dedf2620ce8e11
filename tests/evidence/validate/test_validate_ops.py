"""`validate ops` end to end on a few published rows and on rows made from our own predictions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast import Options
from meshcast.cli.app import run
from meshcast.estimate.scalesim_tpu import published_model
from meshcast.evidence.validate.ops.comparison import SCALESIM, scalesim_us, validate_ops
from meshcast.evidence.validate.ops.page import OpsSummary, ops_page
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.hardware import load_device
from meshcast.jobs import Run, prepare

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tpu_ops.csv"
HEADER = "id,source,chip,op,dtype,shape,time_us,notes\n"
ROOFLINE = Options(fidelity="roofline", levers=False)
V6E = load_device("tpu-v6e")


def add(identifier: str, elements: int, time_us: float | None, notes: str = "trust=A", chip: str = "v6e") -> OpRow:
    return OpRow(
        id=identifier,
        chip=chip,
        op="add",
        dtype="bf16",
        shape={"elements": str(elements)},
        time_us=time_us,
        notes=notes,
    )


def speed_of_light(elements: int) -> float:
    """Microseconds that the roofline gives an addition of bf16 vectors."""
    return 1e6 * max(6 * elements / V6E.memory_bandwidth, elements / V6E.vector_flops["f32"])


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int | str | None]:
    """Runs a command of ours and gives its exit code."""

    def called(*arguments: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", ["meshcast", *arguments])
        with pytest.raises(SystemExit) as left:
            run()
        return left.value.code

    return called


def test_errors_that_are_known_beforehand() -> None:
    rows = [add(f"r{n}", 2**n, 1.25 * speed_of_light(2**n)) for n in range(26, 31)]  # beyond VMEM
    summary = OpsSummary(results=tuple(validate_ops(rows, ROOFLINE)))
    assert summary.time.all.bias == pytest.approx(1 / 1.25 - 1)
    assert summary.time.all.geomean_error == pytest.approx(0.25)
    assert summary.time.all.spearman == 1
    assert list(summary.time.groups) == ["v6e/add/A"]
    assert list(summary.breakdowns["family"].groups) == ["v6e/elementwise/A"]


def test_a_step_of_a_chain_is_what_was_measured() -> None:
    once, wall, slope = validate_ops(
        [
            add("once", 2**22, 1.0),
            add("wall", 2**22, 1.0, "chain 8 wall/8"),
            add("slope", 2**22, 1.0, "slope of chained scan (chain 64)"),
        ],
        ROOFLINE,
    )
    assert [result.steps for result in (once, wall, slope)] == [1, 8, 64]
    for result in (wall, slope):  # a counter's addition is all that a step has beside the op
        assert result.row.predicted == pytest.approx(once.row.predicted, rel=1e-3)
        assert result.row.low is not None
        assert result.row.high is not None
        assert result.row.low <= result.row.predicted <= result.row.high  # type: ignore[operator]


def test_failures_are_counted_and_named_and_spoil_nothing_else() -> None:
    rows = [
        add("good", 2**20, 5.0),
        add("chip", 2**20, 5.0, chip="v1"),
        add("untimed", 2**20, None),
        OpRow(id="huge", chip="v6e", op="copy", dtype="bf16", shape={"bytes": str(2**36)}, time_us=5.0),
    ]
    summary = OpsSummary(results=tuple(validate_ops(rows, ROOFLINE)))
    whys = summary.to_json()["failures"]
    assert set(whys) == {"chip", "untimed", "huge"}
    assert whys["chip"].startswith("unsupported")
    assert whys["untimed"].startswith("unmeasured")
    assert whys["huge"].startswith("infeasible")
    assert (summary.time.all.rows, summary.time.all.failed) == (4, 3)


def test_equal_programs_are_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshcast.evidence.validate.ops import comparison

    calls = []

    def counted(target: Any, options: Options) -> Run:
        calls.append(target)
        return prepare(target, options)

    monkeypatch.setattr(comparison, "prepare", counted)
    list(validate_ops([add(f"r{n}", 2**20, 5.0) for n in range(10)], ROOFLINE))
    assert len(calls) == 1


def test_the_published_model_stands_beside_ours_on_v4_alone() -> None:
    product = OpRow(
        id="p", chip="v4(inferred)", op="matmul", dtype="f16", shape={"M": "512", "N": "512", "K": "512"}, time_us=7.0
    )
    assert scalesim_us(product) == published_model().products.microseconds(512, 512, 512)
    assert scalesim_us(add("a", 1000, 1.0, chip="v4")) == published_model().elementwise_us("add", (1000,))
    assert scalesim_us(add("a", 1000, 1.0)) is None
    assert scalesim_us(OpRow(id="c", chip="v4", op="convolution", dtype="f16", shape={}, time_us=1.0)) is None
    summary = OpsSummary(results=tuple(validate_ops([product, add("a", 1000, 1.0)], ROOFLINE)))
    ours, theirs = summary.peers[SCALESIM]
    assert (ours.all.rows, theirs.all.rows) == (1, 1)
    expected = published_model().products.microseconds(512, 512, 512) / 7.0 - 1
    assert theirs.all.bias == pytest.approx(expected)


def test_the_command_prints_every_row_and_a_summary(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    folder = tmp_path / "programs"
    flags = ["--fidelity", "roofline", "--grade", "A", "--programs", str(folder), "--markdown", str(page), "--json"]
    assert command("validate", "ops", str(FIXTURE), *flags) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    *rows, summary = lines
    assert {"id", "measured", "predicted", "unit", "error", "group", "chip", "op", "grade", "method"} <= set(rows[0])
    assert summary["schema"] == "meshcast.validation/1"
    assert (summary["kind"], summary["rows"]) == ("ops", len(rows))
    assert {"failed", "geomean_error", "mape", "bias", "spearman", "groups", "by", "worst", "peers"} <= set(summary)
    assert summary["groups"]["v6e/matmul/A"]["failed"] == 0
    assert set(summary["by"]) == {"family", "chip", "op", "grade", "method"}
    assert len(list(folder.glob("*.mlir"))) == len(rows) - summary["failed"]
    text = page.read_text()
    assert "--grade A" in text
    assert "## Beside scalesim-tpu" in text
    assert command("predict", str(folder / f"{rows[0]['id']}.mlir"), "--on", rows[0]["device"], "--json") == 0


def test_rows_without_a_program_are_told(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "ops.csv"
    file.write_text(HEADER + "a,s,v6e,add,bf16,elements=8,1,\nb,s,v6e,frobnicate,bf16,elements=8,1,\n")
    folder = tmp_path / "programs"
    assert command("validate", "ops", str(file), "--fidelity", "roofline", "--programs", str(folder)) == 0
    assert "no program could be written for 1 of 2 rows: b" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["a.mlir"]


def test_tables_for_people(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("validate", "ops", str(FIXTURE), "--fidelity", "roofline", "--chip", "v4") == 0
    out = capsys.readouterr().out
    for title in ("time by chip, op and grade", "Grades", "geomean error beside scalesim-tpu", "worst rows"):
        assert title in out


def test_the_callers_mistakes(command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(HEADER)
    for arguments, said in (
        ([str(tmp_path / "none.csv")], "cannot be read"),
        ([str(empty)], "no rows"),
        ([str(FIXTURE), "--chip", "v9"], "--chip"),
        ([str(FIXTURE), "--limit", "1", "--fidelity", "psychic"], "psychic"),
        ([str(FIXTURE), "--limit", "1", "--fidelity", "roofline", "--markdown", str(tmp_path)], "cannot be written"),
    ):
        assert command("validate", "ops", *arguments) == 2
        assert said in capsys.readouterr().err


def test_processes_give_the_same_rows() -> None:
    rows = [add(f"r{n}", 2**n, 5.0) for n in range(20, 24)]
    one, two = (list(validate_ops(rows, ROOFLINE, jobs=jobs)) for jobs in (1, 2))
    assert one == two


def test_the_page_names_rows_that_failed(tmp_path: Path) -> None:
    summary = OpsSummary(results=tuple(validate_ops([add("x", 8, 1.0, chip="v1"), add("y", 8, 1.0)], ROOFLINE)))
    text = ops_page(summary, command="meshcast validate ops FILE", page=tmp_path / "page.md")
    assert "## Failed" in text
    assert "v1/add/A" in text


def test_the_page_counts_what_rows_leave_unstated(tmp_path: Path) -> None:
    rows = [replace(add("x", 8, 1.0), dtype="unknown"), add("y", 8, 1.0, notes="trust=A; XProf device time")]
    summary = OpsSummary(results=tuple(validate_ops(rows, ROOFLINE)))
    assert summary.to_json()["unstated"] == {"dtype": 1, "method": 1}
    assert [result.to_json()["dtype"] for result in summary.results] == ["unstated", "bf16"]
    text = ops_page(summary, command="meshcast validate ops FILE", page=tmp_path / "page.md")
    assert "1 state no element type (predicted as bf16) and 1 do not say how they were measured" in text
