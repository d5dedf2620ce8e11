"""`Form`: what a node does with tensors, apart from where they come from.

A form is learnt of every node: the tensors that it writes, those that it takes from each parent and from outside (weights, state,
arguments), each with the share of it that is moved, and operations an element:

    of a product     flops = work * |out| * contracted
    of all else      flops = work * elements of the largest tensor

A new node has a form that was learnt, with sizes of its own (`traces.synthetic.sizing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.traces.synthetic.graphs import Moved, OpNode, tensor_bytes

FormPart = tuple[tuple[int, ...], str, float]  # shape, type, and the share of it that is moved
Key = tuple[tuple[int, ...], str]  # what tells tensors apart: shape and type


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`out[b,m,n] = sum_k lhs[b,m,k] rhs[b,k,n]` among the tensors of a form.

    Attributes:
        out: Which result it is.
        first: Dimensions of the result in front of this one are the batch; from `last` on they are columns.
        contracted: Elements that are summed over.
        lhs: Which operand it is, those of parents first; so `rhs`.
    """

    out: int
    first: int
    last: int
    contracted: int
    lhs: int
    rhs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a node does with tensors.

    Attributes:
        kind: The kind of a kernel or a collective; `dtype` and `matrix` as nodes have them.
        results: What it writes.
        edges: What it takes of each of its parents, nothing where shapes are not known; `outside` what nobody before it made.
        product: Where it is a product whose parts are known.
        work: Operations an element.
        plain: Bytes, bytes of the result and operations, where shapes are not known.
    """

    kind: str
    dtype: str
    matrix: bool
    results: tuple[FormPart, ...] = ()
    edges: tuple[tuple[FormPart, ...], ...] = ()
    outside: tuple[FormPart, ...] = ()
    product: Product | None = None
    work: float = 0.0
    plain: tuple[int, int, float] | None = None

    @property
    def keys(self) -> list[Key]:
        """What tells its results apart."""
        return [(shape, dtype) for shape, dtype, _ in self.results]

    @property
    def taken(self) -> list[Key]:
        """What tells tensors apart that it takes from parents."""
        return [(shape, dtype) for edge in self.edges for shape, dtype, _ in edge]

    @property
    def main(self) -> Key | None:
        """Its largest result."""
        return max(self.keys, key=lambda key: tensor_bytes(*key), default=None)

    @property
    def moved(self) -> float:
        """Bytes that a node of these very sizes moves."""
        if self.plain is not None:
            return float(self.plain[0])
        parts = [*self.results, *self.outside, *(part for edge in self.edges for part in edge)]
        return sum(tensor_bytes(shape, dtype) * share for shape, dtype, share in parts)

    def to_json(self) -> list[Any]:
        """As JSON."""
        product = self.product
        parts = product and [product.out, product.first, product.last, product.contracted, product.lhs, product.rhs]
        return [
            self.kind, self.dtype, int(self.matrix), self.results, self.edges, self.outside, parts, self.work, self.plain,
        ]  # fmt: skip

    @staticmethod
    def from_json(found: Sequence[Any]) -> Form:
        """The form from what `to_json` made of it."""
        kind, dtype, matrix, results, edges, outside, product, work, plain = found
        return Form(
            kind=kind, dtype=dtype, matrix=bool(matrix), results=_parts(results), edges=tuple(map(_parts, edges)),
            outside=_parts(outside), work=work, plain=plain and (plain[0], plain[1], plain[2]),
            product=product
            and Product(
                out=product[0], first=product[1], last=product[2], contracted=product[3], lhs=product[4], rhs=product[5]
            ),
        )  # fmt: skip


def _parts(found: Sequence[Any]) -> tuple[FormPart, ...]:
    return tuple((tuple(shape), dtype, share) for shape, dtype, share in found)


def form_of(node: OpNode) -> Form:
    """The form of a node."""
    plain = Form(
        kind=node.kind, dtype=node.dtype, matrix=node.matrix, plain=(node.bytes, node.written, node.flops),
        edges=((),) * len(node.parents),
    )  # fmt: skip
    if not node.operands and not node.results:
        return plain
    edges = [[each for each in node.operands if each.parent == parent] for parent in node.parents]
    if not all(edges):  # what a parent without known results gave is not known either
        return plain
    outside = [each for each in node.operands if each.parent < 0]
    flat = [*(each for edge in edges for each in edge), *outside]
    product = _product(node, flat)
    if product is not None:
        work = node.flops / (math.prod(node.results[product.out].shape) * product.contracted)
    else:
        work = node.flops / max((each.elements for each in (*flat, *node.results)), default=1) if node.flops else 0.0
    return Form(
        kind=node.kind, dtype=node.dtype, matrix=node.matrix, results=tuple(map(_part, node.results)),
        edges=tuple(tuple(map(_part, edge)) for edge in edges), outside=tuple(map(_part, outside)), product=product,
        work=float(f"{work:.6g}"),
    )  # fmt: skip


def _part(each: Moved) -> FormPart:
    whole = each.whole
    return each.shape, each.dtype, 1.0 if each.bytes == whole else float(f"{each.bytes / whole:.9g}") if whole else 0.0


def _product(node: OpNode, operands: Sequence[Moved]) -> Product | None:
    """Where a product's batch, rows and columns lie among the dimensions of its result, and which operands are its sides."""
    depth = node.contracted
    if not depth:
        return None
    sizes = [each.elements for each in operands]
    for out, result in enumerate(node.results):
        whole = math.prod(result.shape)
        for lhs, left in enumerate(sizes):
            for rhs, right in enumerate(sizes):
                batch, rest = divmod(left * right, whole * depth * depth) if whole else (0, 0)
                if lhs == rhs or not batch or rest or left % (batch * depth) or right % (batch * depth):
                    continue
                columns = right // (batch * depth)
                first = _cut(result.shape, batch)
                last = _cut(result.shape[::-1], columns)
                if first is not None and last is not None and first + last <= len(result.shape):
                    return Product(
                        out=out, first=first, last=len(result.shape) - last, contracted=depth, lhs=lhs, rhs=rhs
                    )
    return None


def _cut(shape: Sequence[int], wanted: int) -> int | None:
    """How many dimensions multiply to a number, from the first on."""
    product = 1
    for count, size in enumerate((1, *shape)):
        product *= size
        if product == wanted:
            return count
    return None
