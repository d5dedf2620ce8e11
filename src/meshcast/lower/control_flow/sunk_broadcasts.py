"""What XLA:TPU moves into loops or never makes: broadcasts that a loop only reads, and zeros that it starts from.

A loop that carries a broadcast unchanged reads what the broadcast is made of (XLA's while_loop_constant_sinking and its
broadcast simplifier: masks of attention, scalars spread over an array). A spread constant that only starts a loop's carried
value is not written: XLA:TPU allocates the buffer, as the loop's own updates fill it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, Kernel, LoopStep, Step
from meshcast.workload import Op, OpKind

_SPREAD = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.iota"})


def spread_inputs(loop: Op, given: Sequence[int], ops: Sequence[Op], known: Mapping[int, int]) -> dict[int, int]:
    """Inputs of a loop's body that are broadcasts it does not change, with the bytes they are made of.

    Args:
        loop: The loop.
        given: Its operands, views resolved.
        ops: The ops of the block around it.
        known: Such values of that block itself.
    """
    body = loop.blocks[0]
    makers = {value: op for op in ops if op.cost.kind is OpKind.BROADCAST for value in op.results}
    found: dict[int, int] = {}
    for inside, carried, value in zip(body.inputs, body.outputs, given, strict=False):
        if inside != carried:
            continue
        if value in makers:
            found[inside] = sum(makers[value].cost.operand_bytes)
        elif value in known:
            found[inside] = known[value]
    return found


def with_sunk_reads(kernel: Kernel, spread: Mapping[int, int]) -> Kernel:
    """The kernel with broadcasts computed on the way in: it reads what they are made of."""
    if not spread or spread.keys().isdisjoint(kernel.reads):
        return kernel
    sizes = tuple(
        min(size, spread.get(value, size)) for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True)
    )
    return replace(kernel, operand_bytes=sizes, read_bytes=sum(sizes))


def without_allocations(steps: Sequence[Step], kept: Set[int]) -> list[Step]:
    """The steps without broadcast constants that only initialise loops; `kept` are the block's results."""
    read = {value for step in steps if not isinstance(step, LoopStep) for value in step.reads} | kept
    return [
        step
        for step in steps
        if not (
            isinstance(step, Kernel)
            and step.ops
            and _SPREAD.issuperset(step.ops)
            and step.read_bytes <= SCALAR_BYTES
            and read.isdisjoint(step.writes)
        )
    ]
