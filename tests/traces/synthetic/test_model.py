"""Grown graphs: the same from the same seed, valid whatever is asked for, learnt from what is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meshcast import predict
from meshcast.base.errors import UsageError
from meshcast.chakra import NodeType, read_trace
from meshcast.traces import GraphModel, OpGraph, OpNode, shipped_corpus, shipped_model, write_graph, write_suite
from meshcast.traces.synthetic.baselines import perturbed_copy, random_graph
from meshcast.traces.synthetic.counts import Counts
from meshcast.traces.synthetic.distances import distances
from meshcast.traces.synthetic.evaluation import evaluate
from meshcast.traces.synthetic.graphs import packed, unpacked_graph
from meshcast.traces.synthetic.model import learnt
from meshcast.traces.synthetic.trace_files import members_of
from tests.traces.astra_reader import makespan_ns

PAIRS, ACROSS = ((2, 1),), ((2, 2),)  # of four ranks: 0 1, 2 3; and 0 2, 1 3


def chain(length: int, *, model: str = "one", size: int = 1 << 20, held_out: bool = False) -> OpGraph:
    """A product, a sum over pairs, a fusion, in turn, each behind the one before."""
    kinds = (
        OpNode(kind="gemm", dtype="bf16", flops=64.0 * size, bytes=size, matrix=True),
        OpNode(kind="all_reduce", group=0, bytes=size),
        OpNode(kind="loop-fusion", dtype="f32", flops=float(size), bytes=size),
    )
    nodes = []
    for place in range(length):
        node = kinds[place % 3]
        parents = (place - 1,) if place else ()
        nodes.append(
            OpNode(
                kind=node.kind, dtype=node.dtype, group=node.group, flops=node.flops, bytes=node.bytes, matrix=node.matrix,
                parents=parents,
            )
        )  # fmt: skip
    return OpGraph(
        name=f"{model} {length} {size}", model=model, family="chains", ranks=4, groups=(PAIRS, ACROSS), nodes=tuple(nodes),
        held_out=held_out,
    )  # fmt: skip


def test_what_was_seen_once_is_drawn_and_what_was_never_seen_falls_back() -> None:
    counts = Counts()
    counts.see([("a", 1), ("a",), ()], "x")
    random = np.random.default_rng(0)
    assert {counts.draw([("b", 2), ("b",), ()], random) for _ in range(5)} == {"x"}
    assert Counts().draw([()], random) is None
    for _ in range(3):
        counts.see([("a", 1), ("a",), ()], "y")
    drawn = [counts.draw([("a", 1), ("a",), ()], random) for _ in range(400)]
    assert 0.6 < drawn.count("y") / 400 < 0.9, "three of four were y"


def test_a_model_of_chains_grows_chains() -> None:
    """Every context of a chain has been followed by one thing alone."""
    graph = learnt([chain(30)]).grow("one", 30, 1)
    assert [len(layer) for layer in graph.layers()] == [1] * 30
    assert [node.kind for node in graph.nodes[:4]] == ["gemm", "all_reduce", "loop-fusion", "gemm"]
    assert graph.complaints() == []
    assert all(50 < node.flops / node.bytes < 80 for node in graph.nodes if node.kind == "gemm")


def test_nodes_without_shapes_have_as_many_parents_as_was_learnt() -> None:
    """Two nodes of each layer take the results of both of the layer before."""
    nodes = [
        OpNode(kind="a", bytes=8, parents=() if place < 2 else (place - place % 2 - 2, place - place % 2 - 1))
        for place in range(40)
    ]
    graph = OpGraph(name="pairs", model="pairs", family="pairs", ranks=1, groups=(), nodes=tuple(nodes))
    grown = learnt([graph]).grow("pairs", 40, 0)
    assert grown.complaints() == []
    assert sum(len(node.parents) for node in grown.nodes) > 1.3 * (40 - len(grown.layers()[0]))


def test_what_is_learnt_is_kept_as_json() -> None:
    model = learnt([chain(12), chain(20, size=1 << 24)])
    again = GraphModel.from_json(model.to_json())
    assert again.grow("chains", 50, 3) == model.grow("chains", 50, 3)
    assert unpacked_graph(packed(chain(9))) == chain(9)


@pytest.mark.parametrize("like", ["llama3-70b", "gpt", "resnet"])
def test_grown_graphs_are_valid_and_repeatable(like: str) -> None:
    model = shipped_model()
    for nodes, seed in ((1, 0), (17, 1), (1200, 2)):
        graph = model.grow(like, nodes, seed)
        assert graph.complaints() == []
        assert len(graph.nodes) == nodes
        assert graph == model.grow(like, nodes, seed)
    assert model.grow(like, 300, 1) != model.grow(like, 300, 2)
    depths = graph.depths()
    assert all(not node.parents or depths[place] - 1 in {depths[each] for each in node.parents}
               for place, node in enumerate(graph.nodes))  # fmt: skip


def test_a_grown_graph_has_the_collectives_of_its_plan_and_no_others() -> None:
    """Graphs of a family differ in how they are shared out: what one plan exchanges is not mixed into another's."""
    model = shipped_model()
    known = {each.sharing for each in model.settings if each.family == "decoder"}
    assert len(known) > 1
    for seed in range(6):
        graph = model.grow("decoder", 400, seed)
        has = {f"{node.kind}.{node.group}" for node in graph.nodes if node.is_collective}
        assert any(has <= set(each.split()) for each in known)


def test_noise_is_that_of_a_smoothed_sample() -> None:
    """Scales of 20, 22 and 24 octaves: a standard deviation of 2, of three graphs."""
    model = learnt([chain(12, size=1 << octaves) for octaves in (20, 22, 24)])
    assert model.spread(model.settings[0]) == pytest.approx(2.0 * 3**-0.2)
    alone = learnt([chain(12)])
    assert alone.spread(alone.settings[0]) == 0.0


def test_one_rank_stands_for_all_in_an_evaluation(tmp_path: Path) -> None:
    graph = shipped_model().grow("llama3-8b", 120, 4)
    write_graph(graph, tmp_path / "all" / "job")
    written = write_graph(graph, tmp_path / "one" / "job", first_alone=True)
    assert [path.name for path in written] == ["job.0.et", "job.comm_groups.json"]
    steps = [predict(tmp_path / each / "job", on="dgx-h100").step_time_s for each in ("all", "one")]
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)


def test_nothing_like_it() -> None:
    with pytest.raises(UsageError, match="nothing like 'llama3-80b'"):
        shipped_model().grow("llama3-80b", 10, 0)


def test_ranks_of_groups() -> None:
    assert [members_of(PAIRS, rank) for rank in range(4)] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert [members_of(ACROSS, rank) for rank in range(4)] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert members_of(((2, 1), (2, 2)), 3) == (0, 1, 2, 3)


def test_traces_of_all_ranks_replay(tmp_path: Path) -> None:
    """Permutations, too: a message each way around the ring of a group."""
    graph = chain(6)
    ring = OpNode(kind="collective_permute", group=1, bytes=1 << 16, repeat=3, parents=(5,))
    last = OpNode(kind="gemm", dtype="bf16", flops=1e9, bytes=1 << 20, matrix=True, parents=(6,))
    graph = OpGraph(
        name="ring", model="one", family="chains", ranks=4, groups=(PAIRS, ACROSS), nodes=(*graph.nodes, ring, last)
    )
    assert graph.complaints() == []
    assert len(write_graph(graph, tmp_path / "job")) == 5
    trace = read_trace(tmp_path / "job.2.et")
    sent = next(node for node in trace.nodes if node.kind is NodeType.SEND)
    assert (sent.attributes["comm_dst"], sent.attributes["comm_size"]) == (0, 3 << 16)
    found = predict(tmp_path / "job", on="dgx-h100")
    assert found.devices == 4
    assert found.step_time_s is not None
    assert found.step_time_s > 0


def test_ranks_of_a_grown_graph_meet_by_the_rules_of_astra_sim(tmp_path: Path) -> None:
    """One communication at a time on each rank: all ranks end, as they run their collectives in one order."""
    graph = shipped_model().grow("llama3-8b", 150, 4)
    write_graph(graph, tmp_path / "job")
    path = tmp_path / "job.comm_groups.json"
    groups = json.loads(path.read_text()) if path.exists() else {}
    found = makespan_ns(str(tmp_path / "job"), graph.ranks, groups, lambda *_: 1000.0, lambda *_: 1000.0)
    count = sum(node.is_collective for node in graph.nodes)
    assert count > 3
    assert 0 <= found - 1000.0 * count <= len(graph.nodes), "kernels without durations take a nanosecond there"


def test_a_first_kernel_that_takes_no_nanosecond_waits_for_the_step_to_begin(tmp_path: Path) -> None:
    small = OpGraph(
        name="small", model="one", family="chains", ranks=1, groups=(), nodes=(OpNode(kind="copy", bytes=8),)
    )
    write_graph(small, tmp_path / "job")
    first, second = read_trace(tmp_path / "job.0.et").nodes
    assert (first.name, first.attributes["op_type"]) == ("the step begins", "wait")
    assert second.data_deps == (first.number,)
    write_graph(chain(3), tmp_path / "large")
    assert read_trace(tmp_path / "large.0.et").nodes[0].name == "gemm 0"


def test_a_suite_is_what_its_manifest_lists(tmp_path: Path) -> None:
    manifest = write_suite(learnt([chain(40)]), tmp_path / "suite", likes=["one"], seed=5, count=2)
    assert [row["seed"] for row in manifest["graphs"]] == [5, 6]
    assert manifest["covers"]["collectives"] == ["all_reduce"]
    for row in manifest["graphs"]:
        assert len(list((tmp_path / "suite" / row["trace"]).parent.glob("*.et"))) == row["ranks"] == 4
    with pytest.raises(UsageError, match="is not empty"):
        write_suite(learnt([chain(40)]), tmp_path / "suite", likes=["one"], seed=5, count=2)


def test_a_suite_that_ends_half_way_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing like 'unheard'"):
        write_suite(learnt([chain(40)]), tmp_path / "suite", likes=["one", "unheard"], seed=5, count=1)
    assert not list(tmp_path.iterdir())


def test_a_suite_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "suite").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        write_suite(learnt([chain(40)]), tmp_path / "suite", likes=["one"], seed=5, count=1)
    assert (tmp_path / "suite").read_text() == "mine"


def test_distances_tell_chance_from_structure() -> None:
    real = [chain(length) for length in (30, 60)]
    random = np.random.default_rng(0)
    assert set(distances(real, real).values()) == {0.0}
    ours, theirs = ([made(real, random) for _ in range(4)] for made in (perturbed_copy, random_graph))
    assert all(not graph.complaints() for graph in (*ours, *theirs))
    assert distances(ours, real)["layer sizes"] < distances(theirs, real)["layer sizes"]


def test_an_evaluation_of_chains() -> None:
    corpus = [chain(length, size=1 << (20 + length % 4)) for length in (8, 12, 17, 22, 27)]
    corpus += [chain(length, model="two", size=1 << 22, held_out=True) for length in (9, 15, 24)]
    found = evaluate(learnt([each for each in corpus if not each.held_out]), corpus, graphs=4, seed=1, on="dgx-h100")
    assert (found.graphs, found.valid["generated"], found.held_out) == (4, 4, 3)
    assert found.surrogates["real"].spearman == pytest.approx(1.0)
    assert found.distances["generated"]["kinds"] < 0.2
    assert found.to_json()["schema"] == "meshcast.generated/2"


def test_the_shipped_graphs_are_valid_and_set_apart_by_model() -> None:
    corpus = shipped_corpus()
    assert [graph.name for graph in corpus if graph.complaints()] == []
    apart = {graph.model for graph in corpus if graph.held_out}
    assert apart
    assert not apart & {each.model for each in shipped_model().settings}
