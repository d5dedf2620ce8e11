"""A class of ranks as bytes: written once for all ranks whose numbers are equally long, then patched for each.

What differs from rank to rank (a group's number, a neighbour) stands at the very end of its node, so that its place is known.
Numbers of other lengths change the lengths of nodes before them: such ranks have a template of their own. There are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meshcast.chakra import (
    KERNEL,
    KERNELS,
    Generation,
    attribute_bytes,
    duration_bytes,
    metadata_bytes,
    node_bytes,
    node_head,
    packed_kernels,
    varint,
)
from meshcast.jobs import JobTrace, Piece, RankBody, RankClass, RankValues
from meshcast.traces.kernel_table import KernelTable, kernel_table

FIRST_NUMBER = 1  # of a file's nodes
Bytes = npt.NDArray[np.uint8]


def value_bytes(value: RankValues, rank: int) -> bytes:
    """The bytes of a value that differ between ranks: digits of a group, seven-bit groups of a neighbour."""
    number = int(value.of_rank[rank])
    return str(number).encode() if value.attribute == "pg_name" else varint(number)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """The file of a rank, and where other ranks' files differ from it.

    Attributes:
        data: The file.
        places: For each value that differs, by its number in the job, the bytes where it stands: a row a node.
    """

    data: Bytes
    places: dict[int, npt.NDArray[np.int64]]

    def of_rank(self, rank: int, values: Sequence[RankValues]) -> Bytes:
        """The file of another rank whose values are equally long."""
        patched = self.data.copy()
        for number, places in self.places.items():
            patched[places] = np.frombuffer(value_bytes(values[number], rank), dtype=np.uint8)
        return patched


@dataclass(slots=True, kw_only=True)
class ClassFiles:
    """The files of a class of ranks."""

    job: JobTrace
    of_class: RankClass
    generation: Generation
    _templates: dict[tuple[int, ...], Template] = field(default_factory=dict)
    _used: list[int] = field(init=False)
    _kernels: KernelTable = field(init=False)
    _tails: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # by the identity of a piece

    def __post_init__(self) -> None:
        self._kernels = kernel_table(self.of_class.body)
        self._used = self.of_class.body.rank_values()

    def file(self, rank: int) -> Bytes:
        """The file of one of its ranks."""
        return self._template(rank).of_rank(rank, self.job.groups.values)

    def size(self, rank: int) -> int:
        """Bytes of it."""
        return int(self._template(rank).data.size)

    def _template(self, rank: int) -> Template:
        values = self.job.groups.values
        widths = tuple(len(value_bytes(values[number], rank)) for number in self._used)
        found = self._templates.get(widths)
        if found is None:
            found = self._templates[widths] = self._encoded(rank)
        return found

    def _encoded(self, rank: int) -> Template:
        values = self.job.groups.values
        kernels = {KERNELS: packed_kernels(self._kernels.kernels)} if self._kernels.kernels else {}
        parts = [metadata_bytes(self.generation, {**self.job.metadata, **kernels})]
        at = len(parts[0])
        places: dict[int, list[int]] = {number: [] for number in self._used}
        attributes = {n: attribute_bytes_of(values[n], rank) for n in self._used}
        for number, node in enumerate(self._nodes(attributes)):
            parts.append(node)
            at += len(node)
            slot = self.of_class.body.pieces[number].rank_value
            if slot is not None:
                places[slot].append(at)
        widths = {number: len(value_bytes(values[number], rank)) for number in self._used}
        return Template(
            data=np.frombuffer(bytearray(b"".join(parts)), dtype=np.uint8),
            places={
                number: np.array(ends, dtype=np.int64)[:, None] - widths[number] + np.arange(widths[number])
                for number, ends in places.items()
            },
        )

    def _nodes(self, of_rank: dict[int, bytes]) -> Iterator[bytes]:
        body, both = self.of_class.body, self.generation == "current"
        # Every reader enforces data dependencies; those that are there for the order alone are named as such besides.
        for index, (piece, microseconds) in enumerate(zip(body.pieces, whole_microseconds(body), strict=True)):
            order = [FIRST_NUMBER + before for before in body.order[index]]
            needed = sorted({*order, *(FIRST_NUMBER + before for before in body.data[index])})
            head, tail = self._constant(piece)
            slot = b"" if piece.rank_value is None else of_rank[piece.rank_value]
            duration = duration_bytes(microseconds)
            yield node_bytes(FIRST_NUMBER + index, head, order if both else (), needed, duration, tail + slot)

    def _constant(self, piece: Piece) -> tuple[bytes, bytes]:
        found = self._tails.get(id(piece))
        if found is None:
            kernel = self._kernels.number(piece)
            said = piece.attributes if kernel is None else {**piece.attributes, KERNEL: kernel}
            tail = b"".join(attribute_bytes(name, value) for name, value in said.items())
            found = self._tails[id(piece)] = node_head(piece.label, piece.kind), tail
        return found


def attribute_bytes_of(value: RankValues, rank: int) -> bytes:
    """The attribute of a value that differs between ranks; a group's number is a text."""
    number = int(value.of_rank[rank])
    assert not value.missing(np.array([rank])).any(), "a rank that takes no part has no such node"
    return attribute_bytes(value.attribute, str(number) if value.attribute == "pg_name" else number)


def whole_microseconds(body: RankBody) -> Iterator[int]:
    """Durations in whole microseconds, rounded so that the sum on every stream stays right to half a microsecond."""
    exact: dict[tuple[int, bool], float] = {}
    for piece in body.pieces:
        stream = (piece.stream, piece.host)
        before = exact.get(stream, 0.0)
        exact[stream] = after = before + piece.seconds * 1e6
        yield round(after) - round(before)
