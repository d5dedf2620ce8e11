"""Execution traces as graphs: who works, who takes what, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshcast.traces import HostTrace, Operator
from meshcast.traces.synthetic.corpus import measured_model
from meshcast.traces.synthetic.recorded_graphs import recorded_graph

FLOAT = "Tensor(float)"


def _tensor(storage: int, *shape: int, device: str = "cuda:0") -> tuple[list[Any], list[int]]:
    count = 1
    for each in shape:
        count *= each
    return [100 + storage, storage, 0, count, 4, device], list(shape)


def _operator(
    number: int,
    name: str,
    read: list[tuple[list[Any], list[int]]],
    made: list[tuple[list[Any], list[int]]],
    parent: int = 1,
) -> Operator:
    return Operator(
        number=number, name=name, parent=parent, record=number, thread=1, values=[each for each, _ in read],
        shapes=[shape for _, shape in read], types=[FLOAT] * len(read), out_values=[each for each, _ in made],
        out_shapes=[shape for _, shape in made], out_types=[FLOAT] * len(made),
    )  # fmt: skip


def _trace(*operators: Operator) -> HostTrace:
    root = Operator(number=1, name="[pytorch|profiler|execution_trace|thread]", parent=1, record=0, thread=1)
    return HostTrace(
        where="by hand", schema="1.0.1", groups={}, operators={each.number: each for each in (root, *operators)}
    )


def _step() -> HostTrace:
    """A product with an allocation inside, a view of it, a sum in place, an all-reduce of that, all called by a module."""
    weights, given, out, more = _tensor(1, 16, 32), _tensor(2, 8, 16), _tensor(3, 8, 32), _tensor(4, 32)
    exchange = _operator(9, "record_param_comms", [_tensor(3, 8, 32)], [_tensor(3, 8, 32)])
    exchange.values.append("allreduce")
    exchange.types.append("String")
    exchange.shapes.append([])
    return _trace(
        _operator(2, "nn.Module: Linear", [], []),
        _operator(3, "aten::linear", [given, weights], [out], parent=2),
        _operator(4, "aten::mm", [given, weights], [out], parent=3),
        _operator(5, "aten::empty", [], [out], parent=4),
        _operator(6, "aten::view", [out], [_tensor(3, 256)]),
        _operator(7, "aten::add_", [_tensor(3, 8, 32), more], [_tensor(3, 8, 32)]),
        _operator(8, "aten::copy_", [_tensor(9, 4, device="cpu")], [_tensor(8, 4, device="cpu")]),
        exchange,
        _operator(10, "nccl:all_reduce", [_tensor(3, 8, 32)], [], parent=9),
    )


def test_operators_that_make_something_are_nodes() -> None:
    graph = recorded_graph(_step(), name="step", model="step", family="steps", ranks=2)
    assert [node.kind for node in graph.nodes] == ["gemm", "loop-fusion", "all_reduce"]
    product, added, met = graph.nodes
    assert graph.complaints() == []
    assert (product.flops, product.contracted, product.bytes) == (
        2.0 * 8 * 16 * 32,
        16,
        4 * (8 * 16 + 16 * 32 + 8 * 32),
    )
    assert (added.parents, met.parents, met.bytes) == ((0,), (1,), 1024)
    assert graph.state == 4 * (16 * 32 + 8 * 16 + 32), "what nobody made"


def test_alone_there_is_nobody_to_meet() -> None:
    graph = recorded_graph(_step(), name="step", model="step", family="steps", ranks=1)
    assert [node.kind for node in graph.nodes] == ["gemm", "loop-fusion"]
    assert graph.groups == ()


def test_a_view_is_a_part_of_what_was_made() -> None:
    step = _trace(
        _operator(2, "aten::mul", [_tensor(1, 64)], [_tensor(2, 64)]),
        _operator(3, "aten::neg", [_tensor(2, 4, 4)], [_tensor(3, 4, 4)]),
    )
    second = recorded_graph(step, name="s", model="s", family="s", ranks=1).nodes[1]
    (read,) = second.operands
    assert (read.shape, read.bytes, read.parent) == ((64,), 64, 0)
    assert second.results[0].shape == (4, 4)


def test_a_look_up_reads_a_part_of_its_table() -> None:
    places = ([102, 2, 0, 10, 8, "cuda:0"], [10])
    look = _operator(2, "aten::embedding", [_tensor(1, 1000, 8), places], [_tensor(3, 10, 8)])
    look.types[1] = "Tensor(long int)"
    (node,) = recorded_graph(_trace(look), name="s", model="s", family="s", ranks=1).nodes
    table, indices = node.operands
    assert (node.kind, table.bytes, indices.bytes, node.written) == ("gather", 320, 80, 320)
    assert node.bytes == 720


def test_names_of_measured_programs() -> None:
    names = {
        "gpt2-small-batch16-seq512-scanFalse": ("measured-gpt2-small", "measured-gpt"),
        "transformers_bert_mlm_train": ("measured-transformers-bert_mlm", "measured-transformers"),
        "diffusers_vae_train_f32": ("measured-diffusers-vae", "measured-diffusers"),
        "phi-2-modedecode-batch8-context2048": ("measured-phi-2", "measured-decoder"),
    }
    assert {name: measured_model(Path(f"{name}.mlir.gz")) for name in names} == names
