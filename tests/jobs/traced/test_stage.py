"""Traces as STAGE writes them: sizes as floats, groups beside them, no times."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import compare, predict
from meshcast.base.errors import InputError
from meshcast.chakra import ChakraTrace, Node, NodeType
from meshcast.chakra.reader import read_trace
from meshcast.jobs.traced.memory import peak_bytes

STAGE = Path(__file__).parents[2] / "fixtures/stage"


def trace(*sizes: str) -> ChakraTrace:
    inputs = tuple(part for index, size in enumerate(sizes) for part in (f"t{index}", size))
    node = Node(number=0, name="node", kind=NodeType.COMPUTE, attributes={"inputs": inputs})
    return ChakraTrace(nodes=(node,), offsets=(0,), where="job.0.et")


def test_sizes_may_be_floats() -> None:
    assert peak_bytes(trace("1024.0", "16", "0.5", "1e+03")) == 1024 + 16 + 1 + 1000


@pytest.mark.parametrize("size", ["-4.0", "nan", "inf", "1.5.2", "many", "", "1e99", "9" * 30])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(InputError, match="names and bytes in turn"):
        peak_bytes(trace("1024.0", size))


@pytest.mark.parametrize(("name", "peers"), [("pipeline", "send"), ("tensor", "all_gather")])
def test_its_traces_are_timed(name: str, peers: str) -> None:
    answer = predict(STAGE / name, on="dgx-h100")
    assert answer.devices == 2
    assert answer.step_time_s is not None
    assert 10e-6 < answer.step_time_s < 1e-3
    assert answer.memory.peak > 0
    assert answer.communication_bytes > 0
    kinds = {node.kind for node in read_trace(STAGE / f"{name}.0.et").nodes}
    assert (NodeType.SEND in kinds) == (peers == "send")


def test_its_traces_are_compared(tmp_path: Path) -> None:
    table = compare([STAGE / "tensor"], on=["dgx-h100", "dgx-a100"], fidelities="analytical", folder=tmp_path / "run")
    assert {cell.ask.on for cell in table.cells if cell.prediction is not None} == {"dgx-h100", "dgx-a100"}
