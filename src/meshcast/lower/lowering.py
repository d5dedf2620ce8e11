"""Workload to kernels: dead code dropped, views resolved, ops fused, library ops and collectives kept whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshcast.errors import UsageError
from meshcast.lower.fusion import FusionPlan, plan_fusion
from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, LoweredProgram, Schedule, Step
from meshcast.workload.graph import Attention, Block, Op, OpKind, Tensor
from meshcast.workload.workload import Workload

BACKENDS = ("xla-gpu", "xla-tpu", "none")  # "none": every op a kernel of its own

_KERNEL_KINDS = {
    OpKind.GEMM: KernelKind.GEMM,
    OpKind.CONVOLUTION: KernelKind.CONVOLUTION,
    OpKind.REDUCE: KernelKind.REDUCTION,
    OpKind.SCAN: KernelKind.REDUCTION,
    OpKind.TRANSPOSE: KernelKind.TRANSPOSE,
    OpKind.GATHER: KernelKind.GATHER,
    OpKind.SCATTER: KernelKind.SCATTER,
    OpKind.SORT: KernelKind.SORT,
    OpKind.WINDOW: KernelKind.OTHER,
    OpKind.FFT: KernelKind.OTHER,
    OpKind.LINALG: KernelKind.OTHER,
    OpKind.HOST: KernelKind.OTHER,
    OpKind.CUSTOM: KernelKind.CUSTOM,
    OpKind.COLLECTIVE: KernelKind.COLLECTIVE,
}
_SIDE_EFFECTS = frozenset({OpKind.COLLECTIVE, OpKind.HOST, OpKind.CUSTOM, OpKind.LOOP, OpKind.BRANCH})


def lower(workload: Workload, *, backend: str = "xla-gpu") -> LoweredProgram:
    """The kernels one device runs for a workload."""
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}", fix="one of " + ", ".join(BACKENDS))
    lowering = _Lowering(workload.tensors, fuse=backend != "none")
    schedule = lowering.block(workload.body, keep=frozenset(workload.body.outputs))
    return LoweredProgram(workload=workload, backend=backend, schedule=schedule, tensors=workload.tensors)


class _Lowering:
    def __init__(self, tensors: tuple[Tensor, ...], *, fuse: bool) -> None:
        self._tensors = tensors
        self._fuse = fuse
        self._buffer: dict[int, int] = {}  # a view's value -> the value whose bytes it shows

    def block(self, block: Block, keep: frozenset[int]) -> Schedule:
        """The schedule of one block; `keep` are values read after it."""
        ops = self._live(block, keep)
        readers: dict[int, set[OpKind]] = {}
        for op in ops:
            for value in op.operands:
                readers.setdefault(value, set()).add(op.cost.kind)
        ops = [self._resolved(op) for op in ops if not self._alias(op, readers.get(op.results[0], set()) if op.results else set())]
        outputs = tuple(self._resolve(value) for value in block.outputs)
        nested = {self._resolve(v) for op in ops for inner in op.blocks for v in free_values(inner)}
        live_out = frozenset(outputs) | frozenset(self._resolve(v) for v in keep) | nested
        plan = plan_fusion(ops, live_out, self._tensors, enabled=self._fuse)
        steps = tuple(self._steps(ops, plan))
        return Schedule(inputs=block.inputs, outputs=outputs, steps=steps)

    def _live(self, block: Block, keep: frozenset[int]) -> list[Op]:
        needed = set(keep) | set(block.outputs)
        live: list[Op] = []
        for op in reversed(block.ops):
            if op.cost.kind not in _SIDE_EFFECTS and not any(value in needed for value in op.results):
                continue
            if op.cost.kind is OpKind.CUSTOM and op.results and not any(value in needed for value in op.results):
                continue
            live.append(op)
            needed.update(op.operands)
            for inner in op.blocks:
                needed.update(free_values(inner))
        return live[::-1]

    def _alias(self, op: Op, readers: set[OpKind]) -> bool:
        """True when the op moves nothing: its result is another name for its operand's buffer."""
        if op.cost.kind is OpKind.VIEW and op.operands and len(op.results) == 1:
            self._buffer[op.results[0]] = self._resolve(op.operands[0])
            return True
        if op.cost.kind is OpKind.TRANSPOSE and self._fuse:
            if readers and readers <= {OpKind.GEMM, OpKind.CONVOLUTION}:
                self._buffer[op.results[0]] = self._resolve(op.operands[0])  # libraries take either operand layout
                return True
        return False

    def _resolve(self, value: int) -> int:
        return self._buffer.get(value, value)

    def _resolved(self, op: Op) -> Op:
        operands = tuple(self._resolve(value) for value in op.operands)
        if operands == op.operands:
            return op
        return Op(
            name=op.name, cost=op.cost, operands=operands, results=op.results, blocks=op.blocks, trip_count=op.trip_count,
            location=op.location, recomputed=op.recomputed,
        )  # fmt: skip

    def _steps(self, ops: Sequence[Op], plan: FusionPlan) -> Iterable[Step]:
        members: dict[int, list[int]] = {}
        for index, owners in enumerate(plan.roots):
            for root in owners:
                members.setdefault(root, []).append(index)
        for root in sorted(members):
            op = ops[root]
            if op.cost.kind is OpKind.LOOP:
                yield self._loop(op)
            elif op.cost.kind is OpKind.BRANCH:
                bodies = tuple(self.block(inner, frozenset(inner.outputs)) for inner in op.blocks)
                yield BranchStep(bodies=bodies, reads=op.operands, writes=op.results)
            elif op.cost.kind is OpKind.GENERATE and not op.cost.written_bytes:
                continue  # a constant that is an output or operand lies in memory already
            else:
                yield self._kernel([ops[index] for index in members[root]])

    def _loop(self, op: Op) -> LoopStep:
        body = op.blocks[0]
        schedule = self.block(body, frozenset(body.outputs))
        reads = (*op.operands, *(self._resolve(v) for v in sorted(free_values(body))))
        return LoopStep(label=op.name, body=schedule, trips=op.trip_count, reads=reads, writes=op.results)

    def _kernel(self, members: Sequence[Op]) -> Kernel:
        """One kernel of ops computed together; the last one is its root."""
        root = members[-1]
        inside = {value for op in members for value in op.results}
        read: dict[int, int] = {}
        for op in members:
            for value, moved in zip(op.operands, op.cost.operand_bytes, strict=False):
                if value not in inside:
                    read[value] = min(read.get(value, 0) + moved, self._tensors[value].bytes)
        for op in members:  # operands a rule gave no bytes for are still dependencies
            for value in op.operands:
                if value not in inside:
                    read.setdefault(value, 0)
        kind = _KERNEL_KINDS.get(root.cost.kind, KernelKind.LOOP_FUSION)
        if isinstance(root.cost.geometry, Attention):
            kind = KernelKind.ATTENTION
        if kind in (KernelKind.TRANSPOSE, KernelKind.GATHER) and len(members) > 1:
            kind = KernelKind.LOOP_FUSION
        written = root.cost.written_bytes
        if root.cost.kind in (OpKind.ELEMENTWISE, OpKind.BROADCAST):
            written = sum(self._tensors[value].bytes for value in root.results)
        return Kernel(
            name=f"{kind.value}:{root.name.rpartition('.')[2] or root.name}",
            kind=kind,
            dtype=root.cost.dtype or self._tensors[root.results[0]].dtype if root.results else root.cost.dtype,
            matrix_flops=sum(op.cost.matrix_flops for op in members),
            vector_flops=sum(op.cost.vector_flops for op in members),
            transcendentals=sum(op.cost.transcendentals for op in members),
            read_bytes=sum(read.values()),
            written_bytes=written,
            reads=tuple(read),
            writes=root.results,
            in_place=root.cost.kind in (OpKind.UPDATE, OpKind.SCATTER),
            geometry=root.cost.geometry,
            ops=tuple(op.name for op in members),
            location=root.location,
            recomputed=root.recomputed,
            guessed=any(op.cost.guessed for op in members),
        )


def free_values(block: Block) -> set[int]:
    """Values a block reads that it neither takes as input nor defines."""
    defined = set(block.inputs)
    free: set[int] = set()
    for op in block.ops:
        free.update(value for value in op.operands if value not in defined)
        for inner in op.blocks:
            free.update(value for value in free_values(inner) if value not in defined)
        defined.update(op.results)
    free.update(value for value in block.outputs if value not in defined)
    return free
