"""Fusion as an XLA-like compiler does it, in one backward sweep over a block.

Every op that can fuse is given the set of fusions that consume it. One consumer: it joins that fusion. Several: it is
computed again in each of them, or becomes a fusion of its own. On GPUs XLA's cost model decides (`cost_model`), elsewhere
bytes do: `n * in < in + out + n * out`, where `in` is what it takes to have the operands: their own bytes, or what they can be
computed from on the fly where that is less (a bf16 tensor behind its f32 conversion). A fusion has one root, and it reads only
what comes before that root in program order, so none can depend on itself.

A reduction joins the fusion of its readers where it closes a diamond with them (`diamonds`: softmax, layer norm; XLA's Triton
normalisation fusions) and its rows are short enough to stay on chip, where such a kernel takes it in (`row_programs`), or where
they are functions of its result alone. A row fusion takes no dynamic slices, gathers and concatenations in, as Triton cannot
index by them: those are copied first. Any other reduction is its kernel's root. A matrix product takes plain arithmetic on its
result in (`lower.products.matrix_products`).

A framework that runs op by op (`EAGER`) has one kernel for each of its ops, which take one or two tensors: what is made
of a single tensor (GELU, softmax, a norm) is one kernel, and what would read a third tensor of full size is another.

XLA:TPU fuses by other rules: a product or convolution computes what leads to its operands on the way in and whatever is
done with its result on the way out, and a reduction is always the root of its kernel, as is a gather.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from meshcast.lower.fusion.coalescing import spoiled_reads
from meshcast.lower.fusion.growing_fusions import Growing, Predicate, is_indexable
from meshcast.lower.fusion.normalisation_diamonds import diamonds
from meshcast.lower.fusion.priority_queue import kept_ops
from meshcast.lower.fusion.row_programs import is_tiled
from meshcast.lower.fusion.row_statistics import MAX_ROW, HowReduced, reduction_of, row_statistics
from meshcast.lower.fusion.rules import FUSIBLE_PRODUCERS, GPU, IN_PLACE, PRODUCTS, Rules
from meshcast.lower.graph.constants import known_values
from meshcast.lower.layouts.transposes import turns
from meshcast.lower.products.matrix_products import complicated_values, epilogue_fits
from meshcast.lower.value_types import KERNELS_OF_THEIR_OWN, PREFIX_WINDOW
from meshcast.workload import Op, OpKind, Reduction, Tensor

# Times that a slow function's result may be computed again, in elements of the fusion per element of the result.
MAX_REPEATED = 16

_CALLED = "lu_pivots_to_permutation"  # a call, though it is no library's
# XLA makes a window and a scatter of it, both of which read the operand.
_EXPANDED = "select_and_scatter"
_NOBODY: frozenset[int] = frozenset()
_FULL, _LARGE, _COMPLICATED = range(3)  # what is asked about values that a fusion reads from outside

Asked = dict[int, tuple[frozenset[int], int]]  # by root, see `_Sweep._asked`
Fusions = dict[int, list[int]]  # root -> members in program order, the root last


def plan_fusion(
    ops: Sequence[Op],
    operands: Sequence[tuple[int, ...]],
    live_out: frozenset[int],
    tensors: Sequence[Tensor],
    rules: Rules = GPU,
) -> Fusions:
    """The fusions of a block, by their roots.

    Args:
        ops: The block's live ops, in order.
        operands: Their operands, with views resolved to the values whose bytes they show.
        live_out: Values that must be in memory after the block, or that nested blocks read.
        tensors: Types of all values.
        rules: The backend's.
    """
    sweep = _Sweep(ops, operands, live_out, tensors, rules)
    fusions: Fusions = {}
    for index in range(len(ops) - 1, -1, -1):
        for root in sweep.owners(index):
            fusions.setdefault(root, []).append(index)
    for members in fusions.values():
        members.reverse()
    return fusions


class _Sweep:
    def __init__(
        self,
        ops: Sequence[Op],
        operands: Sequence[tuple[int, ...]],
        live_out: frozenset[int],
        tensors: Sequence[Tensor],
        rules: Rules,
    ) -> None:
        self._ops = ops
        self._rules = rules
        self._joining = (FUSIBLE_PRODUCERS | rules.joining) - rules.alone
        self._limited = bool(rules.tensors)  # whether kernels may read so many tensors only
        self._operands = operands
        self._tensors = tensors
        self._pinned = set(live_out)  # values that must be in memory
        self._readers: dict[int, list[int]] = {}
        self._sources: dict[int, int] = {}  # value -> bytes it can be had for, where that is less than its own
        self._kinds = kinds = [op.cost.kind for op in ops]
        self._roots = [_NOBODY] * len(ops)  # of the fusions that compute each op, once it has been asked about
        self._reductions: dict[int, HowReduced] = {}  # root -> how the reductions inside its fusion reduce
        self._growing: dict[int, Growing] = {}  # root -> what has joined it so far
        self._products: set[int] = set()  # roots that hold a matrix product
        self._known = known_values(ops, operands, tensors)
        self._diamonds = diamonds(ops, operands, live_out, self._known.splats, tensors) if rules.timed else {}
        self._closed = frozenset(self._diamonds.values())
        rows = OpKind.REDUCE in rules.joining and OpKind.REDUCE in kinds and not rules.timed
        self._rows = row_statistics(ops, operands, tensors) if rows else {}
        self._has_windows = OpKind.WINDOW in kinds
        producers: list[int] = []  # places of those that readers may compute
        windows = rules.joining & {OpKind.WINDOW}
        readers, pinned, sources = self._readers, self._pinned, self._sources
        for index, (op, kind, read) in enumerate(zip(ops, kinds, operands, strict=True)):
            expanded = kind is OpKind.WINDOW and op.name.endswith(_EXPANDED)
            if (kind in FUSIBLE_PRODUCERS or (kind in windows and not expanded)) and len(op.results) == 1:
                cost = op.cost
                total = 0
                for value, size in zip(read, cost.operand_bytes, strict=False):
                    least = sources.get(value, size)
                    total += least if least < size else size
                producers.append(index)
                sources[op.results[0]] = total if total < cost.written_bytes else cost.written_bytes
            if op.name in KERNELS_OF_THEIR_OWN:
                pinned.update(op.results)
            if op.name.endswith(_CALLED):
                pinned.update((*read, *op.results))
            if kind in PRODUCTS:
                self._products.add(index)
            if kind not in rules.consumers or expanded:
                pinned.update(read)
                continue
            if kind in IN_PLACE:
                pinned.update(read[: len(op.results)])
            for value in read:
                if value in readers:
                    readers[value].append(index)
                else:
                    readers[value] = [index]

        self._inside: Set[int] = frozenset()  # of those that may be computed inside their readers, which are
        self._kept = self._kept_ops(producers) if rules.timed else frozenset()
        self._producers = frozenset(producers)
        self._complicated: set[int] = set()
        if OpKind.GEMM in kinds and rules.plain_epilogues:
            producing = [kind in FUSIBLE_PRODUCERS for kind in self._kinds]
            self._complicated = complicated_values(self._ops, producing, self._operands, self._pinned)

    def owners(self, index: int) -> frozenset[int]:
        """Roots of the fusions that compute an op; its readers have been asked before."""
        op, kind = self._ops[index], self._kinds[index]
        if kind in self._joining and self._pinned.isdisjoint(op.results) and (users := self._users(op)):
            owners = self._roots[users[0]]
            if len(users) > 1:
                asking = {id(roots): roots for roots in map(self._roots.__getitem__, users)}
                owners = owners if len(asking) == 1 else frozenset().union(*asking.values())
            asked: Asked = {}
            if self._fuses(index, users, owners, asked) and (not self._limited or self._have_room(owners, index)):
                self._roots[index] = owners
                self._join(index, users, owners, asked)
                return owners
        own = self._roots[index] = frozenset((index,))
        return own

    def _join(self, index: int, users: Sequence[int], owners: frozenset[int], asked: Asked) -> None:
        """An op is computed by fusions from now on."""
        op, operands, growing = self._ops[index], self._operands[index], self._growing
        if self._rules.timed:
            for root in owners:
                (growing.get(root) or self._fusion(root)).add(op, operands)
            return
        kind = self._kinds[index]
        asks = bool(operands) and kind in self._rules.consumers  # else nothing that it reads will ask
        elsewhere = kind is not OpKind.ELEMENTWISE  # each operand at a place of its own, where it moves elements
        own = frozenset((index,)) if asks and elsewhere else _NOBODY
        for root in owners:
            fusion = growing.get(root) or self._fusion(root)
            fusion.add(op, operands)
            if asks:
                found = asked.get(root) or self._asked(users, root, fusion)
                fusion.asking[index] = (own, found[1]) if elsewhere else found

    def _users(self, op: Op) -> Sequence[int]:
        """The ops that read an op's results, as often as they do."""
        if len(op.results) == 1:
            return self._readers.get(op.results[0], ())
        return [user for value in op.results for user in self._readers.get(value, ())]

    def _have_room(self, owners: frozenset[int], index: int) -> bool:
        """Whether fusions that also compute this op read no more tensors of full size than a kernel may."""
        most, op, operands = self._rules.tensors, self._ops[index], self._operands[index]
        return all(self._fusion(root).outside(_FULL, self._is_full(root), op, operands) <= most for root in owners)

    def _is_full(self, root: int) -> Predicate:
        """Whether a value is as large as what a fusion runs over; one broadcast from a small one is computed on the way in."""
        space = self._space(root)
        return lambda value: self._least_elements(value) * 2 > space

    def _fusion(self, root: int) -> Growing:
        """What has joined a root so far."""
        found = self._growing.get(root)
        if found is None:
            op, operands, space = self._ops[root], self._operands[root], self._space_of(root)
            found = self._growing[root] = Growing(op, operands, space)
            found.asking[root] = self._roots[root], 1
        return found

    def _least_elements(self, value: int) -> int:
        tensor = self._tensors[value]
        source = self._sources.get(value, tensor.bytes)
        return tensor.elements * source // tensor.bytes if tensor.bytes else 0

    def _fuses(
        self, index: int, users: Sequence[int], owners: frozenset[int], asked: Asked
    ) -> bool:  # fmt: skip
        """Whether an op is computed inside its readers; `asked` is given what was worked out of `_asked` for that."""
        op, kind = self._ops[index], self._kinds[index]
        arithmetic = kind is OpKind.ELEMENTWISE
        if index in self._closed:
            return index in self._inside
        if kind is OpKind.REDUCE and (index in self._inside or (index in self._diamonds and len(owners) > 1)):
            return self._spread(index, owners)
        if kind is OpKind.REDUCE:
            return len(owners) == 1 and self._takes_reduction(next(iter(owners)), index)
        if kind in PRODUCTS:
            return len(owners) == 1 and self._takes_product(next(iter(owners)), index)
        if kind is OpKind.GENERATE or (arithmetic and op.results[0] in self._known.constants):
            return True
        if self._stands_apart(index, users, len(set(users)) if self._rules.timed else len(owners)):
            return False
        if not arithmetic and not is_indexable(op) and not self._reductions.keys().isdisjoint(owners):
            return False
        if self._rules.timed:
            return index in self._producers and index not in self._kept  # not one of several results
        if op.cost.transcendentals and not self._may_repeat(op, owners):
            return False
        if op.cost.transcendentals and len(owners) > 1 and not self._may_repeat_function(index, owners):
            return False
        times = 0
        for root in owners:
            found = asked[root] = self._asked(users, root, self._fusion(root))
            times += found[1]
        return times == 1 or self._worth_repeating(index, times)

    def _is_read_by(self, users: Sequence[int], kind: OpKind) -> bool:
        kinds = self._kinds
        return any([kinds[user] is kind for user in users])

    def _asked(self, users: Sequence[int], root: int, fusion: Growing) -> tuple[frozenset[int], int]:
        """Which ops of a fusion ask for an op's elements at places of their own, and how often it is computed for that.

        Arithmetic asks for its operands where it is asked itself; whatever moves elements (slices, pads, transposes)
        asks elsewhere, and as often as it is asked. XLA counts so, too (its FusionNodeIndexingEvaluation). A row fusion
        has the whole row at hand.
        """
        if root in self._reductions:
            return self._roots[root], 1
        asking = fusion.asking
        if len(users) == 1:
            return asking[users[0]]
        asked = [asking[user] for user in users if user in asking]
        places = asked[0][0]
        if all([found[0] == places for found in asked]):
            return asked[0]
        places = places.union(*[found[0] for found in asked])
        return places, sum([asking[place][1] for place in places])

    def _kept_ops(self, producers: Sequence[int]) -> Set[int]:
        """Places of those, of the ops that readers may compute, that XLA's cost model keeps out of them (`priority_queue`)."""
        fusible = [
            index
            for index in producers
            if self._kinds[index] is not OpKind.GENERATE
            and (result := self._ops[index].results[0]) not in self._known.constants
            and result not in self._pinned
            and (users := self._readers.get(result))
            and not self._stands_apart(index, users, len(set(users)))
        ]
        if self._diamonds:  # else there are no programs for rows, which alone take reductions in
            fusible += [index for index, op in enumerate(self._ops) if self._is_read_reduction(index, op)]
        kept = kept_ops(
            self._ops, self._operands, fusible, self._readers, self._known, self._diamonds,
            spoiled_reads(self._ops, self._operands, self._tensors), self._tensors, self._least_elements,
        )  # fmt: skip
        self._inside = set(fusible) - kept
        return kept

    def _is_read_reduction(self, index: int, op: Op) -> bool:
        """Whether an op is a reduction of rows, which others in the block read and nobody else."""
        if self._kinds[index] is not OpKind.REDUCE or len(op.results) != 1 or op.results[0] in self._pinned:
            return False
        return bool(self._readers.get(op.results[0])) and is_tiled(op, self._tensors)

    def _spread(self, index: int, owners: frozenset[int]) -> bool:
        """A reduction is computed inside programs for rows."""
        reduction = reduction_of(self._ops[index], self._tensors)
        if reduction is not None:
            self._reductions.update(dict.fromkeys(owners, reduction))
        return reduction is not None

    def _stands_apart(self, index: int, users: Sequence[int], count: int) -> bool:
        """Whether an op that so many would compute is written down for them, whatever it takes."""
        op = self._ops[index]
        if (
            self._kinds[index] is OpKind.TRANSPOSE
            and self._is_read_by(users, OpKind.REDUCE)
            and turns(op, self._tensors)
        ):
            return True  # a reduction wants its rows in order
        # A window asks several times for each element, and others do besides.
        windows = self._has_windows and count > 1 and bool(op.cost.written_bytes)
        return windows and any(
            [self._kinds[user] is OpKind.WINDOW and self._ops[user].name != PREFIX_WINDOW for user in users]
        )

    def _may_repeat(self, op: Op, owners: frozenset[int]) -> bool:
        """Whether a slow function may be computed inside its readers: not far more often than once per result."""
        elements = self._tensors[op.results[0]].elements
        for root in owners:
            space = self._space(root)
            if space > MAX_REPEATED * elements and self._rows.get(op.results[0]) != space:
                return False
        return True

    def _may_repeat_function(self, index: int, owners: frozenset[int]) -> bool:
        """Whether a slow function may be computed inside several readers."""
        op = self._ops[index]
        read, written = self._input_bytes(self._operands[index], op), sum(self._tensors[v].bytes for v in op.results)
        return self._rules.repeats(read, written, frozenset(self._kinds[owner] for owner in owners))

    def _space(self, root: int) -> int:
        """Elements a fusion runs over."""
        return self._fusion(root).space

    def _space_of(self, root: int) -> int:
        op = self._ops[root]
        if op.cost.kind is OpKind.REDUCE and isinstance(op.cost.geometry, Reduction):
            return math.prod(op.cost.geometry.shape)
        if op.cost.kind in IN_PLACE:
            return op.cost.written_bytes and max(self._tensors[v].elements for v in self._operands[root][1:2])
        return max([self._tensors[value].elements for value in op.results], default=0)

    def _takes_product(self, root: int, index: int) -> bool:
        """Whether the fusion of `root` can be the epilogue of this matrix product."""
        if root in self._products or root in self._reductions:
            return False
        if not self._rules.plain_epilogues:
            if self._space(root) != self._tensors[self._ops[index].results[0]].elements:
                return False
            self._products.add(root)
            return True
        product, fusion, result = self._ops[index], self._fusion(root), self._ops[root].results
        if not fusion.is_plain:
            return False
        if self._complicated and fusion.outside(_COMPLICATED, self._complicated.__contains__, product):
            return False
        elements = self._tensors[result[0]].elements if result else 0
        tensors = self._tensors
        large = fusion.outside(_LARGE, lambda value: tensors[value].elements >= elements, product)
        if not epilogue_fits(product, self._ops[root], large, self._tensors):
            return False
        self._products.add(root)
        return True

    def _worth_repeating(self, index: int, times: int) -> bool:
        op = self._ops[index]
        read = self._input_bytes(self._operands[index], op)
        written = sum(self._tensors[value].bytes for value in op.results)
        return times * read < read + written + times * written

    def _input_bytes(self, operands: tuple[int, ...], op: Op) -> int:
        sources, read = self._sources, 0
        for value, moved in zip(operands, op.cost.operand_bytes, strict=False):
            read += min(moved, sources.get(value, moved))
        return read

    def _takes_reduction(self, root: int, index: int) -> bool:
        """Whether the fusion of `root` can hold this reduction beside those it has: all must reduce alike."""
        op = self._ops[index]
        reduction = reduction_of(op, self._tensors)
        if reduction is None or not self._ops[root].results or root in self._products:
            return False
        held = self._reductions.get(root) or reduction_of(self._ops[root], self._tensors)
        if held is not None and held != reduction:
            return False
        before, after, innermost = reduction
        space = self._space(root)
        if space == after:
            taken = self._fusion(root).is_unary
        else:
            closed = not self._rules.timed or index in self._diamonds
            taken = space == before and closed and innermost and before <= MAX_ROW * after
        if taken:
            self._reductions[root] = reduction
        return taken
