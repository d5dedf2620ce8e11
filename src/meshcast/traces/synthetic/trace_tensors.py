"""Tensors of a graph as PyTorch's traces have them: `inputs` and `outputs` of a node, values, shapes and types as JSON.

Every tensor has a number: what a node takes of another has the number under which that made it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from meshcast.chakra import NodeValues
from meshcast.traces.synthetic.graphs import Moved, OpGraph
from meshcast.workload import DTYPE_BITS

ReadAndWritten = tuple[NodeValues | None, NodeValues | None]
ON_DEVICE = "cuda:0"  # where PyTorch says that a rank's tensors are, whatever the device is
# Types by PyTorch's names; others by ours.
TORCH_TYPES = {
    "f32": "float", "f64": "double", "f16": "c10::Half", "bf16": "c10::BFloat16", "i64": "long int", "i32": "int",
    "i16": "short", "i8": "signed char", "ui8": "unsigned char", "i1": "bool", "f8E4M3FN": "c10::Float8_e4m3fn",
    "f8E5M2": "c10::Float8_e5m2",
}  # fmt: skip


class GraphTensors:
    """The tensors of a graph's nodes as PyTorch's traces have them, numbered from 1 on."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._numbers: list[list[int]] = []  # of every node's results
        self._last = 0

    def of(self, place: int) -> ReadAndWritten:
        """What the next node reads and writes; nothing where its shapes are not known."""
        node = self._graph.nodes[place]
        read = [self._number(each) for each in node.operands]
        made = [self._new() for _ in node.results]
        self._numbers.append(made)
        if not node.operands and not node.results:
            return None, None
        return _values(node.operands, read), _values(node.results, made)

    def _number(self, each: Moved) -> int:
        if 0 <= each.parent < len(self._numbers):  # graphs of chance name nodes that come later
            results = self._graph.nodes[each.parent].results
            for number, result in zip(self._numbers[each.parent], results, strict=True):
                if (result.shape, result.dtype) == (each.shape, each.dtype):
                    return number
        return self._new()

    def _new(self) -> int:
        self._last += 1
        return self._last


def _values(row: Sequence[Moved], numbers: Sequence[int]) -> NodeValues:
    """A tensor is [id, storage, offset, elements, bytes of each, device]; of a part as many elements as are moved."""
    values = [
        [number, number, 0, each.elements, max(1, DTYPE_BITS[each.dtype] // 8), ON_DEVICE]
        for each, number in zip(row, numbers, strict=True)
    ]
    types = [f"Tensor({TORCH_TYPES.get(each.dtype, each.dtype)})" for each in row]
    return NodeValues(
        values=json.dumps(values), shapes=json.dumps([list(each.shape) for each in row]), types=json.dumps(types)
    )
