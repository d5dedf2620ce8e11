"""`Workload`: one device's op graph with its totals, a columnar view, a content hash and a printer."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from meshcast.base import Mesh, Rows, shown
from meshcast.programs import Argument
from meshcast.workload.data_loops import DataLoop
from meshcast.workload.graph import AttentionLibrary, Block, Collective, Op, Tensor
from meshcast.workload.made_launches import FrameworkStep

if TYPE_CHECKING:
    from meshcast.lower import Fusion, Layers, LoweredProgram, RaggedProducts

COLUMNS = np.dtype(
    [
        ("name", "U48"), ("kind", "U16"), ("dtype", "U16"), ("count", "i8"), ("matrix_flops", "f8"),
        ("vector_flops", "f8"), ("transcendentals", "f8"), ("read_bytes", "f8"), ("written_bytes", "f8"),
        ("sent_bytes", "f8"), ("recomputed", "?"),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a step of one device, loops multiplied, branches at their costlier side."""

    matrix_flops: dict[str, float]
    vector_flops: dict[str, float]
    transcendentals: float
    unfused_bytes: float
    recomputed_flops: float
    collective_bytes: dict[str, float]
    ops: int

    @property
    def flops(self) -> float:
        """All FLOPs, matrix and vector."""
        return sum(self.matrix_flops.values()) + sum(self.vector_flops.values())


@shown
@dataclass(frozen=True, kw_only=True)
class Workload:
    """The op graph of one device's program."""

    name: str
    tensors: tuple[Tensor, ...] = field(repr=False)
    body: Block = field(repr=False)
    arguments: tuple[Argument, ...] = field(repr=False)
    mesh: Mesh
    source: str
    sha256: str
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # the program's
    data_loops: tuple[DataLoop, ...] = ()  # whose turns no constant of the program says
    scheduled: bool = False  # a compiler's output: ops say which launch they belong to, in launch order
    on_chip: frozenset[int] = field(default=frozenset(), repr=False)  # values that a compiler keeps out of main memory
    step: FrameworkStep | None = None  # what a framework that runs op by op says of the whole step

    @property
    def devices(self) -> int:
        """Devices the whole program runs on."""
        return self.mesh.size

    def lower(
        self,
        *,
        backend: str = "xla-gpu",
        given: bool = True,
        fusion: Fusion = "compiler",
        attention: AttentionLibrary = "cudnn",
        layers: Layers = "scanned",
        ragged: RaggedProducts = "masked",
    ) -> LoweredProgram:
        """The kernels that one device runs for the op graph, by modelled rules (`lower.lower`).

        Args:
            backend: Whose fusion rules: `xla-gpu`, `xla-tpu`, `npu`, or `none`.
            given: Keep the kernels of a program that a compiler has scheduled already; False fuses its ops anew.
            fusion: Who fuses on GPUs: the compiler, or an eager framework nothing beyond its own ops.
            attention: Whose fused attention runs on GPUs.
            layers: Whether loops copy into and out of stacked arrays, or each turn has arrays of its own.
            ragged: Whether ragged products on GPUs are dense ones of masked operands, or one grouped kernel.

        Raises:
            UsageError: There is no such backend.
        """
        from meshcast.lower import lower

        return lower(
            self, backend=backend, given=given, fusion=fusion, attention=attention, layers=layers, ragged=ragged
        )

    def walk(self) -> Iterator[tuple[Op, int]]:
        """Every op with how often it runs in a step; of branches only the costlier one."""
        return self.body.walk()

    def collectives(self) -> Iterator[tuple[Collective, int]]:
        """Every collective with how often it runs."""
        for op, count in self.walk():
            if isinstance(op.cost.geometry, Collective):
                yield op.cost.geometry, count

    @cached_property
    def table(self) -> np.ndarray[Any, Any]:
        """One row per op, as columns; sums of `count * column` are the step's totals."""
        rows = []
        for op, count in self.walk():
            cost = op.cost
            sent = cost.geometry.sent_bytes if isinstance(cost.geometry, Collective) else 0.0
            rows.append(
                (op.name, cost.kind.value, cost.dtype, count, cost.matrix_flops, cost.vector_flops,
                 cost.transcendentals, sum(cost.operand_bytes), cost.written_bytes, sent, op.recomputed)
            )  # fmt: skip
        return np.array(rows, dtype=COLUMNS)

    @cached_property
    def totals(self) -> Totals:
        """Sums over the step."""
        matrix: defaultdict[str, float] = defaultdict(float)
        vector: defaultdict[str, float] = defaultdict(float)
        collective: defaultdict[str, float] = defaultdict(float)
        transcendentals = unfused = recomputed = 0.0
        ops = 0
        for op, count in self.walk():
            cost = op.cost
            ops += 1
            if cost.matrix_flops:
                matrix[cost.dtype] += count * cost.matrix_flops
                recomputed += count * op.recomputed_flops
            if cost.vector_flops:
                vector[cost.dtype] += count * cost.vector_flops
            transcendentals += count * cost.transcendentals
            if isinstance(cost.geometry, Collective):
                collective[cost.geometry.kind] += count * cost.geometry.sent_bytes
            else:
                unfused += count * (sum(cost.operand_bytes) + cost.written_bytes)
        return Totals(
            matrix_flops=dict(matrix),
            vector_flops=dict(vector),
            transcendentals=transcendentals,
            unfused_bytes=unfused,
            recomputed_flops=recomputed,
            collective_bytes=dict(collective),
            ops=ops,
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything a model can see: ops, shapes, loops, donation, roles; not names, files or locations."""
        digest = hashlib.sha256()
        held = tuple((a.role, a.donated, a.aliased_output) for a in self.arguments)
        digest.update(repr((self.tensors, self.mesh, held, self.scheduled)).encode())
        _hash_block(self.body, digest.update)
        return digest.hexdigest()

    def summary_rows(self) -> Rows:
        """Rows with the workload's name and its totals."""
        from meshcast.workload.printer import summary_rows  # the printer needs this class

        return summary_rows(self)


def _hash_block(block: Block, update: Callable[[bytes], None]) -> None:
    update(repr((block.inputs, block.outputs, len(block.ops))).encode())
    for op in block.ops:
        update(
            repr(
                (op.name, op.cost, op.operands, op.results, op.trip_count, op.redundant_flops, len(op.blocks))
            ).encode()
        )
        if op.launch is not None:
            update(repr(op.launch).encode())
        for inner in op.blocks:
            _hash_block(inner, update)


def are_alike(branches: Sequence[Block]) -> bool:
    """Whether the branches cost nearly the same: equal matrix FLOPs, and sizes within a tenth."""
    flops = {block.matrix_flops for block in branches}
    sizes = [block.weight for block in branches]
    return len(flops) == 1 and max(sizes) <= 1.1 * min(sizes)
