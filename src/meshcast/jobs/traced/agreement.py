"""Whether ranks agree on what they do together: the same collectives in every group, a receive for every send.

Collectives of a group are compared in the order of their numbers, which is that of the programs that issued them; so are the
messages from one rank to another with one tag. Ranks that are equal need no comparing: one of each class is compared with
all that it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from meshcast.base import InputError
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.steps import BARRIER, TraceStep

ORDER = "all ranks of a group run its collectives in the same order, of the same comm_type and comm_size"
PAIRS = "every send needs a receive on the other rank, with its comm_tag and comm_size, and the other way round"
Key = tuple[str, int, int]  # what a step does, its group's or neighbour's place, its tag
Listed = dict[Key, list[int]]


def check_agreement(job: TracedRanks) -> None:
    """Refuses ranks that do not fit together.

    Raises:
        InputError: Collectives of a group differ, or a message has one side only; both nodes are named.
    """
    if job.alone:
        return
    shared = [shared_steps(steps) for steps in job.steps]
    for number, rank in enumerate(job.classes):
        for (does, place, tag), ours in shared[number].items():
            if does == "collective":
                _check_group(job, rank, job.groups_of[rank][place], ours, shared)
            else:
                _check_messages(job, rank, (does, place, tag), ours, shared)


def shared_steps(steps: Sequence[TraceStep]) -> Listed:
    """Steps of a rank that others have a part in, by what tells them apart, in the order of their numbers."""
    found: Listed = {}
    for index, step in sorted(enumerate(steps), key=lambda item: item[1].number):
        if step.does == "collective":
            found.setdefault((step.does, int(step.group), 0), []).append(index)
        elif step.does in ("send", "receive"):
            found.setdefault((step.does, step.peer, step.tag), []).append(index)
    return found


def _check_group(job: TracedRanks, rank: int, name: str, ours: list[int], shared: Sequence[Listed]) -> None:
    compared: set[tuple[int, int]] = set()
    for member in job.groups[name]:
        if name not in job.groups_of[member]:
            raise InputError(
                f"{job.named(rank, ours[0])} is over {_group(name)}, and rank {member} of that group has no collective "
                f"over it in {job.sources[member].where}", where=job.sources[rank].where, fix=ORDER,
            )  # fmt: skip
        number, place = int(job.of_rank[member]), job.groups_of[member].index(name)
        if (number, place) not in compared:
            compared.add((number, place))
            _compare(job, name, (rank, ours), (member, shared[number]["collective", place, 0]))


def _compare(job: TracedRanks, name: str, ours: tuple[int, list[int]], theirs: tuple[int, list[int]]) -> None:
    (rank, mine), (member, other) = ours, theirs
    for nth, (here, there) in enumerate(zip_longest(mine, other), start=1):
        if here is None or there is None:
            more, fewer = (ours, theirs) if there is None else (theirs, ours)
            raise InputError(
                f"{job.named(more[0], more[1][nth - 1])} is collective {nth} of {_group(name)}, and rank {fewer[0]} has "
                f"{len(fewer[1])} of them in {job.sources[fewer[0]].where}", where=job.sources[more[0]].where, fix=ORDER,
            )  # fmt: skip
        left, right = job.step(rank, here), job.step(member, there)
        if left.alike != right.alike:
            raise InputError(
                f"collective {nth} of {_group(name)} is {_said(left)} in {job.named(rank, here)}, and {_said(right)} in "
                f"{job.named(member, there)}", where=job.sources[rank].where, fix=ORDER,
            )  # fmt: skip


def _said(step: TraceStep) -> str:
    times = f" in {step.repeat} launches" if step.repeat > 1 else ""
    return step.kind if step.kind == BARRIER else f"{step.kind} of {step.size} bytes{times}"


def _group(name: str) -> str:
    return f"group {name!r}" if name else "the group of all ranks"


def _check_messages(job: TracedRanks, rank: int, key: Key, ours: list[int], shared: Sequence[Listed]) -> None:
    does, place, tag = key
    other = job.peers_of[rank][place]
    back = job.peers_of[other].index(rank) if rank in job.peers_of[other] else -1
    opposite = "receive" if does == "send" else "send"
    theirs = shared[job.of_rank[other]].get((opposite, back, tag), [])
    for nth, here in enumerate(ours):
        if nth >= len(theirs):
            raise InputError(
                f"{job.named(rank, here)} is {does} {nth + 1} with tag {tag} between ranks {rank} and {other}, and rank "
                f"{other} has {len(theirs)} of its {opposite}s in {job.sources[other].where}",
                where=job.sources[rank].where, fix=PAIRS,
            )  # fmt: skip
        size, their_size = job.step(rank, here).size, job.step(other, theirs[nth]).size
        if size != their_size:
            raise InputError(
                f"{job.named(rank, here)} is a {does} of {size} bytes, and its {opposite}, "
                f"{job.named(other, theirs[nth])}, of {their_size}", where=job.sources[rank].where, fix=PAIRS,
            )  # fmt: skip
