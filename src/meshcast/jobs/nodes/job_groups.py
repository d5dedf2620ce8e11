"""Groups and neighbours of all ranks of a job, by number: what differs between ranks that otherwise run the same.

Traces name a group by a number that is its own in the whole job. Programs know groups of their own devices; a job may run
several copies of a program side by side (the stages and replicas of a pipeline), rank `r` being device `r % devices` of
copy `r // devices`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meshcast.base import Group

Ints = npt.NDArray[np.int64]
ABSENT = 0  # of a rank that is in no group, or alone in it: groups are numbered from 1
NOBODY = -1  # of a rank that sends to, or receives from, no other


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankValues:
    """One attribute whose value differs from rank to rank.

    Attributes:
        attribute: Its name in traces: `pg_name`, `comm_dst` or `comm_src`.
        of_rank: Its value on every rank, or `ABSENT` of groups and `NOBODY` of neighbours where a rank takes no part.
    """

    attribute: str
    of_rank: Ints

    def missing(self, ranks: Ints) -> npt.NDArray[np.bool_]:
        """Which of some ranks take no part."""
        nothing = ABSENT if self.attribute == "pg_name" else NOBODY
        return np.asarray(self.of_rank[ranks] == nothing)


@dataclass(slots=True, kw_only=True)
class JobGroups:
    """Numbers for the groups of a job, given out as they are asked for."""

    ranks: int
    members: list[Ints] = field(default_factory=list)  # of every group, the first of which has number 1
    values: list[RankValues] = field(default_factory=list)
    _known: dict[tuple[object, ...], int | None] = field(default_factory=dict)

    def group(self, group: Group, devices: int) -> int | None:
        """Which of `values` names the group of each rank; None where one group has all ranks."""
        key = (group, devices)
        if key not in self._known:
            self._known[key] = self._numbered(self.rows(group, devices))
        return self._known[key]

    def neighbours(self, group: Group, devices: int) -> tuple[int, int]:
        """Which of `values` name the next and the previous rank of each in the rings that groups form."""
        to = np.arange(self.ranks)
        origin = np.arange(self.ranks)
        for row in self.rows(group, devices):
            to[row], origin[row] = np.roll(row, -1), np.roll(row, 1)
        return self.peers("comm_dst", to), self.peers("comm_src", origin)

    def permuted(self, sources: Ints, targets: Ints, devices: int) -> tuple[int, int]:
        """Which of `values` name the ranks that each sends to and receives from in a permutation, in all copies."""
        to, origin = np.full(self.ranks, NOBODY), np.full(self.ranks, NOBODY)
        for first in range(0, self.ranks, devices):
            to[first + sources], origin[first + targets] = first + targets, first + sources
        return self.peers("comm_dst", to), self.peers("comm_src", origin)

    def peers(self, attribute: str, of_rank: Ints) -> int:
        """Which of `values` names a peer of each rank."""
        key = (attribute, of_rank.tobytes())
        found = self._known.get(key)
        if found is None:
            self.values.append(RankValues(attribute=attribute, of_rank=of_rank))
            self._known[key] = found = len(self.values) - 1
        return found

    def rows(self, group: Group, devices: int) -> list[Ints]:
        """The members of every group, in all copies of a program of so many devices."""
        rows = group.rows()
        return [row + first for first in range(0, self.ranks, devices) for row in rows]

    def _numbered(self, rows: list[Ints]) -> int | None:
        if len(rows) == 1 and rows[0].size == self.ranks:
            return None
        rows = [row for row in rows if row.size > 1]
        key = ("pg_name", *(np.sort(row).tobytes() for row in rows))
        if key not in self._known:
            numbers = np.full(self.ranks, ABSENT)
            for row in rows:
                self.members.append(np.sort(row))
                numbers[row] = len(self.members)
            self.values.append(RankValues(attribute="pg_name", of_rank=numbers))
            self._known[key] = len(self.values) - 1
        return self._known[key]

    def listed(self) -> dict[str, list[int]]:
        """Every group by its number, as ASTRA-sim's file of communicator groups has them."""
        return {str(number): row.tolist() for number, row in enumerate(self.members, start=1)}
