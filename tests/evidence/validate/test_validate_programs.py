from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast import Options
from meshcast.base.errors import InputError, MeshcastError, UsageError
from meshcast.cli.validate import app
from meshcast.estimate.measurements.halves import is_fitted
from meshcast.estimate.measurements.programs import read_measured_programs
from meshcast.evidence.validate import programs as programs_module
from meshcast.evidence.validate.programs import ProgramRow, validate_programs
from meshcast.evidence.validate.summary import summarise

OPTIONS = Options(on="h200", fidelity="roofline", levers=False)
GROUNDTRUTH = Path(__file__).parents[3] / ".." / "shared" / "groundtruth" / "h200"

ADD = """\
func.func public @main(%a: tensor<{n}xf32>, %b: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.add %a, %b : tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}
"""
DOT = """\
func.func public @main(%a: tensor<1024x1024xbf16>, %b: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0 : tensor<1024x1024xbf16>
}
"""
ELEMENTS = 1 << 26  # three arrays of 256 MiB: far beyond any cache
ADD_US = 3 * 4 * ELEMENTS / 4.8e12 * 1e6  # at the H200's 4.8 TB/s
MEMORY = 3 * 4 * ELEMENTS


def row(identifier: str, group: str, **figures: Any) -> dict[str, Any]:
    return {"id": identifier, "group": group, "busy_us": 100.0, "wall_us": 400.0, **figures}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An add that ran at half the speed of light, a product as a 'model', and a text that is no program."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "add.mlir.gz").write_bytes(gzip.compress(ADD.format(n=ELEMENTS).encode()))
    (programs / "toy-dot.mlir").write_text(DOT)
    (programs / "broken.mlir").write_text("func.func @main( {")
    memory = {"args": 2 * 4 * ELEMENTS, "out": 4 * ELEMENTS, "temp": 0, "alias": 0}
    energy = {"joules_per_run": 0.2, "us_per_run": 2 * ADD_US + 1000.0}
    rows = [
        row("add", "elementwise", busy_us=2 * ADD_US, mem=memory, energy=energy),
        row("toy-dot", "mlp"),
        row("broken", "gemm"),
    ]
    (tmp_path / "measurements.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def rows_of(folder: Path, **settings: Any) -> list[ProgramRow]:
    return list(validate_programs(read_measured_programs(folder), OPTIONS, **settings))


def command(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_rows_are_held_against_busy_or_wall_time(folder: Path) -> None:
    add, dot, broken = rows_of(folder)
    assert add.predicted == pytest.approx(ADD_US)
    assert add.measured == pytest.approx(2 * ADD_US)
    assert dot.measured == 400.0
    assert broken.measured == 100.0


def test_memory_and_energy_are_compared(folder: Path) -> None:
    add = rows_of(folder)[0]
    assert add.memory is not None
    assert add.memory.predicted == add.memory.measured == MEMORY
    assert add.energy is not None
    # The card waited 1000 us of each run for the host, at 116 W.
    assert add.energy.measured == pytest.approx(0.2 - 116 * 1e-3)


def test_averages_over_half_a_second_are_on_their_way_to_the_power_cap(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    large = DOT.replace("1024", "8192")  # a product that the cap of an H200 slows
    (tmp_path / "programs" / "product.mlir").write_text(large)
    told = OPTIONS.having(fidelity="analytical", lowering="modelled")

    def predicted(runs: int | None, group: str = "llm") -> ProgramRow:
        line = row("product", group, wall_us=1600.0, busy_us=1540.0, **({"iters": runs} if runs else {}))
        (tmp_path / "measurements.jsonl").write_text(json.dumps(line))
        return next(iter(validate_programs(read_measured_programs(tmp_path), told)))

    burst, short, half_a_second, long = (predicted(runs).predicted for runs in (None, 60, 375, 100_000))
    assert burst is not None
    assert short is not None
    assert half_a_second is not None
    assert long is not None
    assert short == pytest.approx(burst, rel=0.01)  # what the host leads by is in it
    assert burst < half_a_second < long
    # 1 - exp(-0.6 / 0.9) of the way
    assert (half_a_second - burst) / (long - burst) == pytest.approx(0.487, abs=0.02)
    assert predicted(375, group="gemm").predicted == predicted(None, group="gemm").predicted  # held against busy time


def test_a_row_that_fails_is_named_and_counted(folder: Path) -> None:
    broken = rows_of(folder)[2]
    assert broken.predicted is None
    assert broken.why is not None
    assert broken.why.startswith("unreadable-input: ")
    summary = summarise([broken])
    assert (summary.time.all.rows, summary.time.all.failed) == (1, 1)
    assert summary.within_interval() is None


def test_a_bug_fails_its_row_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(path: Path, options: Options, **overrides: object) -> None:
        raise KeyError("tile")

    monkeypatch.setattr(programs_module, "predict", explode)
    assert all(str(row.why).startswith("bug: KeyError: 'tile' (test_validate_programs.py:") for row in rows_of(folder))


def test_a_missing_program_or_time_fails_its_row_alone(folder: Path) -> None:
    (folder / "programs" / "toy-dot.mlir").unlink()
    lines = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    lines[0]["busy_us"] = None
    (folder / "measurements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    add, dot, _ = rows_of(folder)
    assert add.why == "unmeasured: no busy_us"
    assert dot.why is not None
    assert dot.predicted is None


def test_processes_give_the_same_rows(folder: Path) -> None:
    assert rows_of(folder, jobs=2) == rows_of(folder)


def test_json_lines_and_summary_follow_the_contract(folder: Path) -> None:
    lines = [
        json.loads(line)
        for line in command("programs", str(folder), "--on", "h200", "--fidelity", "roofline", "--json")
    ]
    assert len(lines) == 4
    for line in lines[:3]:
        assert {"id", "group", "measured", "predicted", "unit", "error"} <= line.keys()
    assert lines[0]["error"] == pytest.approx(-0.5)
    assert lines[0]["unit"] == "us"
    assert "why" not in lines[0]
    assert "why" in lines[2]
    summary = lines[-1]
    keys = ["rows", "failed", "geomean_error", "mape", "bias", "spearman"]
    assert list(summary)[:8] == ["schema", "kind", *keys]
    assert summary["schema"] == "meshcast.validation/1"
    assert summary["kind"] == "programs"
    assert (summary["rows"], summary["failed"]) == (3, 1)
    assert set(summary["groups"]) == {"elementwise", "mlp", "gemm"}
    for group in summary["groups"].values():
        assert list(group)[:6] == keys
    assert summary["groups"]["elementwise"]["geomean_error"] == pytest.approx(1.0)
    assert summary["groups"]["elementwise"]["bias"] == pytest.approx(-0.5)
    assert summary["memory"]["rows"] == summary["energy"]["rows"] == 1
    assert summary["sustained"]["rows"] == 0  # the only row with an energy mostly waited for the host
    assert summary["below_speed_of_light"] == []
    assert summary["within_interval"] is not None


def test_halves_apart(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    lines = command("programs", str(folder), "--fidelity", "roofline", "--halves", "--json", "--markdown", str(page))
    halves = json.loads(lines[-1])["halves"]
    assert list(halves) == ["fitted", "held_out"]
    assert sum(half["rows"] for half in halves.values()) == 3
    half = "fitted" if is_fitted("add") else "held_out"
    assert halves[half]["groups"]["elementwise"]["geomean_error"] == pytest.approx(1.0)
    assert "## Two halves" in page.read_text()
    assert "--fidelity roofline --halves --markdown" in page.read_text()
    assert "held out: geomean error" in "\n".join(command("programs", str(folder), "--halves"))
    assert "halves" not in json.loads(command("programs", str(folder), "--json")[-1])


def test_a_wrong_profile_is_the_callers_mistake(folder: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(validate_programs(read_measured_programs(folder), Options(on="h200", profile="absent.npz")))


def test_a_row_faster_than_light_is_listed(folder: Path) -> None:
    row = ProgramRow(id="x", group="gemm", measured=1.0, predicted=2.0, low=2.0, high=3.0)
    assert summarise([row]).to_json()["below_speed_of_light"] == ["x"]


def test_table_names_groups_failures_and_peers(folder: Path) -> None:
    (folder / "peer_predictions.csv").write_text(
        f"id,hespas_us,naive_a_us,naive_b_us\nadd,{ADD_US},{4 * ADD_US},1\ntoy-dot,Error: no while,400,400\n"
    )
    text = "\n".join(command("programs", str(folder)))
    for expected in ("geomean error", "MAPE", "Spearman", "worst rows", "hespas", "broken", "unreadable-input"):
        assert expected in text
    summary = json.loads(command("programs", str(folder), "--json")[-1])
    hespas = summary["peers"]["hespas"]
    assert (hespas["rows"], hespas["failed"]) == (3, 2)
    assert hespas["geomean_error"] == pytest.approx(1.0)
    assert summary["peers"]["naive_a"]["groups"]["mlp"]["geomean_error"] == pytest.approx(0.0)


def test_groups_and_limit(folder: Path) -> None:
    assert [row.id for row in read_measured_programs(folder, groups=["mlp", "gemm"])] == ["toy-dot", "broken"]
    assert [row.id for row in read_measured_programs(folder, limit=1)] == ["add"]
    with pytest.raises(UsageError, match="no group 'gem'"):
        read_measured_programs(folder, groups=["gem"])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"id": "x"}',
        '{"id": "x", "group": "gemm", "busy_us": "fast"}',
        '{"id": "x", "group": "g", "mem": 3}',
    ],
)
def test_bad_measurements_name_the_line(folder: Path, line: str) -> None:
    path = folder / "measurements.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match=r"measurements\.jsonl:4"):
        read_measured_programs(folder)


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_measured_programs(tmp_path / "nowhere")
    with pytest.raises(InputError, match="neither measurements"):
        read_measured_programs(tmp_path)
    (tmp_path / "measurements.jsonl.gz").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(InputError, match="cut off or damaged"):
        read_measured_programs(tmp_path)


@pytest.mark.parametrize("wrong", [{"on": "h2000"}, {"fidelity": "rofline"}])
def test_wrong_options_are_no_failures_of_rows(folder: Path, wrong: dict[str, str]) -> None:
    settings = {"on": "h200", "fidelity": "roofline", **wrong}
    with pytest.raises(MeshcastError):
        list(validate_programs(read_measured_programs(folder), Options(**settings)))  # type: ignore[arg-type]


def test_interrupt_prints_what_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = programs_module.validate_program

    def second_stops(program: Any, options: Options, idle: float) -> ProgramRow:
        if program.id != "add":
            raise KeyboardInterrupt
        return real(program, options, idle)

    monkeypatch.setattr(programs_module, "validate_program", second_stops)
    result = CliRunner().invoke(app, ["programs", str(folder), "--json"])
    assert result.exit_code == 130
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["rows"], summary["not_run"]) == (1, 2)


def test_markdown_page(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "programs")
    command("programs", str(folder), "--fidelity", "roofline", "--markdown", str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text()
    assert "meshcast validate programs .. --on h200 --fidelity roofline" in page
    assert str(folder) not in page.replace(str(folder / "programs"), "")
    assert "| elementwise | 1 | 0 | 100.0% | 50.0% | -50.0% |" in page


@pytest.mark.skipif(not GROUNDTRUTH.is_dir(), reason="the ground truth is not beside this checkout")
@pytest.mark.parametrize("group", ["elementwise", "gemm", "mlp", "llm"])
def test_measured_programs_are_predicted(group: str) -> None:
    programs = read_measured_programs(GROUNDTRUTH, groups=[group], limit=3)
    for row in validate_programs(programs, OPTIONS):
        assert row.why is None
        assert row.time is not None
        assert row.memory is not None


MEASURED = Path(__file__).parents[3] / "data" / "measured"


@pytest.mark.parametrize(("name", "bound"), [("h200-zoo", 0.45), ("h200-convolutions", 0.25)])
def test_the_shipped_measurements_are_predicted(name: str, bound: float) -> None:
    """An accuracy gate on programs that nothing was calibrated on; the bounds are loose, the pages say the real error."""
    summary = json.loads(command("programs", str(MEASURED / name), "--on", "h200", "--json")[-1])
    assert summary["failed"] == 0
    assert summary["geomean_error"] < bound
    assert summary["spearman"] > 0.9


@pytest.mark.parametrize(
    ("identifier", "meta", "indices"),
    [
        ("emb", {"zipf": 1.05}, "zipf:1.05"),
        ("emb-z1.2", {"zipf": 0.0}, "uniform"),
        ("dlrm-b2048-z1.2", {}, "zipf:1.2"),
        ("dlrm-b2048-z0.0", {}, "uniform"),
        ("gpt2-b8", {}, None),
    ],
)
def test_a_row_states_how_its_indices_are_spread(
    tmp_path: Path, identifier: str, meta: dict[str, float], indices: str | None
) -> None:
    (tmp_path / "measurements.jsonl").write_text(json.dumps(row(identifier, "embedding", meta=meta)) + "\n")
    assert read_measured_programs(tmp_path)[0].indices == indices


def test_a_row_with_an_impossible_spread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "measurements.jsonl").write_text(json.dumps(row("emb", "embedding", meta={"zipf": -1})) + "\n")
    with pytest.raises(InputError, match=r"meta\.zipf"):
        read_measured_programs(tmp_path)
