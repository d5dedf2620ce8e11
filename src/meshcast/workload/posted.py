"""The collectives that each rank of a program posts: branches taken by the rank's own number are told apart.

An SPMD program is the same for all, so its collectives match, with one exception: a branch whose predicate comes from
`partition_id` or `replica_id`. Such predicates are worked out for all ranks at once. A predicate that comes from data is
taken to be the same on all ranks, as SPMD programs have to make it; a loop's body counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import OUTSIDE, UsageError, format_bytes, group_numbers
from meshcast.programs import Program, entry_function, ir, stablehlo, string_of, symbol_of
from meshcast.workload.emitted_ops import location_name
from meshcast.workload.graph import Block, Collective, OpKind
from meshcast.workload.groups import linked, permute_pairs, replica_group
from meshcast.workload.local_types import LocalTypes
from meshcast.workload.workload import Workload

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_GROUPED = frozenset(
    f"stablehlo.{kind}"
    for kind in (
        "all_gather", "all_reduce", "all_to_all", "reduce_scatter", "collective_broadcast", "collective_reduce",
        "collective_permute",
    )
)  # fmt: skip
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": lambda value: np.where((value == 0) | (value == 1), 1 - value, ~value),
    "select": lambda which, yes, no: np.where(which != 0, yes, no),
    "clamp": lambda low, value, high: np.clip(value, low, high),
    "divide": lambda a, b: a // np.where(b == 0, 1, b),
    "remainder": lambda a, b: a % np.where(b == 0, 1, b),
    "convert": lambda value: value,
    "reshape": lambda value: value,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posted:
    """A collective as a program posts it.

    Attributes:
        kind: What it does.
        size: Bytes that every member holds.
        groups: The group number of every rank, or `OUTSIDE`.
        location: Where in the program it stands.
    """

    kind: str
    size: int
    groups: Ints
    location: str = ""

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        return f"{self.kind.replace('_', '-')} of {format_bytes(self.size)}{place}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankSequence:
    """The collectives that some ranks post, in order.

    Attributes:
        ranks: Whose it is.
        posts: The collectives.
        label: What to call the program, where there are several.
    """

    ranks: Ints
    posts: tuple[Posted, ...]
    label: str = ""


def may_deadlock(workload: Workload) -> bool:
    """Whether a program has what only a check can tell: collectives inside branches, or messages over channels."""
    return _may_deadlock(workload.body, inside=False)


def _may_deadlock(block: Block, *, inside: bool) -> bool:
    for op in block.ops:
        if op.name in ("stablehlo.send", "stablehlo.recv") or (inside and isinstance(op.cost.geometry, Collective)):
            return True
        branch = inside or op.cost.kind is OpKind.BRANCH
        if any(_may_deadlock(body, inside=branch) for body in op.blocks):
            return True
    return False


def rank_sequences(program: Program) -> tuple[RankSequence, ...]:
    """The collectives that the ranks of a program post; ranks that post the same are one sequence.

    Raises:
        UsageError: A message has no partner.
        UnsupportedError: The size of what is posted is not known.
    """
    posts = _PostedReader(program).posts()
    masks = np.stack([mask for _, mask in posts]) if posts else np.zeros((0, program.devices), dtype=np.bool_)
    _, role = np.unique(masks, axis=1, return_inverse=True) if posts else (None, np.zeros(program.devices, dtype=int))
    role = np.asarray(role).reshape(-1)
    sequences = []
    for number in range(int(role.max()) + 1 if role.size else 0):
        ranks = np.flatnonzero(role == number)
        mine = tuple(post for post, mask in posts if mask[ranks[0]])
        sequences.append(RankSequence(ranks=ranks, posts=mine))
    return tuple(sequences)


def program_sequence(program: Program, own: Ints, ranks: int) -> RankSequence:
    """The collectives that ranks with a program of their own post.

    Args:
        program: The program; its collectives name ranks of the whole job.
        own: The ranks that run it.
        ranks: How many there are in all.
    """
    posts = tuple(post for post, _ in _PostedReader(program, ranks=ranks).posts())
    return RankSequence(ranks=own, posts=posts, label=program.name)


class _PostedReader:
    """Walks a module in order with what is known of integers on every rank."""

    def __init__(self, program: Program, *, ranks: int | None = None) -> None:
        self._program = program
        self._ranks = ranks or program.devices
        self._functions = {
            string_of(op.attributes["sym_name"]): op
            for op in program.module.body.operations
            if op.operation.name == "func.func"
        }
        self._posts: list[tuple[Posted, Mask]] = []
        self._types = LocalTypes(program.mesh, where=program.name)
        self._channels: dict[int, dict[str, tuple[int, str]]] = {}

    def posts(self) -> list[tuple[Posted, Mask]]:
        """Every collective with the ranks that post it, in program order."""
        main = entry_function(self._program.module, where=self._program.source)
        self._block(main.operation.regions[0].blocks[0], {}, np.ones(self._ranks, dtype=np.bool_))
        self._check_channels()
        return self._posts

    def _block(self, block: Any, known: dict[Any, Ints], mask: Mask) -> list[Ints | None]:
        """Walks a block; says what is known of the values it returns."""
        for each in block.operations:
            operation = each.operation
            name = operation.name
            if name in _GROUPED:
                self._post(operation, mask)
            elif name in ("stablehlo.send", "stablehlo.recv"):
                self._message(operation)
            elif name in ("stablehlo.case", "stablehlo.if"):
                self._branch(operation, known, mask)
            elif name == "func.call":
                self._call(operation, known, mask)
            elif name in ("stablehlo.return", "func.return", "sdy.return"):
                return [known.get(value) for value in operation.operands]
            elif name in ("stablehlo.while", "sdy.manual_computation", "stablehlo.composite"):
                for region in operation.regions:
                    for inner in region.blocks:
                        self._block(inner, known, mask)
            else:
                value = self._value(operation, known)
                if value is not None:
                    known[operation.results[0]] = value
        return []

    def _call(self, operation: Any, known: dict[Any, Ints], mask: Mask) -> None:
        callee = self._functions[symbol_of(operation.attributes["callee"])]
        block = callee.operation.regions[0].blocks[0]
        given = zip(block.arguments, operation.operands, strict=True)
        inside = {argument: known[value] for argument, value in given if value in known}
        returned = self._block(block, inside, mask)
        known.update({r: v for r, v in zip(operation.results, returned, strict=False) if v is not None})

    def _branch(self, operation: Any, known: dict[Any, Ints], mask: Mask) -> None:
        index = known.get(operation.operands[0])
        bodies = [region.blocks[0] for region in operation.regions]
        if index is None:  # from data: one of them runs, the same everywhere; the one that communicates most is checked
            before, found = self._posts, []
            for body in bodies:
                self._posts = []
                self._block(body, known, mask)
                found.append(self._posts)
            self._posts = before + max(found, key=len)
            return
        if operation.name == "stablehlo.if":
            index = np.where(index != 0, 0, 1)
        last = len(bodies) - 1
        index = np.where((index < 0) | (index > last), last, index)  # out of range means the last one
        for number, body in enumerate(bodies):
            self._block(body, known, mask & (index == number))

    def _value(self, operation: Any, known: dict[Any, Ints]) -> Ints | None:
        """A scalar integer on every rank, where it can be told."""
        name = operation.name.removeprefix("stablehlo.")
        partitions = self._partitions()
        if name == "partition_id":
            return np.arange(self._ranks) % partitions
        if name == "replica_id":
            return np.arange(self._ranks) // partitions
        if name == "constant":
            value = ir.DenseElementsAttr(operation.attributes["value"])
            kind = ir.RankedTensorType(value.type)
            integer = isinstance(kind.element_type, ir.IntegerType)
            if not integer or kind.rank > 1 or (kind.rank == 1 and kind.shape[0] > self._ranks):
                return None
            numbers = np.asarray(value).astype(np.int64).reshape(-1)
            return np.full(self._ranks, numbers[0]) if numbers.size == 1 else None
        operands = [known.get(value) for value in operation.operands]
        if not operands or any(value is None for value in operands):
            return None
        if name == "compare":
            direction = stablehlo.ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value
            return _COMPARISONS[direction](*operands).astype(np.int64)  # type: ignore[no-any-return]
        if name not in _ARITHMETIC:
            return None
        return np.asarray(_ARITHMETIC[name](*operands), dtype=np.int64)

    def _partitions(self) -> int:
        attributes = self._program.module.operation.attributes
        name = "mhlo.num_partitions"
        return int(ir.IntegerAttr(attributes[name]).value) if name in attributes else self._ranks

    def _post(self, operation: Any, mask: Mask) -> None:
        kind = operation.name.removeprefix("stablehlo.")
        post = Posted(
            kind=kind,
            size=sum(self._types.tensor(value.type).bytes for value in operation.operands),
            groups=self._groups(operation, kind),
            location=location_name(operation),
        )
        self._posts.append((post, mask))

    def _groups(self, operation: Any, kind: str) -> Ints:
        if kind == "collective_permute":
            numbers = np.full(self._ranks, OUTSIDE, dtype=np.int64)
            sources, targets = permute_pairs(operation.attributes["source_target_pairs"])
            numbers[sources] = numbers[targets] = linked(sources, targets)
            return numbers
        return group_numbers(replica_group(operation.attributes["replica_groups"], self._program.mesh), self._ranks)

    def _message(self, operation: Any) -> None:
        attributes = operation.attributes
        if "is_host_transfer" in attributes and ir.BoolAttr(attributes["is_host_transfer"]).value:
            return
        channel = stablehlo.ChannelHandle(attributes["channel_handle"]).handle
        kind = operation.name.removeprefix("stablehlo.")
        values = operation.operands if kind == "send" else operation.results
        size = sum(self._types.tensor(value.type).bytes for value in values)
        ends = self._channels.setdefault(channel, {})
        if kind in ends:
            raise UsageError(
                f"two {kind}s on channel {channel}: at {ends[kind][1] or 'one place'} and at "
                f"{location_name(operation) or 'another'}",
                where=self._program.name,
                fix="give every message a channel of its own",
            )
        ends[kind] = size, location_name(operation)

    def _check_channels(self) -> None:
        for channel, ends in self._channels.items():
            if len(ends) == 1:
                ((kind, (size, place)),) = ends.items()
                other = "recv" if kind == "send" else "send"
                raise UsageError(
                    f"deadlock: {kind} of {size:,} bytes on channel {channel}{f' at {place}' if place else ''} has no {other}",
                    where=self._program.name,
                    fix=f"add the {other} on channel {channel}",
                )
            if ends["send"][0] != ends["recv"][0]:
                raise UsageError(
                    f"channel {channel} sends {ends['send'][0]:,} bytes and receives {ends['recv'][0]:,}",
                    where=self._program.name,
                    fix="send and receive the same type",
                )
