"""Sizes of a grown graph: every dimension of what it is like gets a size of its own, and all else follows from shapes.

Dimensions that are equal in the graph that it is like stay equal, and one that is the product of two which lie beside each other
in a tensor (heads and their size, sequences and their length) stays their product:

    d' = d 2^(x + s z_d),  z_d normal and of that dimension alone;  (a b)' = a' b'

in multiples of 8 where d is one (what products on tensor cores want), with `x` octaves that a condition asks for and `s` such
that tensors of two dimensions spread as graphs of a family do. Nodes are sized in order. What a node takes of a parent is the
parent's result, whole or the part of it that its form moves; bytes are the sums over tensors, operations those of the form an
element. A product whose parent is smaller than its form expects sums over less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshcast.traces.synthetic.forms import Form, FormPart, Product
from meshcast.traces.synthetic.graphs import GroupDims, Moved, OpGraph, OpNode, tensor_bytes
from meshcast.traces.synthetic.validity import MOST_BESIDE
from meshcast.workload import DTYPE_BITS

FIXED = 4  # dimensions up to this stay: windows, real and imaginary parts, one of something
ALIGNED = 8
LARGE_DIMENSIONS = 2  # that most tensors have


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownNode:
    """A node without sizes: its form, and which parent gives what (-1: something that its form has no place for)."""

    form: Form
    group: int
    repeat: int
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """A grown graph without sizes.

    Attributes:
        spread: Octaves that the sizes of graphs like it are apart; `seed` of what is drawn of that.
        state: Of the graph that it is like.
    """

    name: str
    model: str
    family: str
    ranks: int
    groups: tuple[GroupDims, ...]
    nodes: tuple[GrownNode, ...]
    forms: tuple[Form, ...]
    spread: float
    seed: int
    state: int

    def sized(self, octaves: float = 0.0, *, turns: float = 1.0) -> OpGraph:
        """The graph with sizes.

        Args:
            octaves: That every dimension is larger by.
            turns: How often a step goes through it; of a fraction some nodes run once more than others, and below 1 loops have
                fewer turns.
        """
        dimension = Dimensions(
            self.forms, spread=self.spread / math.sqrt(LARGE_DIMENSIONS), octaves=octaves, seed=self.seed
        )
        noise = self.spread * float(np.random.default_rng((self.seed, 2)).standard_normal())
        scale = 2.0 ** (noise + LARGE_DIMENSIONS * octaves)
        made: list[OpNode] = []
        left = 0.0  # of launches, which are whole
        for each in self.nodes:
            node = _plain(each, scale) if each.form.plain is not None else _Sized(self, each, made, dimension).node()
            repeat = max(1, math.floor(each.repeat * turns + left + 1e-9))
            left = max(0.0, left + each.repeat * turns - repeat)
            made.append(replace(node, repeat=repeat))
        was = sum(each.form.moved for each in self.nodes)
        grown = sum(node.bytes for node in made) / was if was else 1.0
        return OpGraph(
            name=self.name, model=self.model, family=self.family, ranks=self.ranks, groups=self.groups, nodes=tuple(made),
            state=round(self.state * grown),
        )  # fmt: skip


class Dimensions:
    """New sizes of dimensions."""

    def __init__(self, forms: Iterable[Form], *, spread: float, octaves: float, seed: int) -> None:
        self._spread, self._octaves, self._seed = spread, octaves, seed
        self._known: dict[int, int] = {}
        self._parts: dict[int, tuple[int, int]] = {}
        for form in forms:
            for shape, _, _ in form.results:
                for one, other in itertools.pairwise(shape):
                    if min(one, other) > 1:
                        self._parts.setdefault(one * other, (one, other))

    def __call__(self, size: int) -> int:
        """The size of what was so large."""
        if size <= FIXED and self._octaves >= 0:
            return size
        found = self._known.get(size)
        if found is None:
            parts = self._parts.get(size)
            found = self(parts[0]) * self(parts[1]) if parts else self._drawn(size)
            self._known[size] = found
        return found

    def _drawn(self, size: int) -> int:
        away = 0.0
        if size > FIXED:
            away = self._spread * float(np.random.default_rng((self._seed, 3, size)).standard_normal())
        wanted: float = size * 2.0 ** (self._octaves + away)
        if wanted <= 1:
            return 1
        step = min(ALIGNED, size & -size, 1 << int(math.log2(wanted)))
        return max(step, round(wanted / step) * step)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A whole shape."""
        return tuple(map(self, shape))


def _plain(each: GrownNode, scale: float) -> OpNode:
    assert each.form.plain is not None
    moved, written, flops = each.form.plain
    size, work = max(1, round(moved * scale)), float(round(flops * scale))
    return OpNode(
        kind=each.form.kind, dtype=each.form.dtype, group=each.group, bytes=size, matrix=each.form.matrix,
        flops=max(1.0, work) if each.form.matrix else work, written=round(size * written / moved),
        parents=_parents(each),
    )  # fmt: skip


def _parents(each: GrownNode) -> tuple[int, ...]:
    return tuple(sorted({parent for parent, _ in each.edges}))


class _Sized:
    """One node on its way to sizes."""

    def __init__(self, graph: Skeleton, each: GrownNode, made: Sequence[OpNode], dimension: Dimensions) -> None:
        self._graph, self._each, self._made, self._dimension = graph, each, made, dimension
        self._form = each.form
        # Operands by their place in the form, as far as there is one; others behind.
        self._placed: dict[int, Moved] = {}
        self._more: list[Moved] = []

    def node(self) -> OpNode:
        """The node with sizes."""
        form, each = self._form, self._each
        self._take()
        results = [self._whole(part) for part in form.results]
        contracted = 0
        if each.group >= 0:
            results = self._exchanged()
        elif form.product is not None:
            contracted = self._multiply(form.product, results[form.product.out].shape)
        operands = (*(self._placed[place] for place in sorted(self._placed)), *self._more)
        read, written = (sum(one.bytes for one in row) for row in (operands, results))
        if each.group >= 0:
            flops = 0.0
        elif contracted and form.product is not None:
            # What is computed beside the product is of its elements, however many are summed over.
            beside = min(MOST_BESIDE, max(0.0, form.work - 2.0) * form.product.contracted)
            flops = float(round(math.prod(results[form.product.out].shape) * (2.0 * contracted + beside)))
        else:
            flops = float(round(form.work * max((one.elements for one in (*operands, *results)), default=0)))
        return OpNode(
            kind=form.kind, dtype=form.dtype, group=each.group, flops=flops, written=written, contracted=contracted,
            bytes=max(1, read if each.group >= 0 else read + written), matrix=form.matrix and flops > 0,
            parents=_parents(each), operands=operands, results=tuple(results),
        )  # fmt: skip

    def _whole(self, part: FormPart, parent: int = -1) -> Moved:
        shape, dtype, share = part
        sizes = self._dimension.shape(shape)
        return Moved(shape=sizes, dtype=dtype, bytes=_share(sizes, dtype, share), parent=parent)

    def _take(self) -> None:
        """Operands: of parents what they made, else from outside."""
        place = 0
        given = {number: parent for parent, number in self._each.edges if number >= 0}
        for number, edge in enumerate(self._form.edges):
            for part in edge:
                parent = given.get(number)
                if parent is None:
                    self._placed[place] = self._whole(part)
                else:
                    self._from(parent, part, place)
                place += 1
        for part in self._form.outside:
            self._placed[place] = self._whole(part)
            place += 1
        for parent, number in self._each.edges:
            made = self._made[parent].results
            if number < 0 and made:
                self._more.append(replace(made[0], bytes=made[0].whole, parent=parent))

    def _from(self, parent: int, part: FormPart, place: int) -> None:
        """What a parent made of what is expected; another of its results where it makes no such, and the rest from outside."""
        made = self._made[parent].results
        wanted = self._whole(part)
        same = [each for each in made if (each.shape, each.dtype) == (wanted.shape, wanted.dtype)]
        if same:
            self._placed[place] = replace(wanted, parent=parent)
            return
        if not made:
            self._placed[place] = wanted
            return
        found = min(made, key=lambda each: abs(math.log((each.whole + 1) / (wanted.bytes + 1))))
        elements = max(1, wanted.bytes * 8 // max(1, DTYPE_BITS[found.dtype]))
        size = min(found.whole, tensor_bytes((elements,), found.dtype))
        taken = replace(found, bytes=size, parent=parent)
        if 2 * size < wanted.bytes:  # most of what it works on is not there
            self._placed[place] = wanted
            self._more.append(taken)
        else:
            self._placed[place] = taken

    def _multiply(self, product: Product, out: tuple[int, ...]) -> int:
        """Makes both sides of a product fit its result; how many elements are summed over."""
        batch, rows, columns = (
            math.prod(out[: product.first]), math.prod(out[product.first : product.last]), math.prod(out[product.last :]),
        )  # fmt: skip
        depth = self._dimension(product.contracted)
        sides = ((product.lhs, (batch, rows), True), (product.rhs, (batch, columns), False))
        for place, (count, length), _ in sides:
            operand = self._placed[place]
            if operand.parent < 0:
                continue
            most = math.prod(operand.shape) // max(1, count * length)
            if most < 1:  # it is too small for a side: something beside the product, such as a bias
                self._more.append(operand)
                self._placed[place] = replace(operand, parent=-1)
            else:
                depth = min(depth, most)
        for place, (count, length), is_left in sides:
            operand = self._placed[place]
            if operand.parent < 0:
                shape: tuple[int, ...] = (count, length, depth) if is_left else (count, depth, length)
                shape = shape if count > 1 else shape[1:]
                self._placed[place] = replace(operand, shape=shape, bytes=tensor_bytes(shape, operand.dtype))
            else:
                size = tensor_bytes((count, length, depth), operand.dtype)
                self._placed[place] = replace(operand, bytes=size)
        return depth

    def _exchanged(self) -> list[Moved]:
        """What comes out of a collective, of each tensor that goes in."""
        ranks = math.prod(size for size, _ in self._graph.groups[self._each.group])
        change: Callable[[int], int] = {
            "all_gather": lambda size: size * ranks, "reduce_scatter": lambda size: -(-size // ranks),
        }.get(self._form.kind, lambda size: size)  # fmt: skip
        found = []
        for each in (*self._placed.values(), *self._more):
            shape = each.shape if each.bytes == each.whole else (each.elements,)
            if self._form.kind in ("all_gather", "reduce_scatter"):
                at = next((place for place, size in enumerate(shape) if size and size % ranks == 0), None)
                if at is None:  # as one row, padded where that is needed
                    at, shape = 0, (math.prod(shape),)
                shape = (*shape[:at], change(shape[at]), *shape[at + 1 :])
            found.append(Moved(shape=shape, dtype=each.dtype, bytes=tensor_bytes(shape, each.dtype)))
        return found


def _share(shape: Sequence[int], dtype: str, share: float) -> int:
    whole = tensor_bytes(shape, dtype)
    return whole if share >= 1 else min(whole, tensor_bytes((round(math.prod(shape) * share),), dtype))
