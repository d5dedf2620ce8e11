"""`Piece` and `RankBody`: nodes of a trace before they are bytes, with what they wait for.

A piece is what one node does, wherever it stands; pieces are shared by all places that do the same. A body is what one rank
does: pieces in the order of their numbers, each with earlier ones that it waits for, because it uses what they made (`data`)
or because it only follows them (`order`). A node ends at

    end(i) = seconds(i) + max(end(j) for j in data(i) and order(i))

since order on every stream is among its dependencies; so replaying a body needs no knowledge of streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from meshcast.chakra import Attribute, NodeType
from meshcast.lower import Kernel

Waits = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """One node of a trace: its work, its seconds, its stream and what it waits for.

    Attributes:
        label: What to call it.
        kind: The kind of node.
        seconds: How long it takes.
        stream: Where it runs: 0 computes, others are channels; -1 waits for a message, which takes no stream.
        attributes: The attributes of the node, all that are the same on every rank.
        rank_value: Which of the job's `RankValues` it has besides; None for none.
        host: Whether the host does it, beside the device.
        kernel: What a device is asked to run, one launch of it; None where that is not known or not to be told.
    """

    label: str
    kind: NodeType
    seconds: float
    stream: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    rank_value: int | None = None
    host: bool = False
    kernel: Kernel | None = None


RECEIVING = -1  # the stream of a receive


@dataclass(slots=True, eq=False)
class RankBody:
    """The nodes of one rank, in the order of their numbers."""

    pieces: list[Piece] = field(default_factory=list)
    data: list[Waits] = field(default_factory=list)
    order: list[Waits] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pieces)

    def add(self, piece: Piece, data: Collection[int] = (), order: Iterable[int] = ()) -> int:
        """Puts a node behind the others; its index."""
        self.pieces.append(piece)
        self.data.append(tuple(sorted(set(data))))
        self.order.append(tuple(sorted(set(order) - set(data))))
        return len(self.pieces) - 1

    def append(self, other: RankBody, entry: Iterable[int]) -> int:
        """Puts all of another body behind, which begins when `entry` is done; the index of its first node."""
        first, begin = len(self.pieces), tuple(sorted(set(entry)))
        self.pieces += other.pieces
        for data, order in zip(other.data, other.order, strict=True):
            self.data.append(tuple([first + index for index in data]))
            self.order.append(tuple([first + index for index in order]) if data or order else begin)
        return first

    def ends(self) -> list[float]:
        """When each node ends, of a rank that waits for nobody."""
        ends: list[float] = []
        for piece, data, order in zip(self.pieces, self.data, self.order, strict=True):
            start = 0.0
            for before in (*data, *order):
                if ends[before] > start:
                    start = ends[before]
            ends.append(start + piece.seconds)
        return ends

    def turns(self) -> int:
        """How many nodes there are with every turn of a loop, where some stand for all turns."""
        repeats = (piece.attributes.get("repeat", 1) for piece in self.pieces)
        return sum(repeat for repeat in repeats if isinstance(repeat, int))

    def rank_values(self) -> list[int]:
        """Which of the job's `RankValues` its nodes have, in order."""
        return sorted({piece.rank_value for piece in self.pieces if piece.rank_value is not None})

    def leaves(self) -> Waits:
        """Nodes that no other waits for."""
        waited = {before for waits in (*self.data, *self.order) for before in waits}
        return tuple(index for index in range(len(self.pieces)) if index not in waited)

    def without(self, left_out: Collection[int]) -> RankBody:
        """A copy without some nodes: what waited for one of them waits for what that one waited for."""
        kept, instead = RankBody(), dict[int, Waits]()
        for index, piece in enumerate(self.pieces):
            data, order = ([n for b in waits[index] for n in instead[b]] for waits in (self.data, self.order))
            instead[index] = (*data, *order) if index in left_out else (kept.add(piece, data, order),)
        return kept
