"""Shapes of grown graphs: consistent with bytes, with operations and along edges."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.chakra import read_trace
from meshcast.traces import Moved, OpGraph, OpNode, shipped_corpus, shipped_model, write_graph
from meshcast.traces.synthetic.distances import distances
from meshcast.traces.synthetic.forms import Form, form_of
from meshcast.traces.synthetic.graphs import packed, unpacked_graph
from meshcast.traces.synthetic.model import learnt
from meshcast.traces.synthetic.sizing import Dimensions

TOKENS, WIDTH, INNER = 512, 256, 1024
PAIR = (((2, 1),),)


def tensor(*shape: int, parent: int = -1, dtype: str = "bf16", part: float = 1.0) -> Moved:
    """A tensor of two bytes an element."""
    size = 2
    for each in shape:
        size *= each
    return Moved(shape=shape, dtype=dtype, bytes=round(size * part), parent=parent)


def _node(
    kind: str, operands: tuple[Moved, ...], results: tuple[Moved, ...], *, flops: float = 0.0, **more: object
) -> OpNode:
    read, written = (sum(each.bytes for each in row) for row in (operands, results))
    group = int(str(more.get("group", -1)))
    return OpNode(
        kind=kind, dtype="bf16", bytes=read if group >= 0 else read + written, written=written, operands=operands,
        results=results, parents=tuple(sorted({each.parent for each in operands} - {-1})), flops=flops, group=group,
        matrix=kind == "gemm", contracted=int(str(more.get("contracted", 0))),
    )  # fmt: skip


def layer() -> OpGraph:
    """A product, a function of its result, a second product back, a sum over pairs, and half of it."""
    nodes = (
        _node("gemm", (tensor(2, 256, WIDTH), tensor(WIDTH, INNER)), (tensor(2, 256, INNER),),
              flops=2.0 * TOKENS * WIDTH * INNER, contracted=WIDTH),
        _node("loop-fusion", (tensor(2, 256, INNER, parent=0),), (tensor(TOKENS, INNER),), flops=8.0 * TOKENS * INNER),
        _node("gemm", (tensor(TOKENS, INNER, parent=1), tensor(INNER, WIDTH)), (tensor(TOKENS, WIDTH),),
              flops=2.0 * TOKENS * WIDTH * INNER, contracted=INNER),
        _node("all_reduce", (tensor(TOKENS, WIDTH, parent=2),), (tensor(TOKENS, WIDTH),), group=0),
        _node("loop-fusion", (tensor(TOKENS, WIDTH, parent=3, part=0.5),), (tensor(256, WIDTH),), flops=256.0 * WIDTH),
    )  # fmt: skip
    return OpGraph(name="layer", model="layer", family="layers", ranks=2, groups=PAIR, nodes=nodes, state=1 << 20)


def test_a_graph_with_shapes_is_valid_and_kept() -> None:
    graph = layer()
    assert graph.complaints() == []
    assert unpacked_graph(json.loads(json.dumps(packed(graph)))) == graph


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (1, {"bytes": 5}, "moves 5 bytes, and its tensors have"),
        (1, {"written": 5}, "writes 5 bytes, and its results have"),
        (1, {"parents": ()}, "and its parents are"),
        (2, {"contracted": INNER // 2}, "sums over 512 elements"),
        (2, {"flops": 1.0}, "sums over 1024 elements"),
        (3, {"results": (tensor(TOKENS, WIDTH, part=0.5),), "written": TOKENS * WIDTH}, "all_reduce of"),
    ],
)
def test_what_does_not_fit_is_said(place: int, change: dict[str, object], said: str) -> None:
    graph = layer()
    nodes = list(graph.nodes)
    nodes[place] = replace(nodes[place], **change)  # type: ignore[arg-type]  # any field
    assert said in " ".join(replace(graph, nodes=tuple(nodes)).complaints())


def test_a_tensor_that_the_parent_does_not_make() -> None:
    graph = layer()
    wrong = replace(graph.nodes[1], operands=(tensor(256, 2, INNER, parent=0),))
    found = replace(graph, nodes=(graph.nodes[0], wrong, *graph.nodes[2:])).complaints()
    assert found == ["node 1 takes bf16[256, 2, 1024], which node 0 does not make"]


def test_the_form_of_a_product() -> None:
    """Rows are all dimensions of the result but the last."""
    form = form_of(layer().nodes[0])
    assert form.product is not None
    assert (form.product.first, form.product.last, form.product.contracted) == (0, 2, WIDTH)
    assert (form.product.lhs, form.product.rhs, form.work) == (0, 1, 2.0)
    assert Form.from_json(json.loads(json.dumps(form.to_json()))) == form


def test_dimensions_change_together() -> None:
    """A product of two that lie beside each other stays their product, and multiples of 8 stay such."""
    forms = [form_of(node) for node in layer().nodes]
    new = Dimensions(forms, spread=0.7, octaves=0.0, seed=3)
    assert new(2 * 256) == new(2) * new(256) != 512
    assert new(INNER) != INNER
    assert new(INNER) % 8 == 0
    assert new(3) == 3
    assert Dimensions(forms, spread=0.0, octaves=0.0, seed=3).shape((2, 256, INNER)) == (2, 256, INNER)
    assert Dimensions(forms, spread=0.0, octaves=1.0, seed=3)(WIDTH) == 2 * WIDTH


@pytest.mark.parametrize("octaves", [-12.0, -1.3, 0.0, 0.77])
def test_grown_with_other_sizes_products_stay_products(octaves: float) -> None:
    skeleton = learnt([layer()]).skeleton("layer", 40, 1)
    graph = replace(skeleton, spread=1.0).sized(octaves)
    assert graph.complaints() == []
    products = [node for node in graph.nodes if node.kind == "gemm"]
    assert products
    for node in products:
        out = node.results[0]
        assert node.flops == 2.0 * out.elements * node.contracted


@pytest.mark.parametrize(
    "like", ["llama3-8b", "measured-decoder", "recorded-dlrm", "recorded-resnet", "measured-transformers"]
)
def test_grown_shapes_are_consistent(like: str) -> None:
    for seed in range(3):
        graph = shipped_model().grow(like, 300, seed)
        assert graph.complaints() == []
        with_shapes = sum(bool(node.results or node.operands) for node in graph.nodes)
        assert with_shapes >= 0.95 * len(graph.nodes)
        products = [node for node in graph.nodes if node.contracted]
        assert sum(any(each.parent >= 0 for each in node.operands) for node in products) >= 0.9 * len(products)


def test_shapes_are_written_into_traces_and_followed_by_number(tmp_path: Path) -> None:
    write_graph(layer(), tmp_path / "job")
    nodes = [node for node in read_trace(tmp_path / "job.1.et").nodes if node.name != "the step begins"]
    first, second = nodes[0], nodes[1]
    assert first.outputs is not None
    assert second.inputs is not None
    assert json.loads(first.outputs.shapes) == [[2, 256, INNER]]
    assert json.loads(first.outputs.types) == ["Tensor(c10::BFloat16)"]
    (made,), (taken,) = json.loads(first.outputs.values), json.loads(second.inputs.values)
    assert made == taken
    assert made[3:] == [TOKENS * INNER, 2, "cuda:0"]
    assert predict(tmp_path / "job", on="dgx-h100").step_time_s


def test_distances_of_shapes() -> None:
    graph = layer()
    wider = replace(learnt([graph]).skeleton("layer", 5, 0), spread=0.0).sized(1.0)
    found = distances([wider], [graph])
    assert found["dimensions"] == pytest.approx(1.0)
    assert set(distances([graph], [graph]).values()) == {0.0}


def test_the_shipped_graphs_have_shapes_of_three_sources() -> None:
    nodes = [node for graph in shipped_corpus() for node in graph.nodes]
    assert sum(bool(node.operands or node.results) for node in nodes) > 0.99 * len(nodes)
    products = [node for node in nodes if node.kind == "gemm"]
    assert sum(node.contracted > 0 for node in products) > 0.9 * len(products)
    families = {each.family.partition("-")[0] for each in shipped_model().settings}
    assert {"decoder", "measured", "recorded"} <= families
