"""`validate collectives` end to end: rows, groups, failures that are named, the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.cli.app import app
from meshcast.errors import InputError
from meshcast.network.benchmark import bus_factor
from meshcast.validate.collectives.comparison import validate_collectives
from meshcast.validate.collectives.page import CollectivesSummary, collectives_page
from meshcast.validate.collectives.rows import LARGE, read_collective_rows

HEADER = "id,source_url,hardware,devices,nodes,collective,dtype,bytes,time_us,busbw_GBps,notes\n"
ROWS = HEADER + (
    "a,https://example.com,H100,8,1,all_reduce,f32,2097152,40,91.7,\n"
    "b,,H100,8,1,alltoall,f32,2048,10,,\n"
    "c,,DGX H100 + 8x400Gb,,multi,all_reduce,,large,,380,vendor expected peak busbw\n"
    "d,,abacus,8,1,all_reduce,f32,1024,10,,\n"
    "e,,TPU v6e-1,1,1,matmul 8192^3,bf16,,1328,,\n"
    "f,,A100,16,2,all_reduce,f32,1073741824,35215,,mis-tuned\n"
    "g,,H100,8,1,broadcast,f32,1048576,,,\n"
)


def write(folder: Path, text: str = ROWS) -> Path:
    path = folder / "collectives.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows(tmp_path: Path) -> None:
    a, b, c, _, e, f, g = read_collective_rows(write(tmp_path))
    assert (a.kind, a.size, a.time_us, a.busbw) == ("all_reduce", 2097152.0, 40.0, 91.7)
    assert b.kind == "all_to_all"
    assert (c.size, c.several_nodes, c.nodes, c.devices) == (LARGE, True, None, None)
    assert e.kind is None
    assert f.mistuned
    assert g.kind == "collective_broadcast"


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == pytest.approx(1.75)
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == pytest.approx(0.875)
    assert bus_factor("collective_broadcast", 8) == 1


def test_results_are_judged_grouped_and_named(tmp_path: Path) -> None:
    results = {result.row.id: result for result in validate_collectives(read_collective_rows(write(tmp_path)))}
    assert results["a"].row.group == "H100, >= 1 MiB"
    assert results["b"].row.group == "H100, < 1 MiB"
    large = results["c"]
    assert large.row.measured == pytest.approx(2 * 127 / 128 * LARGE / 380e3)
    assert large.row.predicted == pytest.approx(large.row.measured, rel=0.1)
    assert "abacus" in (results["d"].row.why or "")
    assert results["d"].row.group == "not understood"
    assert results["e"].skipped
    assert results["f"].row.group == "mis-tuned"
    assert "unmeasured" in (results["g"].row.why or "")
    line = results["a"].to_json()
    assert line["busbw_GBps"]["predicted"] == pytest.approx(1.75 * 2097152 / line["predicted"] / 1e3)
    assert (line["algorithm"], line["cluster"], line["judged_by"]) == ("ring", "dgx-h100", "time_us")


def test_the_summary_counts_and_the_page_names(tmp_path: Path) -> None:
    summary = CollectivesSummary(results=tuple(validate_collectives(read_collective_rows(write(tmp_path)))))
    answer = summary.to_json()
    assert (answer["kind"], answer["rows"], answer["failed"]) == ("collectives", 6, 2)
    assert answer["skipped"] == ["e"]
    assert set(answer["failures"]) == {"d", "g"}
    page = collectives_page(summary, command="meshcast validate collectives x.csv", page=tmp_path / "page.md")
    assert "| mis-tuned | 1 |" in page
    assert "https://example.com" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,hardware\n", "no column devices, collective, bytes"),
        (HEADER, "no rows"),
        (HEADER + "a,,H100,eight,1,all_reduce,f32,1,1,,\n", "devices is 'eight'"),
        (HEADER + "a,,H100,8,1,all_reduce,f32,-1,1,,\n", "bytes is '-1'"),
        (HEADER + "a,,H100,2.5,1,all_reduce,f32,1,1,,\n", "whole number"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_collective_rows(write(tmp_path, text))


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = CliRunner().invoke(app, ["validate", "collectives", str(write(tmp_path)), "--json", "--markdown", str(page)])
    assert done.exit_code == 0
    *lines, last = map(json.loads, done.stdout.splitlines())
    assert [line["id"] for line in lines] == list("abcdefg")
    assert (last["schema"], last["rows"]) == ("meshcast.validation/1", 6)
    assert page.read_text(encoding="utf-8").startswith("# Accuracy of collectives")
    shown = CliRunner().invoke(app, ["validate", "collectives", str(write(tmp_path))])
    assert "Skipped, as no collectives: e." in shown.stdout
