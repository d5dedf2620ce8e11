"""Sets of measured programs, side by side: what was never opened comes first, and all figures can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.base.errors import InputError, UsageError
from meshcast.cli.validate import app
from meshcast.evidence.validate.sets import SetsSummary, read_sets, validate_sets
from meshcast.options import Options

ELEMENTS = 1 << 26
ADD_US = 3 * 4 * ELEMENTS / 4.8e12 * 1e6  # three arrays of f32 at the H200's 4.8 TB/s: the speed of light
ADD = f"""\
func.func public @main(%a: tensor<{ELEMENTS}xf32>, %b: tensor<{ELEMENTS}xf32>) -> tensor<{ELEMENTS}xf32> {{
  %0 = stablehlo.add %a, %b : tensor<{ELEMENTS}xf32>
  return %0 : tensor<{ELEMENTS}xf32>
}}
"""
FILE = """\
schema = "meshcast.sets/1"
about = "Made up for a test."
[[sets]]
name = "opened ones"
folder = "opened"
seen = "some rows"
[[sets]]
name = "closed ones"
folder = "closed"
seen = "totals"
"""


def written(folder: Path, times: dict[str, float]) -> None:
    (folder / "programs").mkdir(parents=True)
    for name in times:
        (folder / "programs" / f"{name}.mlir").write_text(ADD)
    memory = {"args": 2 * 4 * ELEMENTS, "out": 4 * ELEMENTS, "temp": 0, "alias": 0}
    rows = [{"id": name, "group": "elementwise", "busy_us": us, "mem": memory} for name, us in times.items()]
    (folder / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One set that ran at half the speed of light, and one of three at the whole, a half and an eighth of it."""
    written(tmp_path / "opened", {"a": 2 * ADD_US})
    written(tmp_path / "closed", {"b": ADD_US, "c": 2 * ADD_US, "d": 8 * ADD_US})
    path = tmp_path / "sets.toml"
    path.write_text(FILE)
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["sets", *arguments], catch_exceptions=False)


def test_errors_of_sets_are_those_of_their_rows(file: Path) -> None:
    opened, closed = validate_sets(read_sets(file)[0], ["roofline"], Options(on="h200", levers=False))
    assert opened.summary.time.all.geomean_error == pytest.approx(1.0)
    # ln 1, ln 2 and ln 8 have the mean 4/3 ln 2; the middle one is 2.
    assert closed.summary.time.all.geomean_error == pytest.approx(2 ** (4 / 3) - 1)
    assert closed.median_error == pytest.approx(1.0)
    assert closed.summary.memory.all.geomean_error == pytest.approx(0.0)


def test_sets_that_were_never_opened_come_first_and_alone_count(file: Path) -> None:
    figures = tuple(validate_sets(read_sets(file)[0], ["roofline"], Options(on="h200", levers=False)))
    summary = SetsSummary(figures=figures, fidelities=("roofline",))
    assert [(table.title, [row[0] for row in table.rows]) for table in summary.tables()] == [
        ("Never opened", ["closed ones"]),
        ("Opened, nothing fitted to them", ["opened ones"]),
    ]
    assert summary.to_json()["never_opened"]["roofline"]["rows"] == 3


def test_the_command_prints_a_line_a_set_and_fidelity_and_writes_the_page(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    found = run(str(file), "--fidelity", "roofline", "--fidelity", "analytical", "--markdown", str(page), "--json")
    assert found.exit_code == 0
    *lines, last = map(json.loads, found.stdout.splitlines())
    assert [(line["set"], line["fidelity"]) for line in lines] == [
        ("opened ones", "roofline"), ("opened ones", "analytical"), ("closed ones", "roofline"), ("closed ones", "analytical"),
    ]  # fmt: skip
    assert last["kind"] == "sets"
    assert set(last["never_opened"]) == {"roofline", "analytical"}
    text = page.read_text()
    assert text.index("| closed ones | 3 | 152.0% (100.0%)") < text.index("| opened ones | 1 | 100.0% (100.0%)")
    assert "meshcast validate sets" in text
    assert "Made up for a test." in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema = 'meshcast.sets/1'\n", "names no sets"),
        (FILE.replace('"totals"', '"none of it"'), "expected one of nothing, totals, worst names, some rows, all rows"),
        (FILE.replace("opened ones", "closed ones"), "two sets named 'closed ones'"),
        (FILE.replace('folder = "closed"\n', ""), "missing key"),
        (FILE + "notes = 1\n", "notes"),
    ],
)
def test_files_that_say_what_cannot_be_are_refused(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        read_sets(file)


def test_a_folder_that_is_not_there_is_named(file: Path) -> None:
    file.write_text(FILE.replace('"closed"', '"nowhere"'))
    with pytest.raises(InputError, match="nowhere"):
        read_sets(file)


def test_auto_is_no_column(file: Path) -> None:
    with pytest.raises(UsageError, match="another fidelity for every program"):
        run(str(file), "--fidelity", "auto")
