"""A lowered program as an `OpGraph`: its kernels with what they take from each other, every loop with two of its turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower import BranchStep, Kernel, LoopStep, LoweredProgram, Schedule
from meshcast.traces.synthetic.graphs import GroupDims, Moved, OpGraph, OpNode
from meshcast.workload import Gemm, Tensor

TURNS = 2  # of a loop, so that what one hands to the next is seen


def graph_of(
    lowered: LoweredProgram, *, name: str, model: str, family: str, held_out: bool = False, peak: int = 0
) -> OpGraph:
    """The graph of a program that holds so many bytes at most: what its nodes' results do not explain of them is its state."""
    flat = _KernelGraph(lowered.tensors)
    flat.add(lowered.schedule, {}, 1)
    ranks = max(1, lowered.mesh.size)
    graph = OpGraph(
        name=name, model=model, family=family, ranks=ranks, groups=tuple(flat.groups), nodes=tuple(flat.nodes),
        held_out=held_out,
    )  # fmt: skip
    return replace(graph, state=max(0, peak - graph.memory_bytes))


class _KernelGraph:
    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self.nodes: list[OpNode] = []
        self.groups: dict[GroupDims, int] = {}

    def add(self, block: Schedule, made_by: dict[int, int | None], repeat: int) -> None:
        """Adds the kernels of a block; `made_by` says which node made a value, and learns of those that are made here."""
        for step in block.steps:
            if isinstance(step, Kernel):
                self._kernel(step, made_by, repeat)
            elif isinstance(step, LoopStep):
                self._loop(step, made_by, repeat)
            elif isinstance(step, BranchStep) and step.bodies:
                inner = dict(made_by)
                self.add(step.bodies[0], inner, repeat)
                made_by |= {
                    outer: inner.get(value) for outer, value in zip(step.writes, step.bodies[0].outputs, strict=False)
                }

    def _loop(self, step: LoopStep, made_by: dict[int, int | None], repeat: int) -> None:
        turns = min(TURNS, max(1, step.trips))
        inner = {value: made_by.get(outer) for value, outer in zip(step.body.inputs, step.reads, strict=False)}
        for turn in range(turns):
            share = step.trips // turns + (1 if turn < step.trips % turns else 0)
            self.add(step.body, inner, repeat * max(1, share))
            for each in step.carried:
                inner[each.before] = inner.get(each.after)
        made_by |= {each.result: inner.get(each.after) for each in step.carried}

    def _kernel(self, kernel: Kernel, made_by: dict[int, int | None], repeat: int) -> None:
        sources = (made_by.get(value) for value in kernel.reads)
        parents = tuple(sorted({source for source in sources if source is not None}))
        collective = kernel.collective
        if collective is not None and collective.group.size < 2:
            made_by |= dict.fromkeys(kernel.writes, parents[0] if parents else None)
            return
        operands, results = self._read(kernel, made_by), self._written(kernel)
        if collective is not None:
            group = self.groups.setdefault(collective.group.dims, len(self.groups))
            node = OpNode(
                kind=collective.kind, group=group, repeat=repeat, bytes=max(1, collective.input_bytes), parents=parents,
                written=collective.output_bytes, operands=operands, results=results,
            )  # fmt: skip
            if (sum(each.bytes for each in operands), sum(each.bytes for each in results)) != (
                node.bytes,
                node.written,
            ):
                node = replace(node, operands=(), results=())  # it exchanges something else than what it is given
        else:
            flops = kernel.matrix_flops + kernel.vector_flops + kernel.transcendentals
            node = OpNode(
                kind=str(kernel.kind), dtype=kernel.dtype, repeat=repeat, flops=flops, parents=parents,
                bytes=max(1, kernel.read_bytes + kernel.written_bytes), written=kernel.written_bytes,
                matrix=2 * kernel.matrix_flops > flops, operands=operands, results=results,
                contracted=_contracted(kernel, operands, results),
            )  # fmt: skip
            if sum(each.bytes for each in results) != node.written:
                node = replace(node, operands=(), results=(), contracted=0)
        self.nodes.append(node)
        made_by |= dict.fromkeys(kernel.writes, len(self.nodes) - 1)

    def _read(self, kernel: Kernel, made_by: dict[int, int | None]) -> tuple[Moved, ...]:
        found = []
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            tensor, parent = self._tensors[value], made_by.get(value)
            shape, dtype = tensor.shape, tensor.dtype
            if parent is not None and (results := self.nodes[parent].results):
                known = {(each.shape, each.dtype) for each in results}
                if (shape, dtype) not in known:  # a view of what was made, which is moved as it was made
                    shape, dtype = min(known, key=lambda each: abs(Tensor(*each).bytes - tensor.bytes))
                    size = min(size, Tensor(shape, dtype).bytes)
            found.append(Moved(shape=shape, dtype=dtype, bytes=size, parent=-1 if parent is None else parent))
        return tuple(found)

    def _written(self, kernel: Kernel) -> tuple[Moved, ...]:
        """Results; of those that are written into a buffer that was there the part that is new."""
        # A loop's counter is written and is no value of the program.
        tensors = [self._tensors[value] for value in kernel.writes] or [Tensor((kernel.written_bytes,), "i8")]
        sizes = [each.bytes for each in tensors]
        for place in range(len(kernel.updates)):
            over = sum(sizes) - kernel.written_bytes
            if over > 0:
                sizes[place] -= min(over, sizes[place])
        return tuple(
            Moved(shape=each.shape, dtype=each.dtype, bytes=size) for each, size in zip(tensors, sizes, strict=True)
        )


def _contracted(kernel: Kernel, operands: Sequence[Moved], results: Sequence[Moved]) -> int:
    """What a product sums over, where its result and both of its operands are among its tensors as they are."""
    shape = kernel.geometry
    if not isinstance(shape, Gemm) or shape.groups > 1 or shape.split > 1:
        return 0
    out = shape.batch * shape.m * shape.n
    read = [each.elements for each in operands]
    for side in (shape.batch * shape.m * shape.k, shape.batch * shape.k * shape.n):
        if side not in read:
            return 0
        read.remove(side)
    return shape.k if out == max((math.prod(each.shape) for each in results), default=0) else 0
