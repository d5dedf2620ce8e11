"""Do all members of every collective reach it? Found before simulating, because a run would wait for ever.

Ranks post collectives in the order of their own program, and one goes through when every member of its group has posted
the same: kind, bytes, members. Ranks that post alike and meet alike are one class (`simulate.classes`), so that the check
grows with the number of different programs, not of ranks. When no class can go on, each waits at some collective for
others that are elsewhere. Either one of these is done and will never come, or it waits in the same group at another kind
or size, or the waits close a circle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.base import OUTSIDE, UsageError
from meshcast.simulate.classes import Ints, RankClasses, refine
from meshcast.workload import Posted, RankSequence

RANKS_NAMED = 4


def check_matching(sequences: Sequence[RankSequence], ranks: int, *, where: str) -> None:
    """Makes sure that every collective is reached by all of its members.

    Args:
        sequences: What the ranks post; each rank is in one of them.
        ranks: How many there are.
        where: The program's name, for messages.

    Raises:
        UsageError: Some would wait for ever; ranks and collectives are named.
    """
    program_of = np.full(ranks, -1, dtype=np.int64)
    for index, sequence in enumerate(sequences):
        program_of[sequence.ranks] = index
    posts = {id(post): post for sequence in sequences for post in sequence.posts}
    classes = refine(program_of, [post.groups for post in posts.values()])
    _Matching(sequences, program_of, classes, dict(zip(posts, classes.together, strict=True)), where).run()


class _Matching:
    def __init__(
        self,
        sequences: Sequence[RankSequence],
        program_of: Ints,
        classes: RankClasses,
        together: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]],
        where: str,
    ) -> None:
        self._classes = classes
        self._where = where
        self._together = together
        programs = [int(program_of[first]) for first in classes.first]
        self._labels = [sequences[program].label if program >= 0 else "" for program in programs]
        # A rank takes no part in a collective that its groups leave out.
        self._posts = [
            [post for post in sequences[program].posts if post.groups[first] != OUTSIDE] if program >= 0 else []
            for program, first in zip(programs, classes.first, strict=True)
        ]
        self._at = [0] * classes.count

    def run(self) -> None:
        while any(self._now(each) is not None for each in range(self._classes.count)):
            ready = [
                each for each in range(self._classes.count) if self._now(each) is not None and not self._awaited(each)
            ]
            if not ready:
                raise self._deadlock()
            for each in ready:
                self._at[each] += 1

    def _now(self, each: int) -> Posted | None:
        return self._posts[each][self._at[each]] if self._at[each] < len(self._posts[each]) else None

    def _partners(self, each: int) -> list[int]:
        post = self._now(each)
        return [int(other) for other in np.flatnonzero(self._together[id(post)][each]) if other != each]

    def _awaited(self, each: int) -> list[int]:
        """The classes that have not posted what this one has."""
        mine = self._now(each)
        assert mine is not None
        return [other for other in self._partners(each) if not self._same(each, other)]

    def _same(self, each: int, other: int) -> bool:
        mine, theirs = self._now(each), self._now(other)
        if mine is None or theirs is None:
            return False
        if mine is theirs:
            return True
        return (mine.kind, mine.size) == (theirs.kind, theirs.size) and self._same_group(each, mine, theirs)

    def _same_group(self, each: int, mine: Posted, theirs: Posted) -> bool:
        rank = self._classes.first[each]
        members = mine.groups == mine.groups[rank]
        numbers = theirs.groups[members]
        return bool(np.all(numbers == numbers[0]) and np.count_nonzero(theirs.groups == numbers[0]) == members.sum())

    def _deadlock(self) -> UsageError:
        stuck = [each for each in range(self._classes.count) if self._now(each) is not None]
        waits = {each: self._awaited(each) for each in stuck}
        for each in stuck:
            for other in waits[each]:
                if self._now(other) is None:
                    return self._missing(each, other)
        for each in stuck:
            for other in waits[each]:
                mine, theirs = self._now(each), self._now(other)
                if mine is not None and theirs is not None and self._same_group(each, mine, theirs):
                    return self._mismatch(each, other)
        return self._circle(stuck, waits)

    def _missing(self, each: int, other: int) -> UsageError:
        done = f"after {len(self._posts[other])} collectives" if self._posts[other] else "without any collective"
        return UsageError(
            f"deadlock: {self._named(each)} wait in {self._now(each)} for {self._named(other)}, which are done {done} and "
            "never come to it",
            where=self._where,
            fix="let every member of a group run the same collectives, or leave those ranks out of the group",
        )

    def _mismatch(self, each: int, other: int) -> UsageError:
        return UsageError(
            f"deadlock: {self._named(each)} run {self._now(each)} where {self._named(other)} of the same group run "
            f"{self._now(other)}",
            where=self._where,
            fix="all members of a group must run the same collective, of the same size",
        )

    def _circle(self, stuck: list[int], waits: dict[int, list[int]]) -> UsageError:
        path = [stuck[0]]
        while waits[path[-1]][0] not in path:
            path.append(waits[path[-1]][0])
        circle = path[path.index(waits[path[-1]][0]) :]
        said = "; ".join(
            f"{self._named(each)} are in {self._now(each)} and wait for {self._named(waits[each][0])}"
            for each in circle
        )
        return UsageError(
            f"deadlock: collectives in different orders: {said}",
            where=self._where,
            fix="let all ranks run the collectives that they share in the same order",
        )

    def _named(self, each: int) -> str:
        ranks = np.flatnonzero(self._classes.of_rank == each)
        shown = ", ".join(map(str, ranks[:RANKS_NAMED]))
        more = f", ... ({len(ranks):,} in all)" if len(ranks) > RANKS_NAMED else ""
        label = f" ({self._labels[each]})" if self._labels[each] else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}{label}"
