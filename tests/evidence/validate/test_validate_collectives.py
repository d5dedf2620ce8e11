"""`validate collectives` end to end: rows, groups, failures that are named, the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.base.errors import InputError, UsageError
from meshcast.cli.app import app
from meshcast.evidence.validate.collectives.comparison import validate_collectives
from meshcast.evidence.validate.collectives.leaving_out import without_class
from meshcast.evidence.validate.collectives.page import CollectivesSummary, collectives_page
from meshcast.evidence.validate.collectives.rows import LARGE, read_collective_rows
from meshcast.hardware import load_cluster, load_link
from meshcast.network.benchmark import bus_factor

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
    page = collectives_page(summary, summary, command="meshcast validate collectives x.csv", page=tmp_path / "page.md")
    assert "| mis-tuned | 1 |" in page
    assert "https://example.com" in page


@pytest.mark.parametrize(
    ("text", "message"), [("id,hardware\n", "no column devices, collective, bytes"), (HEADER, "no rows")]
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_collective_rows(write(tmp_path, text))


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("H100,eight,1,all_reduce,f32,1024,1,,", "devices is 'eight'"),
        ("H100,8,1,all_reduce,f32,-5,1,,", "bytes is '-5'"),
        ("H100,8,1,all_reduce,f32,0,1,,", "bytes is '0'"),
        ("H100,8,1,all_reduce,f32,64 parsecs,1,,", "parsecs"),
        ("H100,2.5,1,all_reduce,f32,1024,1,,", "whole number"),
        ("H100,8,1,all_reduce,f32,1024,fast,,", "time_us is 'fast'"),
        ("H100,8,1,all_reduce,f32,,1,,", "without a size"),
        ("H100,8,1,gather,f32,1024,1,,", "no collective 'gather'"),
        ("H100,8,1,barrier,f32,1024,1,,", "no collective 'barrier'"),
    ],
)
def test_a_bad_cell_fails_its_row_alone(tmp_path: Path, cells: str, why: str) -> None:
    rows = read_collective_rows(write(tmp_path, f"{HEADER}bad,,{cells}\ngood,,H100,8,1,all_reduce,f32,2097152,40,,\n"))
    bad, good = validate_collectives(rows)
    assert why in (bad.row.why or "")
    assert not bad.skipped
    assert good.row.predicted is not None
    summary = CollectivesSummary(results=(bad, good)).to_json()
    assert (summary["rows"], summary["failed"], list(summary["failures"])) == (2, 1, ["bad"])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 2**26),
        ("1e9", 1e9),
        ("1 GB", 1e9),
        ("8M", 2**23),
        ('"1,048,576"', 2**20),
        ("large", LARGE),
        ("n/a", None),
    ],
)
def test_sizes(tmp_path: Path, text: str, size: float | None) -> None:
    (row,) = read_collective_rows(write(tmp_path, f"{HEADER}a,,H100,8,1,all_reduce,f32,{text},1,,\n"))
    assert (row.size, row.wrong) == (size, "")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("AllReduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("All Gather", "all_gather"),
        ("psum_ici", "all_reduce"),
    ],
)
def test_spellings_of_collectives(tmp_path: Path, text: str, kind: str) -> None:
    (row,) = read_collective_rows(write(tmp_path, f"{HEADER}a,,H100,8,1,{text},f32,1024,1,,\n"))
    assert row.kind == kind


def test_classes_are_told_with_their_mistuned_rows_too(tmp_path: Path) -> None:
    text = ROWS + "h,,A100,16,2,all_reduce,f32,1073741824,10000,,\n"
    summary = CollectivesSummary(results=tuple(validate_collectives(read_collective_rows(write(tmp_path, text)))))
    answer = summary.to_json()
    assert answer["groups"]["A100, >= 1 MiB"]["rows"] == 1
    assert answer["with_mistuned"]["A100, >= 1 MiB"]["rows"] == 2
    page = collectives_page(summary, summary, command="meshcast validate collectives x.csv", page=tmp_path / "page.md")
    assert "## With the rows that are called mis-tuned" in page


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


def test_what_a_class_taught_is_left_out() -> None:
    """The median of siblings that were not calibrated on it; the library's constants and the data sheet's stay."""
    cluster = load_cluster("dgx-h100")
    own, left = cluster.levels[0], without_class(cluster, "H100").levels[0]
    assert left.link.share == pytest.approx(20.6 / 25)  # the library's own rate of a link goes before siblings'
    chunks = sorted(
        load_link(name).protocols[-1].chunk_s for name in ("nvlink-2", "nvlink-3", "nvlink-5", "nvlink-5-rack")
    )
    assert left.link.protocols[-1].chunk_s == pytest.approx((chunks[1] + chunks[2]) / 2)
    assert (left.link_bandwidth, left.links, left.latency_s) == (own.link_bandwidth, own.links, own.latency_s)
    assert left.link.in_network_share == own.link.in_network_share  # NCCL's own
    simple = {each.name: each for each in left.link.protocols}
    assert simple["LL128"].chunk_s == simple["Simple"].chunk_s / 2
    starts = {name: left.link.start_s + each.start_s for name, each in simple.items()}
    assert starts == pytest.approx({"LL": 6.6e-6, "LL128": 14e-6, "Simple": 8.4e-6})  # NCCL's base latencies of rings
    assert without_class(cluster, "MI300X").levels[0].link == own.link
    rack = load_cluster("gb200-nvl72")
    assert without_class(rack, "GB200").levels[0].latency_s == pytest.approx(0.87e-6)  # that of B200
    assert without_class(rack, "B200").levels[0].latency_s == rack.levels[0].latency_s  # GB200 is no B200
    assert without_class(rack, "GB200").levels[0].link.in_network_share == 0.74


def test_classes_without_siblings_have_what_others_published() -> None:
    """Host memory is polled at the pace of a hop, and slices exchange what PaLM's pods did."""
    staged = without_class(load_cluster("l40s-server"), "L40S").levels[0].link
    assert {each.name: each.chunk_s for each in staged.protocols} == pytest.approx({"LL": 1e-6, "Simple": 2**20 / 6e9})
    slices = without_class(load_cluster("tpu-v6e-pod"), "TPU v6e").levels[-1].link
    assert slices.share == pytest.approx(81e12 / 1536 / 200e9)


def test_leaving_out_by_command(tmp_path: Path) -> None:
    path = str(write(tmp_path))
    done = CliRunner().invoke(app, ["validate", "collectives", path, "--leave-out", "h100", "--json"])
    *lines, summary = map(json.loads, done.stdout.splitlines())
    assert all("H100" in line["hardware"] for line in lines)
    assert (summary["leave_out"], summary["not_run"]) == ("h100", 0)
    whole = CliRunner().invoke(app, ["validate", "collectives", path, "--json"])
    usual = {line["id"]: line for line in map(json.loads, whole.stdout.splitlines()) if "id" in line}
    timed = [line for line in lines if line["predicted"] is not None]
    assert timed
    assert all(usual[line["id"]]["predicted"] != line["predicted"] for line in timed)
    each = CliRunner().invoke(app, ["validate", "collectives", path, "--leave-out", "each", "--json"])
    assert len(each.stdout.splitlines()) == len(whole.stdout.splitlines())
    wrong = CliRunner().invoke(app, ["validate", "collectives", path, "--leave-out", "H10"])
    assert isinstance(wrong.exception, UsageError)
    assert wrong.exception.fix == "did you mean 'H100'?"
