"""Comparisons of tiny programs from end to end: what is asked, what is reused, what fails alone."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import meshcast
from meshcast import predict
from meshcast.base.errors import MeshcastError, UnsupportedError, UsageError
from meshcast.evidence.comparison import Cell, grid
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.hardware import load_device, resolve
from meshcast.jobs import ProgramJob, predict_job
from meshcast.options.fidelities import fidelity_names
from meshcast.options.options import Options

FIXTURES = Path(__file__).parents[2] / "fixtures"
SHARDED, TANH = FIXTURES / "sharded.mlir", FIXTURES / "tanh.mlir"
BOTH = ("roofline", "analytical")
BASE = Options(levers=False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Every prediction that is really worked out: program, device, fidelity."""
    found: list[tuple[str, str, str]] = []

    def counted(job: ProgramJob) -> meshcast.Prediction:
        found.append((job.program.name, str(job.given.on), job.given.estimate.fidelity))
        return predict_job(job)

    monkeypatch.setattr(grid, "predict_job", counted)
    return found


def test_cells_say_what_predict_says() -> None:
    found = meshcast.compare([TANH, SHARDED], on=["h200", "b200"], fidelities=BOTH)
    assert found.targets == ("tanh", "sharded")
    assert len(found.cells) == 8
    for cell in found.cells:
        path = FIXTURES / f"{cell.ask.target}.mlir"
        alone = meshcast.predict(path, on=cell.ask.on, fidelity=cell.ask.fidelity)
        assert cell.step_time_s == alone.step_time_s
        assert cell.status == "answered"
        assert cell.own
    assert found.exit_code == 0


def test_hardware_may_be_objects_of_any_name() -> None:
    """A device shows its own name, with a number where that is taken; `predict` says the same of each."""
    device = load_device("h200")
    faster = replace(device, memory_bandwidth=2 * device.memory_bandwidth)
    found = meshcast.compare(TANH, on=[faster, "h200", resolve("b200"), device], fidelities="roofline")
    assert found.on == ("h200 (2)", "h200", "dgx-b200", "h200 (3)")
    times = {cell.ask.on: cell.step_time_s for cell in found.cells}
    assert times["h200 (3)"] == times["h200"] == predict(TANH, on=device, fidelity="roofline").step_time_s
    assert times["h200 (2)"] == predict(TANH, on=faster, fidelity="roofline").step_time_s != times["h200"]
    assert meshcast.compare(TANH, on=device, fidelities="roofline").on == ("h200",)
    with pytest.raises(UsageError, match=r"a meshcast\.Device"):
        meshcast.compare(TANH, on=[3], fidelities="roofline")  # type: ignore[list-item]


def test_a_stack_is_asked_for_as_predict_has_it() -> None:
    found = meshcast.compare("gpt2-tiny", on="h200", fidelities="analytical", stack="pytorch-ddp")
    (cell,) = found.cells
    alone = [
        meshcast.predict("gpt2-tiny", on="h200", fidelity="analytical", stack=each) for each in ("pytorch-ddp", None)
    ]
    assert [cell.step_time_s == each.step_time_s for each in alone] == [True, False]


def test_all_is_every_fidelity_and_what_nobody_supports_is_named() -> None:
    found = meshcast.compare(TANH, on="mi300x,h200")
    assert set(found.fidelities) == set(fidelity_names())
    assert found.not_run == 0
    for cell in found.cells:
        assert cell.status in ("answered", "unsupported")
        assert bool(cell.reason) == (cell.status != "answered")
    roofline = found.cell("tanh", "mi300x", "roofline")
    profiled = found.cell("tanh", "mi300x", "profiled")
    assert roofline is not None
    assert roofline.status == "answered"
    assert profiled is not None
    assert profiled.status == "unsupported"
    assert found.exit_code == 0


def test_a_program_that_does_not_fit_is_infeasible_there_alone(tmp_path: Path) -> None:
    elements = 2**33  # 32 GiB in, 32 GiB out
    path = tmp_path / "large.mlir"
    path.write_text(TANH.read_text().replace("16x64", f"{elements // 64}x64"))
    found = meshcast.compare(path, on=["tpu-v5e", "h200"], fidelities="roofline")
    assert [cell.status for cell in found.cells] == ["infeasible", "answered"]
    assert found.cells[0].reason == "needs 64 GiB of memory, there is 16 GiB"
    assert found.cells[0].step_time_s is None
    assert found.exit_code == 0


def test_an_unreadable_target_spoils_nothing_else(tmp_path: Path) -> None:
    found = meshcast.compare([tmp_path / "absent.mlir", TANH], on="h200", fidelities="roofline")
    assert [cell.status for cell in found.cells] == ["failed", "answered"]
    assert "no such file" in found.cells[0].reason
    assert found.exit_code == 2


def test_a_bug_in_one_cell_spoils_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(job: ProgramJob) -> meshcast.Prediction:
        if job.given.on == "b200":
            raise KeyError("oops")
        return predict_job(job)

    monkeypatch.setattr(grid, "predict_job", broken)
    found = meshcast.compare(TANH, on="b200,h200", fidelities="roofline", folder=tmp_path / "run")
    assert [cell.status for cell in found.cells] == ["failed", "answered"]
    assert "KeyError" in found.cells[0].reason
    assert "Traceback" in capfd.readouterr().err
    assert found.exit_code == 1
    monkeypatch.undo()
    again = meshcast.compare(TANH, on="b200,h200", fidelities="roofline", folder=tmp_path / "run")
    assert [(cell.status, cell.reused) for cell in again.cells] == [("answered", False), ("answered", True)]


def test_finished_cells_are_reused(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    program = Path(shutil.copy(TANH, tmp_path / "step.mlir"))
    first = meshcast.compare(program, on="tpu-v5e,h200", fidelities=BOTH, folder=tmp_path / "run")
    assert len(asked) == 4
    second = meshcast.compare(program, on="tpu-v5e,h200", fidelities=BOTH, folder=tmp_path / "run")
    assert len(asked) == 4
    assert second.cells == first.cells
    assert all(cell.reused for cell in second.cells)
    # Another device asks for that one alone; another setting, and another program of the same name, for everything.
    meshcast.compare(program, on="tpu-v5e,h200,b200", fidelities=BOTH, folder=tmp_path / "run")
    assert asked[4:] == [("step", "b200", "roofline"), ("step", "b200", "analytical")]
    meshcast.compare(program, on="h200", fidelities=BOTH, folder=tmp_path / "run", clocks="burst")
    assert len(asked) == 8
    program.write_text(program.read_text().replace("16x64", "32x64"))
    meshcast.compare(program, on="h200", fidelities=BOTH, folder=tmp_path / "run")
    assert len(asked) == 10


def test_a_changed_device_file_is_asked_again(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    device = tmp_path / "mine.toml"
    text = 'schema = "meshcast.device/1"\nbase = "h200"\nname = "mine"\n[memory]\nbandwidth = "{}"\n'
    times = []
    for bandwidth in ("4.8 TB/s", "4.8 TB/s", "9.6 TB/s"):
        device.write_text(text.format(bandwidth))
        found = meshcast.compare(TANH, on=str(device), fidelities="roofline", folder=tmp_path / "run")
        times.append(found.cells[0].step_time_s)
        assert found.cells[0].status == "answered", found.cells[0].reason
    assert len(asked) == 2
    assert times[0] == times[1] != times[2]


def test_an_interrupted_run_goes_on(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    planned = grid.comparison_plan([TANH, SHARDED], on=["h200", "b200"], fidelities=list(BOTH), options=BASE)
    folder = RunFolder.opened(tmp_path / "run")
    told: list[str] = []

    @contextmanager
    def interrupting(what: str) -> Iterator[None]:
        told.append(what)
        if len(told) == 4:
            raise KeyboardInterrupt
        yield

    cells: list[Cell] = []
    with pytest.raises(KeyboardInterrupt):
        cells.extend(grid.comparison_answers(planned, folder, interrupting))
    assert told[0] == "1 of 8: tanh on h200, roofline"
    assert [cell.ask.fidelity for cell in cells] == ["roofline"] * 3  # the coarse fidelity comes first
    assert planned.comparison(cells).not_run == 5
    rest = list(grid.comparison_answers(planned, folder))
    assert [cell.reused for cell in rest] == [True] * 3 + [False] * 5
    assert len(asked) == 8
    assert planned.comparison(rest).cells[0] == cells[0]


def test_a_damaged_cell_is_worked_out_again(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    for damage in ("{", "[]", '{"status": "answered"}', "null"):
        found = meshcast.compare(TANH, on="h200", fidelities="roofline", folder=tmp_path / "run")
        assert found.cells[0].status == "answered"
        assert not found.cells[0].reused
        (kept,) = (tmp_path / "run" / "cells").iterdir()
        kept.write_text(damage)


def test_the_run_folder(tmp_path: Path) -> None:
    found = meshcast.compare([TANH, SHARDED], on="tpu-v5e,h200", fidelities=BOTH, folder=tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"cells", "table.json", "table.csv", "report.txt", "report.md", "plot.svg"}
    table = json.loads((tmp_path / "run" / "table.json").read_text())
    assert table["schema"] == "meshcast.comparison/1"
    assert [cell["step_time_s"] for cell in table["table"]] == [cell.step_time_s for cell in found.cells]
    with (tmp_path / "run" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == [cell.status for cell in found.cells]
    assert "![" in (tmp_path / "run" / "report.md").read_text()
    assert (tmp_path / "run" / "report.txt").read_text() == f"{found}\n"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        meshcast.compare(TANH, on="h200", fidelities="roofline", folder=tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        meshcast.compare(TANH, on="h200", fidelities="roofline", folder=tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("on", "fidelities", "settings", "error", "words"),
    [
        ("h2000", "roofline", {}, UnsupportedError, "did you mean 'h200'"),
        ("h200", "rooflin", {}, UsageError, "did you mean 'roofline'"),
        ("h200,h200", "roofline", {}, UsageError, "'h200' is named twice"),
        ("h200", "roofline,roofline", {}, UsageError, "'roofline' is named twice"),
        ("", "roofline", {}, UsageError, "no device is given"),
        ("h200", ",", {}, UsageError, "no fidelity is given"),
        ("h200", "roofline", {"clocks": "fast"}, UsageError, "no clocks 'fast'"),
        ("h200", "roofline", {"clock": "burst"}, UsageError, "did you mean 'clocks'"),
        ("h200", "roofline", {"written": ("clocks",)}, UsageError, "no setting 'written'"),
        ("h200", "roofline", {"stack": "megatrom"}, UnsupportedError, "did you mean 'megatron'"),
    ],
)
def test_mistakes_are_found_before_anything_is_asked(
    asked: list[tuple[str, str, str]],
    on: str,
    fidelities: str,
    settings: dict[str, object],
    error: type[MeshcastError],
    words: str,
) -> None:
    with pytest.raises(error) as found:
        meshcast.compare(TANH, on=on, fidelities=fidelities, **settings)  # type: ignore[arg-type]
    assert words in str(found.value)
    assert not asked


def test_targets_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        paths.append(Path(shutil.copy(TANH, tmp_path / name / "step.mlir")))
    found = meshcast.compare(paths, on="h200", fidelities="roofline")
    assert found.targets == tuple(map(str, paths))
    with pytest.raises(UsageError, match="named twice"):
        meshcast.compare([TANH, TANH], on="h200", fidelities="roofline")


def test_captured_programs_and_models_are_targets() -> None:
    program = meshcast.load(TANH)
    found = meshcast.compare([program, "resnet-tiny"], on="tpu-v5e,h200", fidelities="roofline")
    assert found.targets == ("tanh", "resnet-tiny")
    assert {cell.status for cell in found.cells} == {"answered"}


def test_settings_of_models_reach_them(tmp_path: Path) -> None:
    times = [
        meshcast.compare("gpt2-tiny", on="h200", fidelities="roofline", settings={"batch": batch}).cells[0].step_time_s
        for batch in ("8", "64")
    ]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0] < times[1]


def test_an_answer_of_another_fidelity_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `profiled` does for a program of which nothing was measured: the model stands in."""

    def standing_in(job: ProgramJob) -> meshcast.Prediction:
        return predict(job.program, job.given.having(fidelity="roofline"))

    monkeypatch.setattr(grid, "predict_job", standing_in)
    found = meshcast.compare(TANH, on="h200,b200", fidelities=BOTH)
    assert [(cell.ask.fidelity, cell.own) for cell in found.cells] == [("roofline", True), ("analytical", False)] * 2
    assert found.agreements[0].cells == 0
    # An estimator's name is not always that of its fidelity.
    monkeypatch.setattr(grid, "load_estimator", lambda name: SimpleNamespace(fidelity="roofline"))
    assert all(cell.own for cell in meshcast.compare(TANH, on="h200", fidelities=BOTH).cells)


@pytest.mark.parametrize(
    ("asked", "fidelities"),
    [
        ({"simulator": "systolic"}, ("simulated",)),
        ({"profile": "kernels.csv"}, ("profiled", "compiled")),
    ],
)
def test_all_fidelities_are_those_that_take_what_is_given(asked: dict[str, str], fidelities: tuple[str, ...]) -> None:
    planned = grid.comparison_plan([TANH], on=["h200"], fidelities=["all"], options=Options(**asked))  # type: ignore[arg-type]
    assert planned.fidelities == fidelities
    # What is asked for by its name is asked, and says why it has no answer.
    named = meshcast.compare(TANH, on="h200", fidelities="roofline", options=Options(**asked))  # type: ignore[arg-type]
    assert [cell.status for cell in named.cells] == ["failed"]
    assert "does not" in named.cells[0].reason


def test_a_profile_and_a_simulator_are_for_different_fidelities() -> None:
    both = Options(simulator="systolic", profile="kernels.csv")
    with pytest.raises(UsageError, match="no fidelity takes both"):
        grid.comparison_plan([TANH], on=["h200"], fidelities=["all"], options=both)
