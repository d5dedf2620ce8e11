"""Who sends how much to whom, by group, by kind and by level of the network.

The matrix adds up, for every collective and message of a step, what each device must send (`Collective.sent_bytes`), so that a
row's sum is what a device sends. To whom is the algorithm's: rings to the next member, all others evenly to every other member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from meshcast.report.subject import Scene, Subject
from meshcast.report.tables import Table, column, table
from meshcast.report.work import launches
from meshcast.workload import Collective

MOST_BLOCKS = 64
MOST_RANKS = 65_536  # of which every pair is added up
Bytes = npt.NDArray[np.float64]


class Matrix(TypedDict):
    """Bytes that blocks of ranks send to blocks of ranks in a step; `block` ranks make one."""

    name: str
    ranks: int
    block: int
    cells: list[list[float]]  # (from, to, bytes), those that are more than nothing


class CommunicationSection(TypedDict):
    """The section."""

    tables: list[Table]
    matrices: list[Matrix]
    note: str


def communication_section(subject: Subject) -> CommunicationSection | None:
    """The section; None where nothing is sent."""
    prediction = subject.prediction
    if prediction.timed is None or not (prediction.collectives or prediction.communication):
        return None
    matrices = [made for scene in subject.scenes if (made := _matrix(scene)) is not None]
    return {
        "tables": [*_tables(subject)],
        "matrices": matrices,
        "note": "a ring sends to the next member of its group, every other algorithm evenly to all of them; a row adds up to "
        "what its devices send",
    }


def _tables(subject: Subject) -> Iterator[Table]:
    prediction, step = subject.prediction, subject.prediction.step_time_s or 0.0
    yield table(
        "collectives", "By kind and group",
        (
            column("collective"), column("over"), column("group", "count", "devices"), column("count", "count", "count"),
            column("busy", "s", "busy"), column("of step", "share", "share"), column("sent", "B", "bytes_sent"),
            column("algorithm", "", "algorithm"), column("slowest level"),
        ),
        (
            [
                each.kind.replace("_", "-"), each.group, each.group_size, each.count, each.seconds,
                each.seconds / step if step else None, each.bytes_sent, each.algorithm, each.level,
            ]
            for each in prediction.collectives
        ),
    )  # fmt: skip
    found = prediction.communication
    if found is None:
        return
    yield table(
        "groups", "Exposed and overlapped, by group",
        (
            column("over"), column("group", "count", "devices"), column("busy", "s", "busy"),
            column("overlapped", "s", "overlapped"), column("exposed", "s", "exposed"),
            column("exposed of step", "share", "exposed_share"),
        ),
        (
            [each.group, each.group_size, each.busy_s, each.overlapped_s, each.exposed_s, each.exposed_s / step if step else None]
            for each in found.groups
        ),
    )  # fmt: skip
    yield table(
        "links", "By level of the network",
        (
            column("level"), column("technology"), column("bandwidth", "B/s", "bandwidth"), column("sent", "B", "bytes_sent"),
            column("in use", "share", "link_use"),
        ),
        ([each.level, each.technology, each.bandwidth, each.bytes_sent, each.utilisation] for each in found.links),
    )  # fmt: skip


def _matrix(scene: Scene) -> Matrix | None:
    ranks = sum(work.ranks for work in scene.work)
    if ranks < 2 or ranks > MOST_RANKS:
        return None
    block = -(-ranks // MOST_BLOCKS)
    blocks = -(-ranks // block)
    sent: Bytes = np.zeros((blocks, blocks))
    for work in scene.work:
        for each in launches(work):
            if (collective := each.kernel.collective) is not None:
                plan = each.run.collective(each.kernel)
                _add(
                    sent,
                    collective,
                    plan.algorithm,
                    each.count,
                    work.first,
                    work.ranks,
                    each.run.workload.devices,
                    block,
                )
        for end in work.ends:
            _add(sent, end.collective, end.plan.algorithm, 1, work.first, work.ranks, end.devices, block)
        for message in work.sent:
            mine = np.arange(work.first, work.first + work.ranks)
            size = message.times * message.message.collective.payload_bytes
            np.add.at(sent, (mine // block, (mine + message.distance) // block), size)
    cells = [[int(a), int(b), float(sent[a, b])] for a, b in zip(*np.nonzero(sent), strict=True)]
    return {"name": scene.name, "ranks": ranks, "block": block, "cells": cells} if cells else None


def _add(
    sent: Bytes, collective: Collective, algorithm: str, count: float, first: int, ranks: int, devices: int, block: int
) -> None:
    """Adds what a collective's members send, in every group of the ranks from `first` on."""
    size = collective.group.size
    if size < 2:
        return
    amount = count * collective.sent_bytes
    ring = "ring" in algorithm or collective.kind == "collective_permute"
    # A program of fewer devices than ranks is run by several sets of them; groups over all ranks begin at 0.
    starts = range(first, first + ranks, devices) if devices <= ranks else (0,)
    for row in collective.group.rows():
        members = np.asarray(row) % devices
        for start in starts:
            mine = (members + start) // block
            # Of a group over several kinds of rank, what those of this one send.
            here = (members >= first) & (members < first + ranks) if devices > ranks else members >= 0
            if ring:
                np.add.at(sent, (mine[here], np.roll(mine, -1)[here]), amount)
            else:
                of, to = (np.bincount(each, minlength=len(sent)) for each in (mine[here], mine))
                pairs = np.outer(of, to).astype(np.float64)
                pairs[np.diag_indices_from(pairs)] -= of  # nobody sends to itself
                sent += pairs * (amount / (len(members) - 1))
