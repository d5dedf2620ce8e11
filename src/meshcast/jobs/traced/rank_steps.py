"""`RankSteps`: what one rank does, with groups and neighbours by their places, and where in its file that stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from meshcast.jobs.traced.steps import TraceStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """The file of a rank, and the byte at which each of its steps begins; neither where the steps are of no file."""

    where: str = ""
    offsets: tuple[int, ...] = field(default=(), repr=False)

    def named(self, step: TraceStep, index: int) -> str:
        """A step as messages call it, `index` being its place among the file's."""
        at = f" (at byte {self.offsets[index]} of {self.where})" if self.offsets else ""
        return f"node {step.number} {step.name!r}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """What one rank does, with whom: steps name groups and neighbours by their places in these lists."""

    steps: tuple[TraceStep, ...] = field(repr=False)
    groups: tuple[str, ...]
    peers: tuple[int, ...]
    source: RankFile = RankFile()
    peak_bytes: int | None = None

    def first_with_group(self, place: int) -> str:
        """The first step over a group, as messages call it."""
        return self._named(lambda step: step.does == "collective" and int(step.group) == place)

    def first_with_peer(self, place: int) -> str:
        """The first message to or from a neighbour, as messages call it."""
        return self._named(lambda step: step.does in ("send", "receive") and step.peer == place)

    def _named(self, wanted: Callable[[TraceStep], bool]) -> str:
        index = next(index for index, step in enumerate(self.steps) if wanted(step))
        return self.source.named(self.steps[index], index)


def relative(steps: tuple[TraceStep, ...]) -> RankSteps:
    """Steps that name groups and peers by the order in which the rank first meets them."""
    groups: dict[str, int] = {}
    peers: dict[int, int] = {}
    found = []
    for step in steps:
        if step.does == "collective":
            found.append(replace(step, group=str(groups.setdefault(step.group, len(groups)))))
        elif step.does in ("send", "receive"):
            found.append(replace(step, peer=peers.setdefault(step.peer, len(peers))))
        else:
            found.append(step)
    return RankSteps(steps=tuple(found), groups=tuple(groups), peers=tuple(peers))
