"""The columns that a fabric is made of: nodes, directed links between them, and paths over these links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NONE = -1  # in a column of links: this flow has no such hop


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """Directed links, one a row: parallel ones between the same two nodes are one row.

    Attributes:
        source: Node that a link leaves.
        target: Node that it enters.
        bandwidth: bytes/s when healthy.
        latency_s: Seconds of the first byte.
        level: Index of the network level that it belongs to.
        lanes: Physical links that the row stands for.
    """

    source: Ints
    target: Ints
    bandwidth: Floats
    latency_s: Floats
    level: Ints
    lanes: Ints

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """Which flow uses which link, and with what share of its bytes: one row for each hop of each flow."""

    flow: Ints
    link: Ints
    share: Floats

    @classmethod
    def of_hops(cls, hops: Sequence[Ints], flow: Ints | None = None, share: Floats | None = None) -> Paths:
        """Paths from columns of links, one column a hop, with NONE where a flow has no such hop."""
        table = np.stack(hops)
        hop, row = np.nonzero(table != NONE)
        return cls(
            flow=row if flow is None else flow[row],
            link=table[hop, row],
            share=np.ones(len(row)) if share is None else share[row],
        )

    @classmethod
    def joined(cls, parts: Sequence[Paths]) -> Paths:
        """All of these paths together."""
        if not parts:
            return cls(flow=np.empty(0, np.int64), link=np.empty(0, np.int64), share=np.empty(0))
        return cls(
            flow=np.concatenate([part.flow for part in parts]),
            link=np.concatenate([part.link for part in parts]),
            share=np.concatenate([part.share for part in parts]),
        )

    def numbered(self, flow: Ints) -> Paths:
        """A copy of the paths for flows with these numbers."""
        return Paths(flow=flow[self.flow], link=self.link, share=self.share)


@dataclass(slots=True, kw_only=True)
class Parts:
    """A fabric while it is put together: parts add nodes and links, and keep the numbers they get."""

    devices: int
    node_names: list[str] = field(init=False)
    _columns: list[tuple[Ints, Ints, Floats, Floats, Ints, Ints]] = field(init=False, default_factory=list)
    _links: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.node_names = [f"device {number}" for number in range(self.devices)]

    def nodes(self, kind: str, count: int) -> Ints:
        """Numbers of so many new nodes of a kind."""
        first = len(self.node_names)
        self.node_names.extend(f"{kind} {number}" for number in range(count))
        return np.arange(first, first + count)

    def connect(
        self,
        source: Ints,
        target: Ints,
        *,
        bandwidth: float | Floats,
        latency_s: float,
        level: int,
        lanes: int | Ints = 1,
    ) -> Ints:
        """Numbers of new links from each source to its target."""
        count = len(source)
        first, self._links = self._links, self._links + count
        self._columns.append(
            (
                np.asarray(source, np.int64),
                np.asarray(target, np.int64),
                np.broadcast_to(np.asarray(bandwidth, np.float64), (count,)),
                np.full(count, latency_s),
                np.full(count, level, np.int64),
                np.broadcast_to(np.asarray(lanes, np.int64), (count,)),
            )
        )
        return np.arange(first, self._links)

    def join(
        self, low: Ints, high: Ints, *, bandwidth: float, latency_s: float, level: int, lanes: int = 1
    ) -> tuple[Ints, Ints]:
        """Numbers of new links in both directions, of equal rate: (up, down)."""
        up = self.connect(low, high, bandwidth=bandwidth, latency_s=latency_s, level=level, lanes=lanes)
        down = self.connect(high, low, bandwidth=bandwidth, latency_s=latency_s, level=level, lanes=lanes)
        return up, down

    def finished(self) -> Links:
        """All links, in the order they were made."""
        if not self._columns:
            none, nothing = np.empty(0, np.int64), np.empty(0)
            return Links(source=none, target=none, bandwidth=nothing, latency_s=nothing, level=none, lanes=none)
        source, target, bandwidth, latency, level, lanes = map(np.concatenate, zip(*self._columns, strict=True))
        return Links(source=source, target=target, bandwidth=bandwidth, latency_s=latency, level=level, lanes=lanes)
