"""Ranks that wait for each other for ever: which, at which nodes, and for what."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshcast.base import InputError, shortened
from meshcast.chakra import circle_of
from meshcast.jobs.traced.ranks import TracedRanks

MOST_NAMED = 8
Place = tuple[int, int]  # a class, and a step of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Steps that never end.

    Attributes:
        job: The job.
        waits: What each of them waits for.
        elsewhere: Those that wait for another rank: the send of a receive, a collective that others have not come to.
    """

    job: TracedRanks
    waits: dict[Place, list[Place]] = field(repr=False)
    elsewhere: frozenset[Place] = field(repr=False)

    def error(self) -> InputError:
        """The circle that they wait in; of a trace that stands for all ranks, what it waits for."""
        places = list(self.waits)
        order = {place: number for number, place in enumerate(places)}
        circle = circle_of([[order[before] for before in befores] for befores in self.waits.values()])
        if circle:
            steps = self._of_ranks([places[at] for at in circle])
            ranks = sorted({rank for rank, _ in steps})
            what = f"deadlock: {len(steps)} nodes of ranks {shortened(ranks, MOST_NAMED)} wait for each other in a circle: "
        else:
            steps = [
                (self.job.classes[number], index) for (number, index), befores in self.waits.items() if not befores
            ]
            many = len(self.waits) > 1
            never = f"{len(self.waits)} nodes never end, as these wait" if many else "a node never ends, as it waits"
            what = f"{never} for ranks that have no trace: "
        said = [f"{self.job.named(rank, i)}, a {self.job.step(rank, i).does}" for rank, i in steps[:MOST_NAMED]]
        more = f", ... ({len(steps)})" if len(steps) > MOST_NAMED else ""
        return InputError(
            what + (", which waits for " if circle else ", ").join(said) + more,
            where=self.job.sources[steps[0][0]].where,
            fix="let one of them begin: change what it waits for, or the order of the numbers of nodes",
        )  # fmt: skip

    def _of_ranks(self, circle: list[Place]) -> list[tuple[int, int]]:
        """A circle of classes as one of (rank, step), which may go round several times before it meets itself."""
        first = circle.index(min(circle))  # so that equal traces give equal messages
        circle = [*circle[first:], *circle[:first]]
        seen: dict[tuple[int, int], int] = {}
        path: list[tuple[int, int]] = []
        rank, at = self.job.classes[circle[0][0]], 0
        while (rank, at) not in seen:
            seen[rank, at] = len(path)
            path.append((rank, circle[at][1]))
            after = circle[(at + 1) % len(circle)]
            if circle[at] in self.elsewhere:
                rank = self._met(rank, circle[at], after)
            at = (at + 1) % len(circle)
        return path[seen[rank, at] :]

    def _met(self, rank: int, place: Place, after: Place) -> int:
        """The rank, of the class of `after`, that a step of a rank waits for."""
        step = self.job.steps[place[0]][place[1]]
        if step.does == "receive":
            return self.job.peers_of[rank][step.peer]
        name, theirs = self.job.groups_of[rank][int(step.group)], int(self.job.steps[after[0]][after[1]].group)
        return next(
            member
            for member in self.job.groups[name]
            if self.job.of_rank[member] == after[0] and self.job.groups_of[member][theirs] == name
        )
