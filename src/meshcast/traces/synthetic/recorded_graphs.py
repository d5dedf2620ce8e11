"""Execution traces of PyTorch as `OpGraph`s: operators that make something on the device, and who takes what they made.

An operator works where it makes a tensor on the device, in memory of its own or in place, and nothing that it calls does: what
only calls others, allocates, or looks at a tensor in another way is passed over. Whoever wrote a storage last is the parent of
what reads it. Sizes and operations are those of the operator's tensors (`traces.recorded.work`); a view of what a parent made
is a part of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshcast.chakra import COLLECTIVE_KINDS
from meshcast.traces import HostTrace, Operator, exchange_of, work_of
from meshcast.traces.synthetic.graphs import GroupDims, Moved, OpGraph, OpNode, tensor_bytes
from meshcast.traces.synthetic.validity import is_product

EXCHANGE = "record_param_comms"
# Operators that look at, allocate or name memory: nothing runs on the device.
IDLE = re.compile(
    r"aten::(empty|new_empty|resize|set_|as_strided|detach|requires_grad|record_stream|(un)?squeeze_|transpose_|t_$).*|detach_?"
)
KINDS = (
    (r"convolution", "convolution"), (r"::(mm|addmm|bmm|baddbmm|addbmm|matmul|linear)$", "gemm"),
    (r"attention", "attention"), (r"sort|unique|topk", "sort"), (r"index_put|scatter|index_add", "scatter"),
    (r"embedding|index|gather|look_?up|Lookup", "gather"), (r"sum|mean|norm|softmax|loss|max|min$|var|std", "reduction"),
)  # fmt: skip
TYPES = {
    "float": "f32", "double": "f64", "half": "f16", "bfloat16": "bf16", "long": "i64", "int": "i32", "short": "i16",
    "char": "i8", "signed char": "i8", "byte": "ui8", "unsigned char": "ui8", "bool": "i1", "long int": "i64",
    "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2",
}  # fmt: skip
SAID = 6  # that a trace says of a tensor: its number, storage, offset, elements, bytes of each, and where it is


@dataclass(frozen=True, slots=True)
class _Seen:
    """A tensor as an operator sees it."""

    storage: int
    shape: tuple[int, ...]
    dtype: str


def recorded_graph(
    trace: HostTrace, *, name: str, model: str, family: str, ranks: int, held_out: bool = False
) -> OpGraph:
    """The graph of one rank's execution trace, all of whose collectives are over all ranks."""
    found = _Operators((((ranks, 1),),) if ranks > 1 else (), ranks)
    for operator in _working(trace):
        found.add(operator)
    return OpGraph(
        name=name, model=model, family=family, ranks=ranks, groups=found.groups, nodes=tuple(found.nodes),
        held_out=held_out, state=sum(found.given.values()),
    )  # fmt: skip


def _working(trace: HostTrace) -> list[Operator]:
    """Operators that do something themselves, in the order in which they began."""
    busy: set[int] = set()  # what works, or calls something that does
    found = []
    inside = {each.number for each in trace.operators.values() if each.name == EXCHANGE}
    for operator in reversed(trace.operators.values()):
        works = operator.number not in busy and operator.parent not in inside and _makes(operator)
        if works:
            found.append(operator)
        if works or operator.number in busy:
            busy.add(operator.parent)
    return found[::-1]


def _makes(operator: Operator) -> bool:
    if operator.name == EXCHANGE:
        return exchange_of(operator) is not None
    if operator.is_root or IDLE.fullmatch(operator.name) or "::" not in operator.name:
        return False
    return bool(_made(operator))


def _made(operator: Operator) -> list[_Seen]:
    """Tensors on the device that an operator makes, or changes in place."""
    read = list(_tensors(operator.values, operator.shapes, operator.types))
    written = list(_tensors(operator.out_values, operator.out_shapes, operator.out_types))
    if operator.name.endswith("_"):
        return written or read[:1]
    known = {each.storage for each in read}
    return [each for each in written if each.storage not in known]


def _tensors(values: Sequence[Any], shapes: Sequence[Any], types: Sequence[Any]) -> Iterator[_Seen]:
    for value, shape, kind in zip(values, shapes, types, strict=False):
        text = str(kind)
        if "Tensor" not in text or not isinstance(value, list):
            continue
        if text.startswith(("GenericList", "Tuple")):
            inner = re.findall(r"Tensor\([^)]*\)", text)
            yield from _tensors(value, shape if isinstance(shape, list) else [], [*inner, *inner[-1:] * len(value)])
        elif len(value) >= SAID and str(value[5]).startswith(("cuda", "hip", "xpu")) and value[3]:
            dtype = TYPES.get(text[len("Tensor(") : -1].removeprefix("c10::").lower())
            if dtype is None:
                continue
            sizes = tuple(map(int, shape)) if isinstance(shape, list) else ()
            yield _Seen(int(value[1]), sizes if math.prod(sizes) == value[3] else (int(value[3]),), dtype)


class _Operators:
    def __init__(self, groups: tuple[GroupDims, ...], ranks: int) -> None:
        self.groups, self._ranks = groups, ranks
        self.nodes: list[OpNode] = []
        self.given: dict[int, int] = {}  # bytes of storages that nobody made
        self._makers: dict[int, int] = {}

    def add(self, operator: Operator) -> None:
        """Adds the node of an operator."""
        read = list(dict.fromkeys(_tensors(operator.values, operator.shapes, operator.types)))
        exchange = exchange_of(operator) if operator.name == EXCHANGE else None
        if exchange is not None:
            self._exchange(
                read or list(_tensors(operator.out_values, operator.out_shapes, operator.out_types)), exchange.code
            )
            return
        results = tuple(_whole(each) for each in dict.fromkeys(_made(operator)))
        operands = self._operands(read)
        flops, matrix, moved, dtype = work_of(operator)
        operands = _looked_up(operands, moved - sum(each.bytes for each in results))
        kind = next((kind for text, kind in KINDS if re.search(text, operator.name)), "loop-fusion")
        node = OpNode(
            kind=kind, dtype=dtype or "f32",
            flops=float(flops), bytes=max(1, sum(each.bytes for each in (*operands, *results))), matrix=2 * matrix > flops,
            written=sum(each.bytes for each in results), operands=operands, results=results, parents=_parents(operands),
            contracted=_depth(operator) if kind == "gemm" else 0,
        )  # fmt: skip
        self._append(node if not node.contracted or is_product(node) else replace(node, contracted=0), _made(operator))

    def _exchange(self, read: list[_Seen], code: Any) -> None:
        kind = COLLECTIVE_KINDS.get(code)
        if not self.groups or kind is None or not read:
            return
        operands = self._operands(read)
        change = {"all_gather": self._ranks, "reduce_scatter": 1 / self._ranks}.get(kind, 1)
        results = []
        for each in operands:
            whole = each.bytes == each.whole and change == 1
            shape = each.shape if whole else (math.ceil(each.elements * change),)
            results.append(Moved(shape=shape, dtype=each.dtype, bytes=tensor_bytes(shape, each.dtype)))
        size = sum(each.bytes for each in operands)
        self._append(
            OpNode(
                kind=kind, group=0, bytes=size, written=sum(each.bytes for each in results), operands=operands,
                results=tuple(results), parents=_parents(operands),
            ),
            read,
        )  # fmt: skip

    def _append(self, node: OpNode, made: list[_Seen]) -> None:
        self.nodes.append(node)
        for each in made:
            self._makers[each.storage] = len(self.nodes) - 1

    def _operands(self, read: Sequence[_Seen]) -> tuple[Moved, ...]:
        found = []
        for each in read:
            size, maker = tensor_bytes(each.shape, each.dtype), self._makers.get(each.storage, -1)
            if maker < 0:
                self.given[each.storage] = max(size, self.given.get(each.storage, 0))
                found.append(_whole(each))
                continue
            made = self.nodes[maker].results
            same = [other for other in made if (other.shape, other.dtype) == (each.shape, each.dtype)]
            seen = (same or sorted(made, key=lambda other: abs(other.whole - size)))[0]
            found.append(replace(seen, bytes=min(size, seen.whole), parent=maker))
        return tuple(found)


def _whole(each: _Seen) -> Moved:
    return Moved(shape=each.shape, dtype=each.dtype, bytes=tensor_bytes(each.shape, each.dtype))


def _parents(operands: Sequence[Moved]) -> tuple[int, ...]:
    return tuple(sorted({each.parent for each in operands} - {-1}))


def _looked_up(operands: tuple[Moved, ...], read: int) -> tuple[Moved, ...]:
    """Operands of which so many bytes are read in all: of a table that rows are looked up in less than it has."""
    over = sum(each.bytes for each in operands) - read
    if over <= 0 or read <= 0:
        return operands
    largest = max(range(len(operands)), key=lambda place: operands[place].bytes)
    table = operands[largest]
    return (*operands[:largest], replace(table, bytes=max(0, table.bytes - over)), *operands[largest + 1 :])


def _depth(operator: Operator) -> int:
    """What a product of PyTorch's sums over."""
    try:
        return int(operator.shapes[1 if "add" in operator.name else 0][-1])
    except (IndexError, TypeError, ValueError):
        return 0
