"""Kernels: what a device is asked to run, one after the other, and the loops around them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Literal, Unpack

from meshcast.base import KeptBeside, Mesh, Rows, copier, format_bytes, made_quickly, shown
from meshcast.lower.compiled.compiler_facts import CompiledMemory, CompilerRun, Overflow
from meshcast.workload import CodeShape, Collective, Geometry, Indexed, Tensor, Workload

if TYPE_CHECKING:
    from meshcast.hardware import Cluster, Device
    from meshcast.jobs import Run
    from meshcast.options import Options, PlacedKeywords

Lowering = Literal["modelled", "compiled", "given"]
SCALAR_BYTES = 16  # what a few numbers take, up to a complex one of twice 8 bytes: scalars, whatever their type


class KernelKind(StrEnum):
    """The kind of a kernel, by which estimators choose the model that answers for it."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    LOOP_FUSION = "loop-fusion"  # elementwise and data movement in one pass
    REDUCTION = "reduction"  # a fusion with reductions in it
    TRANSPOSE = "transpose"
    GATHER = "gather"
    SCATTER = "scatter"
    SORT = "sort"
    SOLVER = "solver"  # dense factorisations and triangular solves
    OTHER = "other"  # fft, rng, windows
    CUSTOM = "custom"
    COLLECTIVE = "collective"


class CostKey:
    """What a kernel's cost depends on. Equal ones that are in use are one object: to look one up, no parts are compared."""

    __slots__ = ("__weakref__", "_aged", "_parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        """Called by `of` alone."""
        self._parts = parts
        self._aged: dict[Recency | None, CostKey] = {}

    @staticmethod
    def of(*parts: object) -> CostKey:
        """The key with these parts."""
        found = _KEYS.get(parts)
        if found is None:
            with _KEYS_LOCK:
                found = _KEYS.setdefault(parts, CostKey(parts))
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return CostKey.of, self._parts

    def aged(self, kernel: Kernel) -> CostKey:
        """The key of a kernel that has this one but for its recency: worked out once for all of that recency."""
        found = self._aged.get(kernel.recency)
        if found is None:
            found = self._aged[kernel.recency] = kernel.own_key()
        return found


_KEYS: weakref.WeakValueDictionary[tuple[object, ...], CostKey] = weakref.WeakValueDictionary()
_KEYS_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """Bytes moved between the last use of what a kernel touches and the kernel itself (`lower.schedule.last_uses`)."""

    reads: tuple[tuple[int, int], ...] = ()  # (age, bytes of that age)
    written: int = 0  # age of the result's buffer
    kept: tuple[tuple[int, int], ...] = ()  # (bytes moved until its next read, bytes) of what is written
    again: tuple[tuple[int, int], ...] = ()  # the same of arguments that it is the first to read


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch. Bytes are what it must move to and from memory once, none for what a compiler keeps on the chip; FLOPs
    are per engine.
    """

    name: str
    kind: KernelKind
    dtype: str  # of the matrix operands for GEMM-like kernels, else the type most of its arithmetic is done in
    matrix_flops: float = 0.0
    vector_flops: float = 0.0
    transcendentals: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    reads: tuple[int, ...] = ()  # values in memory
    operand_bytes: tuple[int, ...] = ()  # what is read of each of them
    writes: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()  # values whose buffers its first results are written into: in-place updates
    # Places in `reads` of what results need elsewhere than at their own element, and so cannot be written over.
    rearranged: tuple[int, ...] = ()
    sources: tuple[tuple[int, ...], ...] = ()  # places in `reads` of what leads to each result; none: all lead to all
    geometry: Geometry | None = None
    picked: Indexed | None = None  # a gather among its ops, where `geometry` is another's
    elements: int = 0  # of the root's result; 0 where it is not known or only a part of it is written
    shape: tuple[int, ...] = ()  # of the same result, where `elements` is known
    pieces: tuple[int, ...] = ()  # what its result is joined of, by their sizes along that dimension
    fetched_bytes: int = 0  # of whole sectors that its threads fetch; 0: what is read (`fused_kernels.fetched_sectors`)
    touched_bytes: int = 0  # of them, those of different sectors
    halves: tuple[int, int] | None = None  # bytes of f16 that it reads and writes (`fused_kernels.f16_bytes`)
    # Of a product of integers, its operands' before they are widened to its type; of a sum, those that it spreads out.
    stored_bits: tuple[int, ...] = ()
    tile: int = 0  # elements that a program of Triton's has, where a compiler chose it
    warps: int = 0  # that share them
    programs: int = 0  # that cover the result, where the compiler told the sides of its tiles
    # See `flags_of`; also `aside`: other results do not need its reduction; `tiles`: it ends with transposes through tiles;
    # `strewn`: a program's rows lie apart; `turned`: another dimension becomes the innermost; `unpacked`: of elements that share
    # bytes or words, one by one; `cold`: reads another part in every turn; `blocking`: compute waits for it; `beside`: a copy
    # engine runs it;
    # `lengths`: its masks compare places with what it reads; `haloed`: its images are pieces of larger ones, to which it joins
    # their neighbours' edges.
    flags: frozenset[str] = frozenset()
    cycles: float | None = None  # that the compiler expects, where it says so
    code: CodeShape | None = None  # of a framework's own kernel
    on_chip_bytes: int | None = None  # read and written beside those of memory, where a compiler has placed every value
    on_chip_written: int = 0  # of those, written
    recency: Recency | None = None  # where it is not known, everything was just touched
    ops: tuple[str, ...] = ()
    location: str = ""
    recomputed: bool = False
    redundant_flops: float = 0.0  # of its matrix FLOPs, what is computed again, or alike on other devices
    guessed: bool = False
    collective: Collective | None = field(default=None, init=False, repr=False, compare=False)  # that it runs, if any
    _key: CostKey | None = field(default=None, init=False, repr=False, compare=False)  # once it was asked for

    def __post_init__(self) -> None:
        if isinstance(self.geometry, Collective):
            object.__setattr__(self, "collective", self.geometry)

    @property
    def cost_key(self) -> CostKey:
        """Everything but its own name, values and places."""
        found = self._key
        if found is None:
            found = self.own_key()
            object.__setattr__(self, "_key", found)
        return found

    def own_key(self) -> CostKey:
        """`cost_key`, worked out anew."""
        return CostKey.of(
            self.kind, self.dtype, self.matrix_flops, self.vector_flops, self.transcendentals, self.read_bytes,
            self.written_bytes, self.geometry, self.picked, self.elements, self.shape, self.pieces, self.fetched_bytes,
            self.touched_bytes, self.halves, self.stored_bits, self.tile, self.warps, self.programs, self.ops, self.flags,
            bool(self.updates), self.guessed, self.recency, self.cycles, self.on_chip_bytes, self.on_chip_written, self.code,
        )  # fmt: skip

    def with_recency(self, recency: Recency | None) -> Kernel:
        """The kernel with other ages of its operands; `replace` would take eight times as long for every kernel of a program."""
        if recency is self.recency or recency == self.recency:
            return self
        made = _aged(self, recency, None)
        if self._key is not None:
            object.__setattr__(made, "_key", self._key.aged(made))
        return made

    def elsewhere(
        self, reads: tuple[int, ...], writes: tuple[int, ...], updates: tuple[int, ...], location: str
    ) -> Kernel:
        """A copy of the kernel on other values, at another place of the program."""
        return _elsewhere(self, reads, writes, updates, location)

    @property
    def footprint_bytes(self) -> int:
        """Different bytes it touches: what an in-place update reads and writes back is one buffer, not two."""
        return self.read_bytes + self.written_bytes - (min(self.read_bytes, self.written_bytes) if self.updates else 0)


_aged = copier(Kernel, "recency", "_key")
_elsewhere = copier(Kernel, "reads", "writes", "updates", "location")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A value that a loop hands from turn to turn.

    Attributes:
        initial: What the first turn is given.
        before: What it is called at the begin of a turn.
        after: What it is called at its end.
        result: What the last turn leaves.
    """

    initial: int
    before: int
    after: int
    result: int

    @property
    def unchanged(self) -> bool:
        """Whether turns hand it on as it is."""
        return self.before == self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStep:
    """A loop: its body runs `trips` times. The first reads are the initial values of the carried buffers, one for each
    write; the rest is what the body reads from outside. Beside its kernels a turn moves `host_bytes` between the device and
    its host's memory, `fetched_bytes` of them from the host.
    """

    label: str
    body: Schedule
    trips: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    host_bytes: int = 0
    fetched_bytes: int = 0

    @property
    def carried(self) -> tuple[Carried, ...]:
        """The values that the loop hands from turn to turn, in order."""
        return tuple(
            Carried(initial=initial, before=before, after=after, result=result)
            for initial, before, after, result in zip(
                self.reads[: len(self.writes)], self.body.inputs, self.body.outputs, self.writes, strict=True
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchStep:
    """A data-dependent branch: one of the bodies runs, and the costliest is counted. Reads include the bodies' own."""

    bodies: tuple[Schedule, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


Step = Kernel | LoopStep | BranchStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps in launch order, with the values the block takes and gives."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...] = field(repr=False)

    def walk(self, count: int = 1) -> Iterator[tuple[Kernel, int]]:
        """Every kernel with how often it runs; all branches."""
        around: list[tuple[Iterator[Step], int]] = [(iter(self.steps), count)]
        while around:
            steps, count = around.pop()
            for step in steps:
                if isinstance(step, Kernel):
                    yield step, count
                    continue
                around.append((steps, count))  # gone on with when the body has ended
                if isinstance(step, LoopStep):
                    around.append((iter(step.body.steps), count * step.trips))
                else:
                    around.append((chain.from_iterable(body.steps for body in step.bodies), count))
                break

    @property
    def branches(self) -> bool:
        """Whether data decide about some of its kernels, in it or in its loops."""
        blocks = [self]
        while blocks:
            for step in blocks.pop().steps:
                if isinstance(step, BranchStep):
                    return True
                if isinstance(step, LoopStep):
                    blocks.append(step.body)
        return False


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredProgram:
    """What one device runs: a schedule of kernels over values whose views are resolved to the buffer they share."""

    workload: Workload = field(repr=False)
    backend: str
    schedule: Schedule
    tensors: tuple[Tensor, ...] = field(repr=False)
    # `modelled`: by rules of ours; `compiled`: by the real compiler; `given`: the program came compiled.
    lowering: Lowering = "modelled"
    memory: CompiledMemory | None = None
    compiler: CompilerRun | None = None  # of a compiled program
    overflow: Overflow | None = None
    idle: tuple[str, ...] = ()  # rewrites that were asked for and found nothing to do, each as a sentence

    @property
    def mesh(self) -> Mesh:
        """The devices of the whole program."""
        return self.workload.mesh

    def on(
        self, hardware: str | Device | Cluster, options: Options | None = None, **overrides: Unpack[PlacedKeywords]
    ) -> Run:
        """A `Run` of the kernels on chosen hardware (`jobs.lowered_on`), which times, simulates and predicts them.

        Args:
            hardware: A device or cluster of the catalogue, a file, or one of `Device` and `Cluster`.
            options: Settings of the stages that are left: estimates, network, run, and `overlap`.
            **overrides: Single ones, as `meshcast.predict` takes them.

        Raises:
            UsageError: A setting concerns a stage that is done, or the kernels are those of another kind of device.
        """
        from meshcast.jobs import lowered_on

        return lowered_on(self, hardware, options, overrides)

    def summary_rows(self) -> Rows:
        """Launches by kind, with what they move and do."""
        launches, moved = dict[str, int](), 0
        for kernel, count in self.schedule.walk():
            launches[kernel.kind.value] = launches.get(kernel.kind.value, 0) + count
            moved += count * (kernel.read_bytes + kernel.written_bytes) if kernel.collective is None else 0
        return [
            ("program", self.workload.name),
            ("backend", self.backend),
            ("lowering", self.lowering),
            ("launches", f"{self.kernel_count:,} in a step"),
            *((f"  {kind}", f"{count:,}") for kind, count in sorted(launches.items(), key=lambda item: -item[1])),
            ("memory traffic", format_bytes(moved)),
        ]

    @property
    def kernel_count(self) -> int:
        """Launches in a step, collectives included."""
        return _LAUNCHES.of(self.schedule, None, lambda: sum(count for _, count in self.schedule.walk()))


_LAUNCHES: KeptBeside[int] = KeptBeside()  # sweeps ask for them again and again
