"""Kernels of a program that XLA has compiled: its own fusions and library calls, in the order it scheduled them.

Ops say which launch they belong to (`Op.launch`); a launch's ops follow each other. What launches nothing stays out:
views, constants, tuples. A launch's name is that of its instruction, so that kernels can be paired with a profile.

What XLA's text does not say: whether an update inside a fusion happens in place. It does where the update is the
result and its target comes from outside, which is when XLA's emitter can; copies that XLA found necessary are
instructions of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import groupby

from meshcast.base import InputError
from meshcast.lower.compiled.compiler_facts import CompiledMemory
from meshcast.lower.copies.memsets_and_copies import clears_first, copy_kernel, memset
from meshcast.lower.fused_kernels.cold_slices import stepped_slices
from meshcast.lower.fused_kernels.fetched_sectors import Member, Transposes, last_transposes
from meshcast.lower.fused_kernels.fused_kernel import fused_kernel
from meshcast.lower.fusion.computed_updates import whole_update
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.lower.graph.free_values import FreeValues
from meshcast.lower.graph.radix_sorts import as_on_a_gpu
from meshcast.lower.graph.reduction_stages import is_identity
from meshcast.lower.kernel import (
    BranchStep,
    Kernel,
    KernelKind,
    LoopStep,
    LoweredProgram,
    Schedule,
    Step,
)
from meshcast.lower.schedule.last_uses import with_recency
from meshcast.programs import from_bytes
from meshcast.workload import (
    Block,
    CompiledLaunch,
    Gemm,
    Op,
    OpKind,
    ReadOptions,
    Workload,
    element_bytes,
    read_workload,
)

COPY = "meshcast.copy"  # the reader's name for XLA's copy instruction
JOINED = "custom_call:ConcatBitcast"


def lower_hlo(
    text: str, *, name: str = "program", backend: str = "xla-gpu", options: ReadOptions | None = None
) -> LoweredProgram:
    """The kernels of optimised, scheduled HLO text, as XLA prints or dumps it.

    Raises:
        InputError: The text is no HLO, or not scheduled: what launches is not decided yet.
    """
    workload = read_workload(from_bytes(text.encode(), name=name, where=name), options)
    if not workload.scheduled:
        raise InputError(
            "the HLO is not scheduled: its header does not say is_scheduled=true",
            where=name,
            fix="dump the module after optimisations (compiled.as_text(), or *.gpu_after_optimizations.txt)",
        )
    return lower_scheduled(workload, backend=backend)


def lower_scheduled(workload: Workload, *, backend: str = "xla-gpu", tuned: bool = True) -> LoweredProgram:
    """The kernels of a compiled program, one a launch.

    Args:
        workload: A program with launches.
        backend: Whose compiler it was.
        tuned: Whether products are what an autotuner chose; False: a Triton fusion of a product alone would, once
            timed, become the library's call more often than not, and gets its memset, and sorts may become CUB's.
    """
    lowering = _Scheduled(workload, library=backend == "xla-gpu", tuned=tuned, placed=backend in ("xla-tpu", "npu"))
    schedule = with_recency(lowering.block(workload.body), workload.tensors)
    step = workload.step
    memory = (
        CompiledMemory(arguments=step.arguments, outputs=0, temporaries=step.temporaries, aliased=0) if step else None
    )
    return LoweredProgram(
        workload=workload, backend=backend, schedule=schedule, tensors=workload.tensors, lowering="given", memory=memory
    )


# XLA's own emitters: a loop's threads walk across transposes; the last one of a kInput fusion goes through shared memory.
_WALKED: Mapping[str, Transposes] = {"kLoop": "loop", "kInput": "inner"}


def _in_tiles(launch: CompiledLaunch, members: Sequence[Member], results: AbstractSet[int]) -> bool:
    """Whether a fusion ends with transposes that go through tiles in shared memory.

    XLA chooses the emitter of a kInput fusion by what its results are (`HloFusionAnalysis`): reductions that are results come
    first, then transposes; whatever is before these is computed by the thread that needs it.
    """
    if launch.fusion != "kInput" or not last_transposes(members, results):
        return False
    return not any(op.cost.kind is OpKind.REDUCE and not results.isdisjoint(op.results) for op, _ in members)


def _turns_bytes(kernel: Kernel) -> bool:
    """Whether a kernel only makes another dimension of elements of a byte or less the innermost.

    Where XLA lays a tuned product's operand out anew it does so by a loop, which takes elements one by one: 59 MB of f8 380 us on
    an H200. Its kInput fusions and Triton's tiles pack them into words.
    """
    return kernel.kind is KernelKind.TRANSPOSE and "turned" in kernel.flags and element_bytes(kernel.dtype) <= 1


def _programs(launch: CompiledLaunch, shape: tuple[int, ...]) -> int:
    """Tiles that cover a result: along each of its dimensions as many as reach its end; 0 where the tile is of another shape.

    A tile of 2 x 8 x 1 over 2 x 9 x 9 has 18 of them, not the 11 that as many elements would fill.
    """
    if len(launch.sides) != len(shape):
        return 0
    return math.prod(-(-size // side) for size, side in zip(shape, launch.sides, strict=True))


def rows_lie_apart(sides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a tile has pieces that do not follow each other: several indices of a dimension, and of a later one not all.

    XLA takes a row of many heads together where they share its mask: 16 x 1 x 1024 of 32 x 1024 x 1024.
    """
    if len(sides) != len(shape):
        return False
    whole = [side >= size for side, size in zip(sides, shape, strict=True)]
    return any(side > 1 and not all(whole[place + 1 :]) for place, side in enumerate(sides))


class _Scheduled:
    def __init__(self, workload: Workload, *, library: bool, tuned: bool, placed: bool) -> None:
        self._tensors = workload.tensors
        self._library = library  # whether products are cuBLAS's and cuDNN's
        self._tuned = tuned
        self._buffer: dict[int, int] = {}  # a view's value -> the value whose bytes it shows
        self._placed = placed  # whether the compiler says of every value if it lies on chip
        self._on_chip = set(workload.on_chip)
        self._looped = False
        self._free = FreeValues()

    def block(self, block: Block) -> Schedule:
        """The schedule of one block."""
        wanted = _read_outside(block, self._free)
        steps: list[Step] = []
        for launch, run in groupby(block.ops, key=lambda op: op.launch):
            ops = list(run)
            if launch is None:
                steps.extend(step for op in ops if (step := self._structure(op)) is not None)
            else:
                steps.extend(self._launched(launch, ops, wanted))
        return Schedule(inputs=block.inputs, outputs=self._resolved(block.outputs), steps=tuple(steps))

    def _structure(self, op: Op) -> Step | None:
        """A loop, a branch, or nothing: views and constants between launches."""
        operands = self._resolved(op.operands)
        if op.cost.kind is OpKind.LOOP:
            around, self._looped = self._looped, True
            for operand, carried, result in zip(operands, op.blocks[0].inputs, op.results, strict=False):
                if operand in self._on_chip:
                    self._on_chip.update((carried, result))
            body = self.block(op.blocks[0])
            self._looped = around
            reads = (*operands, *self._outside(op))
            return LoopStep(label=op.name, body=body, trips=op.trip_count, reads=reads, writes=op.results)
        if op.cost.kind is OpKind.BRANCH:
            bodies = tuple(self.block(inner) for inner in op.blocks)
            return BranchStep(bodies=bodies, reads=(*operands, *self._outside(op)), writes=op.results)
        self._alias(op)
        return None

    def _launched(self, launch: CompiledLaunch, ops: Sequence[Op], wanted: dict[int, set[str]]) -> Iterator[Kernel]:
        working = [self._counted(op) for op in ops if not self._alias(op)]
        if not working:
            yield from self._copied(launch, ops)
            return
        read = {v for op in ops for v in op.results if wanted.get(v, set()) - {launch.name}}
        if self._library and not self._tuned:
            working = [as_on_a_gpu(op, ops, read) for op in working]
        results = {self._buffer.get(value, value) for value in read}
        members = self._in_place([(op, self._resolved(op.operands)) for op in working], results)
        stepped = stepped_slices(working, self._tensors) if self._looped else set()
        tiled = self._library and _in_tiles(launch, members, results)
        kernel = fused_kernel(
            members,
            self._tensors,
            cold=bool(stepped),
            results=tuple(results),
            elemental=self._library
            and (launch.fusion == "kLoop" or tiled),  # on TPUs every fusion without a product is one
            walked=_WALKED.get(launch.fusion, "none") if self._library else "none",
            name=launch.name,
        )
        if launch.tile:
            kernel = replace(kernel, tile=launch.tile, warps=launch.warps, programs=_programs(launch, kernel.shape))
            if kernel.kind is KernelKind.REDUCTION and rows_lie_apart(launch.sides, kernel.shape):
                kernel = replace(kernel, flags=kernel.flags | {"strewn"})
        if tiled and len(members) > 1:
            kernel = replace(kernel, flags=kernel.flags | {"tiles"})
        if self._library and launch.fusion == "kLoop" and _turns_bytes(kernel):
            kernel = replace(kernel, flags=kernel.flags | {"unpacked"})
        kernel = self._in_memory(self._flagged(kernel, launch))
        if launch.code is not None:
            yield _as_called(kernel, launch)
            return
        if self._library and not (launch.fusion and self._tuned) and clears_first(kernel):
            yield memset(kernel)
        yield kernel

    def _counted(self, op: Op) -> Op:
        """The op as a kernel runs it: a reduction of single elements is none."""
        if op.cost.kind is not OpKind.REDUCE:
            return op
        before, after = self._tensors[op.operands[0]].elements, self._tensors[op.results[0]].elements
        return replace(op, cost=replace(op.cost, kind=OpKind.ELEMENTWISE)) if is_identity(op, before, after) else op

    def _in_place(self, members: Sequence[Member], results: set[int]) -> list[Member]:
        """The members, updates that cannot happen in place counted as passes over their whole target."""
        inside = {value for op, _ in members for value in op.results}
        made: list[Member] = []
        for op, operands in members:
            targets = operands[: len(op.results)]
            if op.cost.kind in IN_PLACE and not (results.issuperset(op.results) and inside.isdisjoint(targets)):
                op = whole_update(op, self._tensors)
            made.append((op, operands))
        return made

    def _copied(self, launch: CompiledLaunch, ops: Sequence[Op]) -> Iterator[Kernel]:
        """A launch of nothing but views: what it shows is copied."""
        result = ops[-1].results[0] if ops[-1].results else None
        if result is None or result not in self._buffer:
            return
        source = self._buffer.pop(result)
        made = replace(copy_kernel(source, result, self._tensors[result], ops[-1].location), name=launch.name)
        yield self._in_memory(self._flagged(made, launch))

    def _in_memory(self, kernel: Kernel) -> Kernel:
        """The kernel with the bytes that go to and from main memory, and those that stay on chip, told apart."""
        if not self._placed:
            return kernel
        read = tuple(
            0 if value in self._on_chip else size
            for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True)
        )
        kept = [value for value in kernel.writes if value in self._on_chip]
        written = max(0, kernel.written_bytes - sum(self._tensors[value].bytes for value in kept))
        written = written if len(kept) < len(kernel.writes) else 0
        kept_reads, kept_writes = kernel.read_bytes - sum(read), kernel.written_bytes - written
        return replace(
            kernel,
            read_bytes=sum(read),
            operand_bytes=read,
            written_bytes=written,
            on_chip_bytes=kept_reads + kept_writes,
            on_chip_written=kept_writes,
        )

    def _flagged(self, kernel: Kernel, launch: CompiledLaunch) -> Kernel:
        flags = set(kernel.flags)
        if kernel.ops == (COPY,) and kernel.kind is KernelKind.LOOP_FUSION:
            flags.add("copy")
        if kernel.collective is not None and launch.blocking:
            flags.add("blocking")
        if kernel.collective is None and not launch.blocking and not self._in_turn(launch):
            flags.add("prefetch" if launch.prefetched else "beside")
        if flags == kernel.flags and launch.cycles is None:
            return kernel
        return replace(kernel, flags=frozenset(flags), cycles=launch.cycles)

    def _in_turn(self, launch: CompiledLaunch) -> bool:
        """Whether a launch that nobody waits for at its place takes its turn among the kernels all the same.

        XLA:GPU starts copies of a loop's slices and stacks early (`fusion-start`). They move memory that kernels use, too, and
        are nodes of the same CUDA graph: of 7 to 38 ms of such copies in steps of seven models on an H200 1 to 3 % at most ran
        while another kernel did (what kernels take in all less `busy_us`, beside `memcpy` and stack updates, `groundtruth/h200`).
        What a copy engine fetches from elsewhere (`copy-start`) does run beside.
        """
        return self._library and bool(launch.fusion)

    def _alias(self, op: Op) -> bool:
        """True when the op moves nothing; its results are then other names for its operands' buffers."""
        if op.cost.kind is OpKind.GENERATE and not op.cost.written_bytes:
            return True
        if op.cost.kind is not OpKind.VIEW:
            return False
        # Parts that a TPU fetches one after the other and shows as one buffer: the last of them comes last.
        shown = op.operands[-1:] if op.name == JOINED else op.operands
        for result, value in zip(op.results, shown, strict=False):
            self._buffer[result] = self._buffer.get(value, value)
        return True

    def _resolved(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple([self._buffer.get(value, value) for value in values])

    def _outside(self, op: Op) -> list[int]:
        """Values that an op's bodies read from outside, each once."""
        return sorted({self._buffer.get(value, value) for inner in op.blocks for value in self._free(inner)})


def _as_called(kernel: Kernel, launch: CompiledLaunch) -> Kernel:
    """A framework's own call: cuBLAS is handed rows as they are, and nothing of XLA's runs before it."""
    kernel = replace(kernel, code=launch.code)
    if isinstance(kernel.geometry, Gemm):
        return replace(kernel, geometry=replace(kernel.geometry, padded=False))
    if launch.fusion and kernel.kind in (KernelKind.REDUCTION, KernelKind.TRANSPOSE):
        # Its own code, of which the share is told, not XLA's: as long as the bytes take.
        return replace(kernel, kind=KernelKind.LOOP_FUSION, geometry=None, flags=kernel.flags - {"transpose", "turned"})
    return kernel


def _read_outside(block: Block, free: FreeValues) -> dict[int, set[str]]:
    """The launches that read each value; a loop, a branch, a view and the block's end are launches without a name."""
    readers: dict[int, set[str]] = {}
    for op in block.ops:
        name = op.launch.name if op.launch is not None else ""
        for value in op.operands:
            readers.setdefault(value, set()).add(name)
        for inner in op.blocks:
            for value in free(inner):
                readers.setdefault(value, set()).add("")
    for value in block.outputs:
        readers.setdefault(value, set()).add("")
    return readers
