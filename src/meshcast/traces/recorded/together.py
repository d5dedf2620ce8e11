"""Ranks of a job put together: one clock, groups of ranks, and what collectives took without waiting for the last.

A collective ends on all ranks at about the same time, so the median difference between its ends on two ranks is the difference of
their clocks. On a rank its kernel also waits for those that come later: what it takes by itself is the shortest of all its ranks'
times, that of the last to come.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from meshcast.base import InputError
from meshcast.traces.recorded.collectives import Exchange
from meshcast.traces.recorded.linking import LinkedRank

MOST_RANKS = 1 << 20  # that a job may have: more than any that there is
_RANKS_FIX = "give the traces of all ranks of a job, each once, or of one rank alone"


@dataclass(slots=True, kw_only=True)
class LinkedJob:
    """All ranks of a job.

    Attributes:
        ranks: By rank.
        groups: Members of groups by the names that nodes use; the group of all ranks has none.
        span: Nanoseconds from the first begin to the last end, on one clock.
        skews: Nanoseconds by which each rank's clock is ahead of the first one's.
        notes: What was assumed.
    """

    ranks: list[LinkedRank]
    groups: dict[str, tuple[int, ...]]
    span: int
    skews: list[int]
    notes: list[str]

    def group_of(self, rank: int, said: Exchange) -> str:
        """The name of a communication's group; "" of all ranks."""
        members = _members(self.ranks, rank, said)
        return next((name for name, ranks in self.groups.items() if ranks == members), "")


def linked_job(ranks: Sequence[LinkedRank]) -> LinkedJob:
    """The job of some ranks, which are all that it has, or one that stands for all.

    Raises:
        InputError: Ranks are missing, there are several of one number, or one is of a job of another size.
    """
    for each in ranks:
        for what, said in (("rank", each.rank), ("a job of so many ranks,", each.world)):
            if said is not None and not 0 <= said <= MOST_RANKS:
                raise InputError(f"is of {what} {said}", where=each.where, fix=_RANKS_FIX)
    given = [(each.rank if each.rank is not None else place, each) for place, each in enumerate(ranks)]
    given.sort(key=lambda item: item[0])
    found = [each for _, each in given]
    numbers = [number for number, _ in given]
    if len(found) > 1 and numbers != list(range(len(found))):
        twice = sorted(number for number, times in Counter(numbers).items() if times > 1)
        missing = [next(number for number in count() if number not in numbers)]
        raise InputError(
            f"rank {twice[0]} has {numbers.count(twice[0])} traces" if twice else f"rank {missing[0]} has no trace",
            where=found[0].where, fix=_RANKS_FIX,
        )  # fmt: skip
    for each in found:
        if len(found) > 1 and each.world is not None and each.world != len(found):
            raise InputError(
                f"is of a job of {each.world} ranks, and {len(found)} ranks have traces", where=each.where,
                fix="give the traces of all ranks of one job, or of one rank alone, which stands for all",
            )  # fmt: skip
    skews = _skews(found)
    begin = min(each.start - skew for each, skew in zip(found, skews, strict=True))
    end = max(each.end - skew for each, skew in zip(found, skews, strict=True))
    notes = [f"rank {number}: {note}" for number, each in given for note in each.notes]
    if len(found) > 1:
        notes += _shorten(found)
        for each, skew in zip(found, skews, strict=True):
            _begin_later(each, each.start - skew - begin)
    return LinkedJob(ranks=found, groups=_groups(found), span=end - begin, skews=skews, notes=notes)


def _skews(ranks: Sequence[LinkedRank]) -> list[int]:
    """How far clocks are ahead of the first rank's, by the ends of collectives over all ranks; 0 where there are none."""
    first = _whole(ranks, 0)
    found = []
    for number, rank in enumerate(ranks):
        differences = [
            rank.drafts.end(mine) - ranks[0].drafts.end(theirs)
            for mine, theirs in zip(_whole(ranks, number), first, strict=False)
            if rank.drafts.communication[mine].code == ranks[0].drafts.communication[theirs].code
        ]
        found.append(round(statistics.median(differences)) if differences and number else 0)
    return found


def _whole(ranks: Sequence[LinkedRank], number: int) -> list[int]:
    """Rows of the collectives of a rank over all ranks."""
    drafts = ranks[number].drafts
    return [
        row for row in drafts.collectives() if len(_members(ranks, number, drafts.communication[row])) == len(ranks)
    ]


def _members(ranks: Sequence[LinkedRank], rank: int, said: Exchange) -> tuple[int, ...]:
    """The ranks of a group: as listed, else all ranks of the job.

    Raises:
        InputError: It is smaller than the job, and nobody says whose it is; or no number of ranks.
    """
    mine = ranks[rank]
    listed, listed_size = mine.groups.get(said.group, ((), 0))
    members, size = said.members or listed, said.group_size or listed_size
    world = len(ranks) if len(ranks) > 1 else max(mine.world or 1, size, 1 + max(members, default=0))
    if not 0 <= max(world, size) <= MOST_RANKS or min(members, default=0) < 0 or size < 0:
        raise InputError(
            f"process group {said.group!r} has {size} ranks, the highest of them {max(members, default=size - 1)}",
            where=mine.where, fix=f"ranks are numbers from 0 to {MOST_RANKS:,}: record the job again",
        )  # fmt: skip
    if members:
        return tuple(sorted(members))
    if size in (0, world):
        return tuple(range(world))
    if len(ranks) == 1:
        return tuple(range(size))
    raise InputError(
        f"process group {said.group!r} has {size} of {world} ranks, and neither trace says which", where=mine.where,
        fix="record with a PyTorch that writes the ranks of process groups (2.3 or newer)",
    )  # fmt: skip


def _groups(ranks: Sequence[LinkedRank]) -> dict[str, tuple[int, ...]]:
    """Groups by number, from 1 on; that of all ranks of several traces needs no name."""
    whole = tuple(range(len(ranks)))
    found: dict[tuple[int, ...], str] = {}
    for number, rank in enumerate(ranks):
        said = rank.drafts.communication
        for row in sorted(said, key=rank.drafts.number.__getitem__):
            members = _members(ranks, number, said[row])
            if members != whole or len(ranks) == 1:
                found.setdefault(members, str(len(found) + 1))
    return {name: members for members, name in found.items()}


def _shorten(ranks: Sequence[LinkedRank]) -> list[str]:
    """Gives collectives the time that they take by themselves; notes where ranks do not agree on them."""
    by_group: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for number, rank in enumerate(ranks):
        for row in rank.drafts.collectives():
            members = _members(ranks, number, rank.drafts.communication[row])
            by_group.setdefault(members, {}).setdefault(number, []).append(row)
    notes = []
    for members, rows in by_group.items():
        counts = {number: len(row) for number, row in rows.items()}
        if len(rows) != len(members) or len(set(counts.values())) > 1:
            notes.append(f"ranks {members[0]} to {members[-1]} recorded different numbers of collectives: {counts}")
            continue
        for together in zip(*rows.values(), strict=True):
            each = [(ranks[number].drafts, row) for number, row in zip(rows, together, strict=True)]
            if len({drafts.communication[row].code for drafts, row in each}) == 1:
                shortest = min(drafts.duration[row] for drafts, row in each)
                for drafts, row in each:
                    drafts.start[row] += drafts.duration[row] - shortest
                    drafts.duration[row] = shortest
    return notes


def _begin_later(rank: LinkedRank, later: int) -> None:
    """Lets a rank begin some time behind the first."""
    if later > 0:
        rank.drafts.begin_later(rank.start - later, later)
