"""Graphs grown for memory and for a step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast import predict
from meshcast.base.errors import UsageError
from meshcast.cli.app import app
from meshcast.traces import GraphConditions, OpGraph, OpNode, grow_for, shipped_corpus, shipped_model, write_graph
from meshcast.traces.synthetic.model import learnt
from meshcast.traces.synthetic.timed_graphs import graph_seconds


def _row(*written: int, state: int = 0) -> OpGraph:
    """Nodes behind each other; the last takes the results of all."""
    nodes = [
        OpNode(kind="loop-fusion", dtype="f32", bytes=4 * size, written=size, flops=8.0 * size,
               parents=tuple(range(place)) if place == len(written) - 1 else (place - 1,) if place else ())
        for place, size in enumerate(written)
    ]  # fmt: skip
    return OpGraph(name="row", model="row", family="rows", ranks=1, groups=(), nodes=tuple(nodes), state=state)


def test_memory_is_state_and_results_up_to_their_last_use() -> None:
    # All three results are there when the last is made.
    assert _row(100, 20, 3, state=1000).memory_bytes == 1123
    two = _row(100, 20)
    alone = replace(two, nodes=(two.nodes[0], replace(two.nodes[1], parents=())))
    assert alone.memory_bytes == 100, "a result that nobody takes is gone when the next is made"


def test_sizes_change_together() -> None:
    """Of nodes without shapes bytes, results and operations grow alike: an octave of a dimension is two of a tensor."""
    skeleton = learnt([_row(100, 20, state=1000)]).skeleton("row", 2, 0)
    graph = skeleton.sized(0.5)
    assert [(node.bytes, node.written, node.flops) for node in graph.nodes] == [(800, 200, 1600.0), (160, 40, 320.0)]
    assert graph.state == 2000
    assert not skeleton.sized(-15.0).complaints()
    assert [node.repeat for node in skeleton.sized(turns=3).nodes] == [3, 3]
    assert [node.repeat for node in skeleton.sized(turns=1.5).nodes] == [1, 2], "three launches of two nodes"


def test_a_trace_says_what_its_graph_holds(tmp_path: Path) -> None:
    graph = _row(1 << 20, 1 << 18, 1 << 10, state=1 << 24)
    write_graph(graph, tmp_path / "job", memory=True)
    assert predict(tmp_path / "job", on="h100-sxm").memory.peak == graph.memory_bytes
    write_graph(graph, tmp_path / "job")
    assert not predict(tmp_path / "job", on="h100-sxm").memory.known


def test_every_graph_that_was_learnt_from_holds_something() -> None:
    for graph in shipped_corpus():
        assert 0 <= graph.state <= graph.memory_bytes
        assert graph.memory_bytes > 0
        assert not graph.complaints()


@pytest.mark.parametrize("memory", [2e9, 60e9])
def test_grown_for_memory(memory: float) -> None:
    graph = grow_for(shipped_model(), "decoder", 200, 5, GraphConditions(memory_bytes=memory)).graph
    assert graph.memory_bytes == pytest.approx(memory, rel=1e-6)
    assert not graph.complaints()


def test_grown_for_a_step_and_for_both() -> None:
    model = shipped_model()
    plain = grow_for(model, "gpt", 120, 2, GraphConditions(step_s=30e-3, on="dgx-a100"))
    assert graph_seconds(plain.graph, "dgx-a100") == pytest.approx(30e-3, rel=0.011)
    both = grow_for(model, "gpt", 120, 2, GraphConditions(memory_bytes=5e9))
    longer = 3 * graph_seconds(both.graph, "dgx-h100")
    found = grow_for(model, "gpt", 120, 2, GraphConditions(memory_bytes=5e9, step_s=longer))
    assert found.step_s == pytest.approx(longer, rel=0.011)
    assert found.graph.memory_bytes == pytest.approx(5e9, rel=1e-6)
    assert [node.kind for node in found.graph.nodes] == [node.kind for node in both.graph.nodes]


def test_what_cannot_be_met_is_refused() -> None:
    model = shipped_model()
    with pytest.raises(UsageError, match="take more than 1 us"):
        grow_for(model, "gpt", 50, 0, GraphConditions(step_s=1e-6))
    with pytest.raises(UsageError, match=r"hold .* however small"):
        grow_for(model, "llama3-70b", 50, 0, GraphConditions(memory_bytes=1.0))
    for wrong in (GraphConditions(step_s=0.0), GraphConditions(memory_bytes=float("inf"))):
        with pytest.raises(UsageError):
            grow_for(model, "gpt", 50, 0, wrong)


def test_by_command(tmp_path: Path) -> None:
    run = CliRunner()
    asked = ["generate", "--like", "gpt", "--nodes", "60", "-o", str(tmp_path / "g"), "--json"]
    found = run.invoke(app, [*asked, "--step-time", "20ms", "--memory", "1GB"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["step_s"] == pytest.approx(20e-3, rel=0.011)
    assert said["memory_bytes"] == pytest.approx(1e9, rel=1e-6)
    assert isinstance(run.invoke(app, [*asked, "--on", "h200"]).exception, UsageError)
    for flag in ("--step-time", "--memory"):
        wrong = run.invoke(app, [*asked, flag, "50"]).exception
        assert isinstance(wrong, UsageError)
        assert wrong.where == flag
    suite = run.invoke(
        app, ["generate", "--suite", str(tmp_path / "s"), "--like", "gpt", "--count", "1", "--memory", "1GB"]
    )
    assert suite.exit_code == 0, suite.output
    (row,) = json.loads((tmp_path / "s" / "suite.json").read_text())["graphs"]
    assert row["memory_bytes"] == pytest.approx(1e9, rel=1e-6)
    for flags in (["-o", str(tmp_path / "g"), "--count", "2"], ["--suite", str(tmp_path / "t"), "--nodes", "20"]):
        unheeded = run.invoke(app, ["generate", "--like", "gpt", *flags]).exception
        assert isinstance(unheeded, UsageError), flags
        assert unheeded.where == flags[2]
