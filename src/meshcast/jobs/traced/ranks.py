"""`TracedRanks`: all ranks of a job from their traces, those that do the same once.

Ranks are equal if their steps are, but for the numbers of their groups and neighbours, and if the ranks they meet are equal
in turn (colour refinement, `simulate.classes`, with messages beside groups). One rank of each class is replayed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from meshcast.base import InputError, UsageError, ranges
from meshcast.chakra import Attribute, ChakraTrace, read_trace
from meshcast.jobs.traced.files import TraceFiles
from meshcast.jobs.traced.groups import add_groups, check_members, read_groups
from meshcast.jobs.traced.kernels import with_kernels
from meshcast.jobs.traced.manifest import AGAIN, GROUP, PEER, Manifest
from meshcast.jobs.traced.memory import peak_bytes
from meshcast.jobs.traced.rank_steps import RankFile, RankSteps, relative
from meshcast.jobs.traced.steps import ALL_RANKS, DEFAULT_GROUP, TraceStep, steps_of
from meshcast.simulate import Ints, refine


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRanks:
    """A job.

    Attributes:
        name: What to call it.
        ranks: How many there are.
        classes: The lowest rank of each class.
        of_rank: The class of every rank.
        steps: What the lowest rank of each class does.
        groups: Members of every group by name, the one of all ranks among them.
        peers_of: Neighbours of every rank, in the order in which its class has them.
        groups_of: Names of the groups of every rank, likewise.
        sources: The file of every rank, and where its steps stand there.
        alone: Whether the trace is of one rank of a larger job, whose other ranks are taken to be like it.
        peaks: Bytes that the lowest rank of each class holds at most, where its trace says what it touches.
        metadata: What the first trace says about itself.
        speeds: At which the ranks of each class compute, as a share of the full speed.
    """

    name: str
    ranks: int
    classes: tuple[int, ...]
    of_rank: Ints
    steps: tuple[tuple[TraceStep, ...], ...] = field(repr=False)
    groups: dict[str, tuple[int, ...]] = field(repr=False)
    peers_of: tuple[tuple[int, ...], ...] = field(repr=False)
    groups_of: tuple[tuple[str, ...], ...] = field(repr=False)
    sources: tuple[RankFile, ...] = field(repr=False)
    alone: bool
    peaks: tuple[int | None, ...] = ()
    metadata: dict[str, Attribute] = field(default_factory=dict)
    speeds: tuple[float, ...] = ()

    def step(self, rank: int, index: int) -> TraceStep:
        """A step of a rank."""
        return self.steps[int(self.of_rank[rank])][index]

    def named(self, rank: int, index: int) -> str:
        """A step of a rank as messages call it."""
        return f"rank {rank}'s {self.sources[rank].named(self.step(rank, index), index)}"


# The job that was read last, by what its files held: a comparison asks about the same one on other devices.
_LAST: dict[str, TracedRanks] = {}


def read_traced(files: TraceFiles) -> TracedRanks:
    """The job that files hold; that of the files that were read last is kept.

    Raises:
        InputError: A trace is malformed, or names a group or rank that is not there.
    """
    key = _content(files)
    found = _LAST.get(key) if key is not None else None
    if found is None:
        _LAST.clear()
        found = _read(files)
        if key is not None:
            _LAST[key] = found
    return found


def _content(files: TraceFiles) -> str | None:
    """A digest of the names and bytes of files; None where one cannot be read, which reading them says."""
    digest = hashlib.sha256(repr(files).encode())
    try:
        for path in [*dict.fromkeys(files.by_rank.values()), *([files.groups] if files.groups else [])]:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    except (OSError, ValueError):  # a name with a zero byte is a wrong value
        return None
    return digest.hexdigest()


def _read(files: TraceFiles) -> TracedRanks:
    groups = read_groups(files.groups)
    made: dict[Path, RankSteps] = {}
    metadata: dict[str, Attribute] = {}
    for path in dict.fromkeys(files.by_rank.values()):
        trace = read_trace(path)
        _same_device(metadata, trace)
        metadata = metadata or trace.metadata
        add_groups(groups, trace)
        made[path] = replace(
            relative(with_kernels(steps_of(trace), trace)), peak_bytes=peak_bytes(trace),
            source=RankFile(where=trace.where, offsets=trace.offsets),
        )  # fmt: skip
    if all(step.does == "nothing" for each in made.values() for step in each.steps):
        raise InputError(
            "has no node that computes, communicates or moves data: there is nothing to run", where=files.name,
            fix="meshcast show prints such files",
        )  # fmt: skip
    of_rank = _of_manifest(files.manifest, made) if files.manifest else [made[p] for p in files.by_rank.values()]
    alone = len(of_rank) == 1 and any(step.does == "collective" for step in of_rank[0].steps)
    size = max([len(of_rank), *(1 + max(ranks) for ranks in groups.values())]) if alone else len(of_rank)
    groups[ALL_RANKS] = tuple(range(size))
    groups.setdefault(DEFAULT_GROUP, groups[ALL_RANKS])
    check_members(of_rank, groups, size, alone=alone, listed=files.groups)
    return job_of(files.name, of_rank, groups, metadata, alone=alone)


def job_of(
    name: str, of_rank: Sequence[RankSteps], groups: dict[str, tuple[int, ...]], metadata: dict[str, Attribute], *,
    alone: bool = False, speeds: Sequence[float] | None = None,
) -> TracedRanks:  # fmt: skip
    """A job of ranks, those that do the same once.

    Args:
        name: What to call it.
        of_rank: What every rank does; ranks that share one object of steps are not compared.
        groups: Members of every group by name, the one of all ranks among them.
        metadata: What holds for all of them.
        alone: Whether the ranks are one of a larger job.
        speeds: At which every rank computes, as a share of the full speed; None where all are at that.
    """
    speeds = (1.0,) * len(of_rank) if speeds is None else speeds
    colours = _colours(of_rank, groups, speeds, alone=alone)
    _, first = np.unique(colours, return_index=True)
    classes = tuple(sorted(int(rank) for rank in first))
    number = {int(colours[rank]): index for index, rank in enumerate(classes)}
    return TracedRanks(
        name=name, ranks=len(groups[ALL_RANKS]), classes=classes, of_rank=np.array([number[int(c)] for c in colours]),
        steps=tuple(of_rank[rank].steps for rank in classes), groups=groups,
        peers_of=tuple(each.peers for each in of_rank), groups_of=tuple(each.groups for each in of_rank), alone=alone,
        sources=tuple(each.source for each in of_rank),
        peaks=tuple(of_rank[rank].peak_bytes for rank in classes), metadata=metadata,
        speeds=tuple(float(speeds[rank]) for rank in classes),
    )  # fmt: skip


def with_speeds(job: TracedRanks, speeds: Sequence[float]) -> TracedRanks:
    """The job on devices of different speeds; classes are split, so that the ranks of each have one speed.

    Raises:
        UsageError: The trace is of one rank that stands for all.
    """
    if job.alone:
        raise UsageError(
            "the trace is of one rank that stands for all others, which would not be alike", where="--slow",
            fix="leave it out, or give the traces of all ranks",
        )  # fmt: skip
    of_rank = [
        RankSteps(
            steps=job.steps[number], groups=groups, peers=peers, source=source, peak_bytes=job.peaks[number]
        )
        for number, groups, peers, source in zip(
            map(int, job.of_rank), job.groups_of, job.peers_of, job.sources, strict=True
        )
    ]  # fmt: skip
    return job_of(job.name, of_rank, job.groups, job.metadata, speeds=speeds)


def _same_device(known: dict[str, Attribute], trace: ChakraTrace) -> None:
    """Refuses traces of one job that were made for different devices."""
    said, before = trace.metadata.get("device"), known.get("device")
    if known and said != before:
        raise InputError(
            f"is of device {said!s}, and ranks before it are of {before!s}", where=trace.where,
            fix="export all ranks at once: the devices of a job are alike",
        )  # fmt: skip


def _of_manifest(manifest: Manifest, made: dict[Path, RankSteps]) -> list[RankSteps]:
    """The ranks of a manifest: those of a class have its file, with groups and neighbours of their own."""
    found: dict[int, RankSteps] = {}
    for each in manifest.classes:
        steps = made[each.file]
        for peer in steps.peers:
            if (PEER, peer) not in each.values:
                raise InputError(
                    f"ranks {ranges(each.ranks)} meet rank {peer} in {each.file.name}, and no value says whom each of "
                    "them meets", where=manifest.name, fix=AGAIN,
                )  # fmt: skip
        groups = [each.values.get((GROUP, int(name))) if name.isdigit() else None for name in steps.groups]
        for index, rank in enumerate(each.ranks):
            found[rank] = replace(
                steps,
                groups=tuple(
                    name if numbers is None else str(numbers[index])
                    for name, numbers in zip(steps.groups, groups, strict=True)
                ),
                peers=tuple(each.values[PEER, peer][index] for peer in steps.peers),
            )
    return [found[rank] for rank in sorted(found)]


def _colours(
    of_rank: Sequence[RankSteps], groups: dict[str, tuple[int, ...]], speeds: Sequence[float], *, alone: bool
) -> Ints:
    """A number for every rank, the same for ranks that do the same with ranks that do the same."""
    if alone:
        return np.zeros(1, dtype=np.int64)
    known: dict[tuple[TraceStep, ...], int] = {}
    # Ranks of one file share one object, and are not compared step by step.
    by_object = {
        id(steps): known.setdefault(steps, len(known)) for steps in {id(e.steps): e.steps for e in of_rank}.values()
    }
    kinds = [(by_object[id(each.steps)], float(speed)) for each, speed in zip(of_rank, speeds, strict=True)]
    numbers_of = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    colours = np.array([numbers_of[kind] for kind in kinds])
    ids = {name: number for number, name in enumerate(groups)}
    width = max(len(each.groups) for each in of_rank)
    numbers = np.full((width, len(of_rank)), -1)
    reach = max(len(each.peers) for each in of_rank)
    peers = np.tile(np.arange(len(of_rank)), (reach, 1))
    for rank, each in enumerate(of_rank):
        numbers[: len(each.groups), rank] = [ids[name] for name in each.groups]
        peers[: len(each.peers), rank] = each.peers
    while True:
        before = int(colours.max())
        colours = refine(colours, list(numbers)).of_rank
        seen = np.stack([colours, *(colours[row] for row in peers)])
        colours = np.unique(seen, axis=1, return_inverse=True)[1].reshape(-1)
        if int(colours.max()) == before:
            return colours
