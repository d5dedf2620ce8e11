"""Workload to kernels: dead code dropped, views resolved, ops fused, library ops and collectives kept whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from meshcast.base import UsageError, expect
from meshcast.lower.alike import FusedKernels
from meshcast.lower.convolutions import ConvolutionRewriter
from meshcast.lower.dot_merging import merge_products
from meshcast.lower.fusion import EAGER, GPU, IN_PLACE, TPU, Fusion, Fusions, plan_fusion
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, LoweredProgram, Schedule, Step
from meshcast.lower.layerwise import with_layerwise_weights
from meshcast.lower.layouts import with_laid_out_loops, with_laid_out_operands
from meshcast.lower.libraries import with_libraries
from meshcast.lower.library import clears_first, copy_kernel, memset
from meshcast.lower.liveness import FreeValues, stepped_slices
from meshcast.lower.narrow_operands import with_both_orders
from meshcast.lower.narrow_weights import stored_weights, with_weights_as_stored
from meshcast.lower.nothing import empty_values, without_nothing
from meshcast.lower.ordering import order_for_memory
from meshcast.lower.product_order import with_products_order
from meshcast.lower.products import with_swapped_operands
from meshcast.lower.ragged_products import RaggedProducts, with_masked_groups
from meshcast.lower.recency import with_recency
from meshcast.lower.reductions import is_identity, split_reduction
from meshcast.lower.returned import with_returned_copies
from meshcast.lower.reuse import with_reuse
from meshcast.lower.rewriting import ValueTypes
from meshcast.lower.scatters import scatter_into_addends
from meshcast.lower.scheduled import lower_scheduled
from meshcast.lower.separate_layers import Layers, with_separate_layers
from meshcast.lower.siblings import merge_siblings
from meshcast.lower.sinking import spread_inputs, with_sunk_reads, without_allocations
from meshcast.lower.vector_products import with_summed_vectors
from meshcast.workload import Attention, AttentionLibrary, Block, Op, OpKind, Workload

BACKENDS = ("xla-gpu", "xla-tpu", "none")  # "none": every op a kernel of its own

# Run though nobody reads their results. Collectives are among them: a halo's data has no reader in the graph.
_EFFECTS = frozenset({OpKind.COLLECTIVE, OpKind.HOST})
_LIBRARY = frozenset({OpKind.GEMM, OpKind.CONVOLUTION})


def lower(
    workload: Workload,
    *,
    backend: str = "xla-gpu",
    given: bool = True,
    fusion: Fusion = "compiler",
    attention: AttentionLibrary = "cudnn",
    layers: Layers = "scanned",
    ragged: RaggedProducts = "masked",
) -> LoweredProgram:
    """The kernels one device runs for a workload.

    Args:
        workload: The op graph.
        backend: Whose fusion rules: `xla-gpu`, `xla-tpu`, or `none`.
        given: Keep the kernels of a program that a compiler has scheduled already; False fuses its ops anew.
        fusion: Who fuses on GPUs: the compiler, or an eager framework nothing beyond its own ops.
        attention: Whose fused attention runs on GPUs.
        layers: Whether loops copy into and out of stacked arrays, or each turn has arrays of its own; and whether products
            add to sums of gradients themselves.
        ragged: Whether ragged products on GPUs are dense ones of masked operands, or one grouped kernel.
    """
    expect(workload, Workload, "a meshcast.Workload", where="workload", fix="such as what meshcast.read_workload gives")
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}", fix="one of " + ", ".join(BACKENDS))
    if workload.scheduled and given and backend != "none":
        return lower_scheduled(workload, backend=backend)
    values = ValueTypes(workload.tensors)
    lowering = _Lowering(
        values, fuse=backend != "none", gpu=backend == "xla-gpu", eager=fusion == "eager", masked=ragged == "masked"
    )
    donated = (v for v, a in zip(workload.body.inputs, workload.arguments, strict=False) if a.donated)
    schedule = lowering.block(workload.body, writable=frozenset(donated))
    if backend != "none" and fusion == "compiler":  # an eager framework returns the very tensor
        schedule = with_returned_copies(schedule, workload.arguments, values)
    if backend == "xla-gpu":
        schedule = with_both_orders(schedule, values)
        schedule = with_libraries(schedule, attention=attention, padded=fusion == "compiler")
        if layers != "scanned":
            apart = with_separate_layers(schedule, values.tensors)
            schedule = with_layerwise_weights(apart, values, fused_sums=layers == "accumulating")
    schedule = with_recency(schedule, values.tensors, placed=backend == "xla-tpu")
    if backend == "xla-tpu":
        schedule = with_reuse(schedule, values.tensors)
    return LoweredProgram(workload=workload, backend=backend, schedule=schedule, tensors=tuple(values.tensors))


class _Lowering:
    def __init__(self, values: ValueTypes, *, fuse: bool, gpu: bool, eager: bool, masked: bool) -> None:
        self._values = values
        self._tensors = values.tensors
        self._fuse = fuse
        self._gpu = gpu
        self._eager = gpu and eager  # a framework runs its products one by one
        self._masked = gpu and masked  # ragged products are dense ones of masked operands
        self._rules = (EAGER if eager else GPU) if gpu else TPU
        self._free = FreeValues()
        self._kernels = FusedKernels(values.tensors)
        self._empty = empty_values(values.tensors)
        self._undone = False
        self._looped = False  # inside a loop's body
        self._matrices: dict[int, int] = {}  # a matrix's transpose -> the matrix
        self._transposed: set[int] = set()  # values that are another's transpose and lie in memory as that one
        self._calls: set[int] = set()  # results of attention calls, which come in the order of the call's layout
        self._buffer: dict[int, int] = {}  # a view's value -> the value whose bytes it shows
        self._spread: dict[int, int] = {}  # a broadcast that a loop carries unchanged -> bytes of what it is made of

    def block(self, block: Block, writable: frozenset[int]) -> Schedule:
        """The schedule of one block; `writable` are its inputs that may be overwritten."""
        live = without_nothing(_live_ops(block, self._free), self._empty)
        nested = {value for op in live if op.blocks for inner in op.blocks for value in self._free(inner)}
        kept = nested.union(block.outputs)
        readers: dict[int, list[OpKind]] = {}
        if any(op.cost.kind is OpKind.TRANSPOSE for op in live):  # nobody else asks
            for op in live:
                for value in op.operands:
                    readers.setdefault(value, []).append(op.cost.kind)
        ops: Sequence[Op] = [op for op in live if not self._alias(op, kept, readers)]
        if self._masked:
            ops = with_masked_groups(ops, self._values)
        if self._gpu and not self._eager:
            ops = with_summed_vectors(ops, self._values)
            ops = with_products_order(ops, kept, self._buffer, self._tensors)
        if self._gpu:
            ops = with_laid_out_loops(ops, block, self._values, kept)
            fixed = frozenset() if self._looped else frozenset(block.inputs)
            laid_out = with_laid_out_operands(ops, fixed, self._values, self._buffer, kept)
            ops = self._rewritten(laid_out, kept)
        buffer = self._buffer
        views = buffer.keys()
        operands = [
            op.operands if views.isdisjoint(op.operands) else tuple([buffer.get(value, value) for value in op.operands])
            for op in ops
        ]
        outputs = tuple(buffer.get(value, value) for value in block.outputs)
        live_out = frozenset(outputs) | {buffer.get(value, value) for value in nested}
        fusions: Fusions = (
            plan_fusion(ops, operands, live_out, self._tensors, self._rules)
            if self._fuse
            else {index: [index] for index in range(len(ops))}
        )
        kept_copies = self._overwrites(ops, operands, live_out, writable)
        stepped = stepped_slices(ops, self._tensors) if self._looped else set()
        steps: list[Step] = []
        for root in sorted(fusions):
            if root in kept_copies:
                operands[root] = self._copied(ops[root], operands[root], steps)
            if (step := self._step(root, fusions[root], ops, operands, stepped)) is not None:
                if self._gpu and isinstance(step, Kernel) and clears_first(step):
                    steps.append(memset(step))
                steps.append(step)
        if self._fuse and not self._gpu:
            steps = without_allocations(steps, frozenset(outputs))
        if self._fuse:
            held = frozenset(block.inputs).union(outputs)
            steps = merge_siblings(steps, self._tensors, into_products=not self._gpu, passing_on=not self._eager)
            steps = order_for_memory(steps, self._tensors, held)
        return Schedule(inputs=block.inputs, outputs=outputs, steps=tuple(steps))

    def _alias(self, op: Op, kept: set[int], readers: dict[int, list[OpKind]]) -> bool:
        """True when the op moves nothing: its result is another name for its operand's buffer."""
        kind = op.cost.kind
        if isinstance(op.cost.geometry, Attention):
            self._calls.update(op.results)
        if kind is OpKind.TRANSPOSE and self._fuse:
            # Libraries take either operand layout; anyone else needs the bytes in their new order.
            result = op.results[0]
            if self._undoes_transpose(op):
                self._buffer[result] = self._matrices[op.operands[0]]
                return True
            free = result not in kept and result in readers and _LIBRARY.issuperset(readers[result])
            free = free or (self._gpu and op.operands[0] in self._calls)
            if free and result in self._matrices:
                self._transposed.add(result)
        elif kind is OpKind.REDUCE and self._fuse:
            before, after = self._tensors[op.operands[0]].elements, self._tensors[op.results[0]].elements
            free = is_identity(op, before, after)
        else:
            free = kind is OpKind.VIEW and len(op.results) == 1 and bool(op.operands)
        if free:
            self._buffer[op.results[0]] = self._buffer.get(op.operands[0], op.operands[0])
        return free

    def _undoes_transpose(self, op: Op) -> bool:
        """Whether the operand is a transposed matrix: the result is that matrix again (XLA's algebraic simplifier)."""
        (operand, *_), (result, *_) = op.operands, op.results
        if operand in self._matrices:
            self._undone = True
            return True
        if sum(size > 1 for size in self._tensors[result].shape) == 2:
            self._matrices[result] = self._buffer.get(operand, operand)
        return False

    def _rewritten(self, ops: Sequence[Op], kept: set[int]) -> list[Op]:
        """The ops that XLA:GPU's passes leave, before fusion."""
        convolutions = ConvolutionRewriter(self._values)
        made: list[Op] = []
        added = scatter_into_addends(ops, kept, self._buffer)
        stored = stored_weights(ops, self._tensors, self._buffer)
        for op in added if self._eager else self._merged(added, apart=stored.keys()):
            kind = op.cost.kind
            if kind is OpKind.REDUCE:
                made += split_reduction(op, self._values)
            elif kind is OpKind.CONVOLUTION:
                made += convolutions.rewrite(op)
            elif kind is OpKind.GEMM:
                made.append(with_weights_as_stored(with_swapped_operands(op, self._transposed), stored, self._buffer))
            else:
                convolutions.note(op)
                made.append(op)
        # Only these leave ops without readers: reversed filters, zeros and their scatters, transposes that are undone, and
        # weights that products widen themselves.
        changed = self._undone or stored or any(op.cost.kind in (OpKind.CONVOLUTION, OpKind.SCATTER) for op in ops)
        return _without_unread(made, kept, self._buffer, self._free) if changed else made

    def _merged(self, ops: Sequence[Op], apart: Set[int]) -> Sequence[Op]:
        return merge_products(ops, self._values, self._buffer, self._free.reads, apart=apart)

    def _overwrites(
        self, ops: Sequence[Op], operands: Sequence[tuple[int, ...]], live_out: frozenset[int], writable: frozenset[int]
    ) -> set[int]:
        """Updates that may not happen in place: their target is read later, or is not the block's to overwrite."""
        if not any(op.cost.kind in IN_PLACE for op in ops):
            return set()
        last: dict[int, int] = {}
        owned = set(writable)
        for index, op in enumerate(ops):
            for value in operands[index]:
                last[value] = index
            if op.cost.kind is not OpKind.GENERATE:
                owned.update(op.results)
        return {
            index
            for index, op in enumerate(ops)
            if op.cost.kind in IN_PLACE
            and any(v not in owned or v in live_out or last[v] > index for v in operands[index][: len(op.results)])
        }

    def _copied(self, op: Op, operands: tuple[int, ...], steps: list[Step]) -> tuple[int, ...]:
        """An update's operands with its targets replaced by copies of them, which `steps` make (copy_insertion)."""
        targets: list[int] = []
        for value in operands[: len(op.results)]:
            tensor = self._tensors[value]
            targets.append(self._values.new(tensor.shape, tensor.dtype))
            steps.append(copy_kernel(value, targets[-1], tensor, op.location))
        return (*targets, *operands[len(targets) :])

    def _step(
        self,
        root: int,
        members: list[int],
        ops: Sequence[Op],
        operands: Sequence[tuple[int, ...]],
        stepped: Set[int],
    ) -> Step | None:
        op = ops[root]
        kind = op.cost.kind
        if kind is OpKind.LOOP:
            body = op.blocks[0]
            around, self._looped = self._looped, True
            if self._fuse and not self._gpu:
                self._spread |= spread_inputs(op, operands[root], ops, self._spread)
            schedule = self.block(body, writable=frozenset(body.inputs))
            self._looped = around
            reads = (*operands[root], *self._outside(op))
            return LoopStep(label=op.name, body=schedule, trips=op.trip_count, reads=reads, writes=op.results)
        if kind is OpKind.BRANCH:
            bodies = tuple(self.block(inner, writable=frozenset()) for inner in op.blocks)
            return BranchStep(bodies=bodies, reads=(*operands[root], *self._outside(op)), writes=op.results)
        if kind is OpKind.GENERATE and not op.cost.written_bytes:
            return None  # a constant that is an output or operand lies in memory already
        made = [(ops[index], operands[index]) for index in members]
        kernel = self._kernels.kernel(made, cold=not stepped.isdisjoint(members))
        return with_sunk_reads(kernel, self._spread)

    def _outside(self, op: Op) -> list[int]:
        """Values that an op's bodies read from outside, each once."""
        free = {self._buffer.get(value, value) for inner in op.blocks for value in self._free(inner)}
        return sorted(free)


def _live_ops(block: Block, free: Callable[[Block], set[int]]) -> list[Op]:
    """Ops that lead to an output or have an effect, in order."""
    needed = set(block.outputs)
    live: list[Op] = []
    for op in reversed(block.ops):
        if op.results and needed.isdisjoint(op.results) and not _has_effect(op):
            continue
        live.append(op)
        needed.update(op.operands)
        for inner in op.blocks:
            needed.update(free(inner))
    live.reverse()
    return live


def _without_unread(
    ops: Sequence[Op], kept: set[int], buffer: Mapping[int, int], free: Callable[[Block], set[int]]
) -> list[Op]:
    """The same ops less those that only a rewritten op read."""
    needed = {buffer.get(value, value) for value in kept} | kept
    live: list[Op] = []
    for op in reversed(ops):
        if op.results and needed.isdisjoint(op.results) and not _has_effect(op):
            continue
        live.append(op)
        needed.update(buffer.get(value, value) for value in op.operands)
        for inner in op.blocks:
            needed.update(buffer.get(value, value) for value in free(inner))
    live.reverse()
    return live


def _has_effect(op: Op) -> bool:
    return op.cost.kind in _EFFECTS or any(_has_effect(inner) for block in op.blocks for inner in block.ops)
