"""Workload to kernels: the passes of a backend (`pass_tables.py`) over every block, and the one way into loops and branches."""

from __future__ import annotations

from typing import Any, get_args

from meshcast.base import UsageError, expect
from meshcast.lower.compiled.scheduled_hlo import lower_scheduled
from meshcast.lower.copies.kept_targets import copied_targets
from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.frameworks.separate_layers import Layers
from meshcast.lower.fusion.rules import Fusion
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, LoweredProgram, Schedule, Step
from meshcast.lower.pass_tables import TABLES
from meshcast.lower.passes import PassTable, run_passes
from meshcast.lower.products.ragged_products import RaggedProducts
from meshcast.workload import AttentionLibrary, Block, Op, OpKind, Workload

BACKENDS = tuple(TABLES)  # "none": every op a kernel of its own
_STRUCTURED = frozenset({OpKind.LOOP, OpKind.BRANCH, OpKind.GENERATE})  # not always one kernel


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
        backend: Whose fusion rules: `xla-gpu`, `xla-tpu`, `npu`, or `none`.
        given: Keep the kernels of a program that a compiler has scheduled already; False fuses its ops anew.
        fusion: Who fuses on GPUs: the compiler, or an eager framework nothing beyond its own ops.
        attention: Whose fused attention runs on GPUs.
        layers: Whether loops copy into and out of stacked arrays, or each turn has arrays of its own; and whether products
            add to sums of gradients themselves.
        ragged: Whether ragged products on GPUs are dense ones of masked operands, or one grouped kernel.

    Raises:
        UsageError: It is no workload, or there is no such backend, fusion, attention, layers or ragged products.
    """
    expect(workload, Workload, "a meshcast.Workload", where="workload", fix="such as what program.workload() gives")
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}", fix="one of " + ", ".join(BACKENDS))
    for name, value, words in (
        ("fusion", fusion, Fusion),
        ("attention", attention, AttentionLibrary),
        ("layers", layers, Layers),
        ("ragged", ragged, RaggedProducts),
    ):
        _check_word(name, value, get_args(words))
    if workload.scheduled and given and backend != "none":
        return lower_scheduled(workload, backend=backend)
    passes = TABLES[backend][fusion]
    tiles = backend == "xla-gpu" and fusion == "compiler"
    program = ProgramDraft(
        workload=workload, fusion=fusion, attention=attention, layers=layers, ragged=ragged, tiles=tiles
    )
    donated = frozenset(v for v, a in zip(workload.body.inputs, workload.arguments, strict=False) if a.donated)
    program.schedule = _lowered(workload.body, program, passes, writable=donated, looped=False)
    run_passes(passes.program, program)
    tensors = tuple(program.values.tensors)
    return LoweredProgram(workload=workload, backend=backend, schedule=program.schedule, tensors=tensors)


def _check_word(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuses a word that passes would not know, or would take for another."""
    if value not in known:
        raise UsageError(f"{name} has no {value!r}", where=name, fix="one of " + ", ".join(known))


def _lowered(
    block: Block, program: ProgramDraft, passes: PassTable, *, writable: frozenset[int], looped: bool
) -> Schedule:
    """The schedule of one block; `writable` are its inputs that may be overwritten, `looped` says if a loop is around."""
    draft = BlockDraft(program=program, block=block, writable=writable, looped=looped)
    run_passes(passes.ops, draft)
    for root in sorted(draft.fusions):
        if draft.ops[root].cost.kind in _STRUCTURED or root in draft.copied:
            draft.steps += _steps(root, draft, passes)
        else:
            draft.steps.append(_kernel(root, draft))
    run_passes(passes.steps, draft)
    return Schedule(inputs=block.inputs, outputs=draft.outputs, steps=tuple(draft.steps))


def _steps(root: int, draft: BlockDraft, passes: PassTable) -> list[Step]:
    """What runs for one fusion that may be none, one kernel or several; or for the loop or branch that it is."""
    op, operands, program = draft.ops[root], draft.operands, draft.program
    kind = op.cost.kind
    if kind is OpKind.LOOP:
        inner = op.blocks[0]
        body = _lowered(inner, program, passes, writable=frozenset(inner.inputs), looped=True)
        reads = (*operands[root], *_outside(op, draft))
        return [LoopStep(label=op.name, body=body, trips=op.trip_count, reads=reads, writes=op.results)]
    if kind is OpKind.BRANCH:
        bodies = tuple(
            _lowered(inner, program, passes, writable=frozenset(), looped=draft.looped) for inner in op.blocks
        )
        return [BranchStep(bodies=bodies, reads=(*operands[root], *_outside(op, draft)), writes=op.results)]
    steps: list[Step] = []
    if root in draft.copied:
        copies, operands[root] = copied_targets(op, operands[root], program.values)
        steps += copies
    if kind is OpKind.GENERATE and not op.cost.written_bytes:
        return steps  # a constant that is an output or operand lies in memory already
    return [*steps, _kernel(root, draft)]


def _kernel(root: int, draft: BlockDraft) -> Kernel:
    """The kernel of one fusion."""
    members, ops, operands = draft.fusions[root], draft.ops, draft.operands
    made = [(ops[index], operands[index]) for index in members]
    return draft.program.kernels.kernel(made, cold=not draft.cold.isdisjoint(members))


def _outside(op: Op, draft: BlockDraft) -> list[int]:
    """Values that an op's bodies read from outside, each once."""
    buffer, free = draft.buffer, draft.program.free
    return sorted({buffer.get(value, value) for inner in op.blocks for value in free(inner)})
