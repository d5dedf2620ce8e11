"""Sums over what ranks run: by class of op, by loop, by line of the program, kernel by kernel.

All are of the average device: of each kind of rank what it runs, weighted by how many ranks there are of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from meshcast.report.subject import Scene
from meshcast.report.work import Launches, launches

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True, kw_only=True)
class Sums:
    """What some launches take together, on the average device."""

    seconds: float = 0.0
    count: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    sent: float = 0.0
    joules: float = 0.0
    first: Launches | None = None

    def add(self, each: Launches, weight: float) -> None:
        """Adds what a share of all devices runs."""
        times = weight * each.count
        self.seconds += weight * each.seconds
        self.count += times
        self.flops += times * each.flops
        self.bytes += times * each.bytes
        if each.kernel.collective is not None:
            self.sent += times * each.kernel.collective.sent_bytes
        else:
            self.joules += times * each.run.kernels[each.kernel].energy
        if self.first is None or each.seconds > self.first.seconds:
            self.first = each


def all_launches(scene: Scene) -> Iterator[tuple[Launches, float]]:
    """Every kernel of every kind of rank, with the share of all devices that runs it."""
    total = sum(ranks.ranks for ranks in scene.work)
    for ranks in scene.work:
        for each in launches(ranks):
            yield each, ranks.ranks / total


def tallied(scene: Scene, key: Callable[[Launches], Key]) -> list[tuple[Key, Sums]]:
    """What kernels with the same key take together, the longest first."""
    found: dict[Key, Sums] = {}
    for each, weight in all_launches(scene):
        name = key(each)
        if name not in found:
            found[name] = Sums()
        found[name].add(each, weight)
    return sorted(found.items(), key=lambda item: -item[1].seconds)
