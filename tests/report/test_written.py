"""`meshcast report`, and what it says where there is nothing to write."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

import meshcast as package
from meshcast.base import InputError, UsageError
from meshcast.report import folder_kind
from meshcast.report.comparison import comparison_section
from meshcast.report.comparison_folder import COMPARED
from meshcast.report.contents import folder_data
from meshcast.report.summary import NO_MFU
from tests.cli.conftest import Meshcast, meshcast  # noqa: F401  # a fixture

ASKED = ("--on", "h200", "--lowering", "modelled", "--levers", "none")


def _data(file: Path) -> dict[str, object]:
    found = re.search(r'id="report-data">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    read: dict[str, object] = json.loads(found[1])
    return read


def test_the_file_says_what_predict_says(meshcast: Meshcast, program: Path) -> None:  # noqa: F811
    (said,) = meshcast(
        "report", str(program), *ASKED, "--fidelity", "analytical,roofline", "-o", "a.html", "--json"
    ).lines
    assert said["file"] == "a.html"
    assert said["bytes"] == Path("a.html").stat().st_size
    assert "fidelities" in said["sections"]
    (asked,) = meshcast("predict", str(program), *ASKED, "--fidelity", "analytical", "--json").lines
    found = _data(Path("a.html"))["prediction"]
    assert isinstance(found, dict)
    left = {"tool"}
    assert {key: value for key, value in found.items() if key not in left} == {
        key: value for key, value in asked.items() if key not in left
    }
    assert said["step_time_s"] == asked["step_time_s"]
    # A second one takes its place, and leaves nothing beside it.
    assert meshcast("report", str(program), *ASKED, "--fidelity", "analytical", "-o", "a.html").code == 0
    assert os.listdir() == ["a.html"]


def test_what_does_not_fit_is_told_and_ends_with_3(meshcast: Meshcast) -> None:  # noqa: F811
    asked = ("llama3-8b", "--on", "h100-sxm", "--set", "batch=8", "--lowering", "modelled", "--levers", "none")
    answer = meshcast("report", *asked, "-o", "a.html")
    assert answer.code == 3
    assert "summary, memory, provenance" in answer.out
    assert "It does not fit" in Path("a.html").read_text(encoding="utf-8")


def test_mistakes_leave_nothing_behind(meshcast: Meshcast, program: Path, explored: Path) -> None:  # noqa: F811
    assert meshcast("report", str(program), *ASKED, "-o", "a.txt").code == 2
    assert meshcast("report", "nothing.mlir", *ASKED, "-o", "a.html").code == 2
    assert meshcast("report", str(program), "--on", "nothing", "-o", "a.html").code == 4
    mistyped = meshcast("report", str(program), *ASKED, "--fidelity", "analytical,rooflin", "-o", "a.html")
    assert mistyped.code == 2
    assert "no fidelity 'rooflin'" in mistyped.err
    told = meshcast("report", str(explored), "--on", "h200", "-o", "a.html")
    assert told.code == 2
    assert "has its answers already" in told.err
    assert os.listdir() == []


def test_a_report_of_a_call_tells_the_command_that_asks_the_same(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    options = package.Options(on="h200", fidelity="roofline", clocks="burst", lowering="modelled", levers=False)
    package.write_report(program, out, options, fidelities=("analytical",))
    (said,) = re.findall(r'<code id="command">(.*?)</code>', out.read_text(encoding="utf-8"))
    words = shlex.split(html.unescape(said))
    assert words[:3] == ["meshcast", "report", str(program)]
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags == {
        "--on": "h200", "--fidelity": "roofline,analytical", "--clocks": "burst", "--lowering": "modelled", "-o": str(out)
    }  # fmt: skip


def test_a_fidelity_without_an_answer_says_why_in_one_line(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    options = package.Options(on="mi300x", fidelity="roofline", lowering="modelled", levers=False)
    package.write_report(program, out, options, fidelities=("profiled",))
    sections = _data(out)["sections"]
    assert isinstance(sections, dict)
    name, *_, note = sections["fidelities"]["answers"]["rows"][1]
    assert name == "profiled"
    assert "nothing was measured on mi300x" in note
    assert "; to have it: " in note
    assert "\n" not in note


def test_a_search_for_cost_begins_with_what_it_costs(priced: Path) -> None:
    section = folder_data(priced, "exploration")["sections"]["exploration"]
    # 3.6 USD an hour and device, 8 devices, 600 tokens a second: 8 x 0.001 USD / 600 for one.
    assert section["headline"]["value"] == pytest.approx(8 * 3.6 / 3600 / 600 * 1e6)
    assert section["headline"]["unit"] == "USD"
    assert section["verdict"].startswith("Best for cost: model batch=256 on dgx-h200.")
    points = section["points"]
    titles = [column["title"] for column in points["columns"]]
    assert titles[:3] == ["point", "USD for a million", "step time"]
    assert [titles[points["x"]], titles[points["y"]]] == ["USD for a million", "step time"]
    assert [row[0] for row in points["rows"]] == [f"batch={8 << number}" for number in range(6)]
    assert all(row[1] is not None for row in points["rows"])
    # 1.2 of the peak is no MFU.
    assert [row[titles.index("MFU")] for row in points["rows"]][-1] is None
    assert NO_MFU in points["note"]


@pytest.mark.parametrize(
    "damage", [{"best": [{}]}, {"accounts": {"prices": {"h200": 3}}}, {"accounts": []}, {"best": 7}]
)
def test_a_damaged_summary_is_named(explored: Path, tmp_path: Path, damage: dict[str, object]) -> None:
    made = tmp_path / "damaged"
    shutil.copytree(explored, made)
    summary = json.loads((made / "summary.json").read_text())
    (made / "summary.json").write_text(json.dumps(summary | damage))
    with pytest.raises(InputError, match="no summary of a search"):
        folder_data(made, "exploration")


def test_a_search_is_a_target(meshcast: Meshcast, explored: Path) -> None:  # noqa: F811
    (said,) = meshcast("report", str(explored), "-o", "a.html", "--json").lines
    assert said["sections"] == ["exploration"]
    text = Path("a.html").read_text(encoding="utf-8")
    assert "meshcast explore space.toml" in text
    assert "/somewhere/" not in text
    section = folder_data(explored, "exploration")["sections"]["exploration"]
    assert section["headline"]["value"] == 1.0
    assert [figure["value"] for figure in section["figures"]] == [9, 6, 3]
    points = section["points"]
    assert (points["front"], points["best"]) == ([0, 1, 2], [0])
    titles = [points["columns"][place]["title"] for place in (points["x"], points["y"])]
    assert titles == ["step time", "memory of capacity"]


def test_a_long_search_is_bounded(explored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.report.exploration.MOST_POINTS", 2)
    points = folder_data(explored, "exploration")["sections"]["exploration"]["points"]
    # Every third point, and those of the front.
    assert [row[points["number"]] for row in points["rows"]] == [0, 1, 2, 3]
    assert "4 of 6 points" in points["note"]


def test_damaged_folders_are_refused(meshcast: Meshcast, tmp_path: Path) -> None:  # noqa: F811
    damaged = tmp_path / "damaged"
    (damaged / "cells").mkdir(parents=True)
    (damaged / "table.json").write_text('{"schema": "meshcast.comparison/1", "table": [{}], "statuses": {}}')
    answer = meshcast("report", str(damaged), "-o", "a.html")
    assert (answer.code, "damaged table" in answer.err) == (2, True)
    (damaged / "table.json").write_text("no JSON")
    assert meshcast("report", str(damaged), "-o", "a.html").code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "points.jsonl").write_text("")
    (empty / "environment.json").write_text("{}")
    assert meshcast("report", str(empty), "-o", "a.html").code == 2
    assert not Path("a.html").exists()
    assert folder_kind("a\0b") is None


def test_a_comparison_is_a_target(meshcast: Meshcast, program: Path) -> None:  # noqa: F811
    asked = ("--on", "h200,a100-sxm-80gb", "--fidelity", "roofline,analytical", "--lowering", "modelled")
    assert meshcast("compare", str(program), *asked, "-o", "both").code == 0
    assert meshcast("report", "both", "-o", "a.html").code == 0
    found = _data(Path("a.html"))["sections"]
    assert isinstance(found, dict)
    answers = found["comparison"]["answers"]
    table = json.loads(Path("both/table.json").read_text(encoding="utf-8"))["table"]
    assert [each["step_s"] for each in answers] == [cell["step_time_s"] for cell in table]
    assert found["comparison"]["command"].startswith("meshcast ")
    finest = min(cell["step_time_s"] for cell in table if cell["fidelity"] == "analytical")
    assert found["comparison"]["headline"]["value"] == finest, "what leaves more out is not faster for it"
    assert "status" not in {each["title"] for each in found["comparison"]["cells"]["columns"]}, "all are answered"


def test_from_python(program: Path, tmp_path: Path) -> None:
    written = package.write_report(program, tmp_path / "a.html", on="h200", lowering="modelled", levers=False)
    assert written.prediction is not None
    assert written.size == written.file.stat().st_size
    command = _data(written.file)["sections"]["provenance"]["command"]  # type: ignore[index]
    assert command.startswith("meshcast report ")
    with pytest.raises(UsageError, match=r"is no HTML"):
        package.write_report(program, tmp_path / "a.pdf", on="h200")


def test_a_search_without_a_point_says_how_to_go_on(meshcast: Meshcast, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "begun"
    folder.mkdir()
    for name in ("space.toml", "environment.json", "summary.json"):
        (folder / name).write_text("{}")
    answer = meshcast("report", str(folder), "-o", "begun.html")
    assert (answer.code, "ended before its first point" in answer.err, "--resume" in answer.err) == (2, True, True)


def test_an_mfu_that_no_device_reaches_is_left_out(compared: Path, tmp_path: Path) -> None:
    """Times of an estimator that knows no peak, such as a constant, made 160 % of it."""
    data = json.loads((compared / COMPARED).read_text())
    data["table"][0]["prediction"]["mfu"] = 1.6
    (tmp_path / COMPARED).write_text(json.dumps(data))
    cells = comparison_section(tmp_path)["cells"]
    titles = [column["title"] for column in cells["columns"]]
    first, second = (dict(zip(titles, row, strict=True)) for row in cells["rows"][:2])
    assert (first["MFU"], first["note"]) == (None, NO_MFU)
    assert (second["MFU"], second["note"]) == (data["table"][1]["prediction"]["mfu"], "")
