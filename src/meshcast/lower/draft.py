"""What passes work on: a program, and one of its blocks, on the way from ops to kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

from meshcast.lower.frameworks.separate_layers import Layers
from meshcast.lower.fused_kernels.equal_kernels import FusedKernels
from meshcast.lower.fusion.backward_sweep import Fusions
from meshcast.lower.fusion.rules import Fusion
from meshcast.lower.graph.aliases import Aliases
from meshcast.lower.graph.dead_code import without_unread
from meshcast.lower.graph.empty_arrays import empty_values
from meshcast.lower.graph.free_values import FreeValues
from meshcast.lower.kernel import Schedule, Step
from meshcast.lower.products.narrow_weights import Stored
from meshcast.lower.products.ragged_products import RaggedProducts
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import AttentionLibrary, Block, Cost, Op, OpKind, Workload


@dataclass(slots=True, kw_only=True)
class ProgramDraft:
    """A program, what was asked for (see `lower`), and what is known of its values; all of its blocks share it."""

    workload: Workload
    fusion: Fusion
    attention: AttentionLibrary
    layers: Layers
    ragged: RaggedProducts
    tiles: bool = False  # whether transposes at the end of fusions go through tiles in shared memory, as XLA:GPU's do
    values: ValueTypes = field(init=False)  # types, which grow
    aliases: Aliases = field(init=False)
    kernels: FusedKernels = field(init=False)
    empty: frozenset[int] = field(init=False)  # values without elements
    on_data: frozenset[str] = field(init=False)  # labels of loops that end on data
    free: FreeValues = field(default_factory=FreeValues)  # what blocks read from outside
    spread: dict[int, int] = field(
        default_factory=dict
    )  # broadcasts that loops carry unchanged -> bytes they are made of
    schedule: Schedule = field(
        default_factory=lambda: Schedule(inputs=(), outputs=(), steps=())
    )  # once blocks are lowered

    def __post_init__(self) -> None:
        self.values = ValueTypes(self.workload.tensors)
        self.aliases = Aliases(self.values.tensors)
        self.kernels = FusedKernels(self.values.tensors, tiles=self.tiles)
        self.empty = empty_values(self.values.tensors)
        self.on_data = frozenset(loop.label for loop in self.workload.data_loops)


@dataclass(slots=True, kw_only=True)
class BlockDraft:
    """A block: its ops, then how they fuse, then its steps."""

    program: ProgramDraft
    block: Block
    writable: frozenset[int]  # inputs that may be overwritten
    looped: bool  # whether it is a loop's body, or lies in one
    ops: Sequence[Op] = ()
    nested: set[int] = field(default_factory=set)  # values that blocks in this one read
    kept: set[int] = field(default_factory=set)  # those, and the block's results
    stored: Mapping[int, Stored] = field(default_factory=dict)  # widened weights -> what they are made of
    operands: list[tuple[int, ...]] = field(default_factory=list)  # of each op, views resolved
    outputs: tuple[int, ...] = ()  # views resolved
    live_out: frozenset[int] = frozenset()  # `kept`, views resolved
    updates: Mapping[int, Op] = field(default_factory=dict)  # in place, by the place of a pass that may do the same
    fusions: Fusions = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)  # places of updates that work on a copy of their target
    cold: set[int] = field(default_factory=set)  # places of slices that no cache can hold yet
    steps: list[Step] = field(default_factory=list)
    _costed: tuple[Sequence[Op], Mapping[int, Cost], Set[OpKind]] = ((), {}, frozenset())  # of which ops, by identity

    @property
    def costs(self) -> Collection[Cost]:
        """What its ops cost, each once: most of a long program share few, so that these tell soon what it has none of."""
        return self._costs_of_ops()[1].values()

    @property
    def kinds(self) -> Set[OpKind]:
        """Kinds of its ops."""
        return self._costs_of_ops()[2]

    def _costs_of_ops(self) -> tuple[Sequence[Op], Mapping[int, Cost], Set[OpKind]]:
        if self._costed[0] is not self.ops:
            costs = {id(op.cost): op.cost for op in self.ops}
            self._costed = self.ops, costs, {cost.kind for cost in costs.values()}
        return self._costed

    @property
    def values(self) -> ValueTypes:
        """Types of all values of the program."""
        return self.program.values

    @property
    def buffer(self) -> dict[int, int]:
        """The value whose bytes a view shows."""
        return self.program.aliases.buffer

    def take_shown(self, ops: Sequence[Op]) -> None:
        """Takes ops in place of its own, some of whose results are names of other values now, without what nobody reads then.

        What outlives the block may be one of those names, and then is what it shows.
        """
        self.kept.update([self.buffer[value] for value in self.kept if value in self.buffer])
        self.ops = without_unread(ops, self.kept, self.buffer, self.program.free)
