"""Bodies replayed as they are, without files between: ranks with their nodes as the steps of a job (`traced`)."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.chakra import NodeType
from meshcast.jobs.nodes.job import RankClass
from meshcast.jobs.nodes.job_groups import JobGroups
from meshcast.jobs.nodes.pieces import Piece, RankBody
from meshcast.jobs.traced.rank_steps import RankSteps
from meshcast.jobs.traced.ranks import TracedRanks, job_of
from meshcast.jobs.traced.replay import Replayed, replay
from meshcast.jobs.traced.steps import ALL_RANKS, Does, TraceStep

DOES: dict[NodeType, Does] = {
    NodeType.COMPUTE: "compute",
    NodeType.COLLECTIVE: "collective",
    NodeType.SEND: "send",
    NodeType.RECEIVE: "receive",
}


def replayed(
    name: str, classes: Sequence[RankClass], groups: JobGroups, *, shared: bool
) -> tuple[TracedRanks, Replayed]:
    """The ranks of a job run in time; `shared` has all communication of a rank take turns, as ASTRA-sim does.

    Every class is replayed as its steps say, and not as they come back from a file: durations are exact.
    """
    of_rank: dict[int, RankSteps] = {}
    for each in classes:
        steps, used_groups, used_peers = _steps(each.body, groups)
        for rank in map(int, each.ranks):
            of_rank[rank] = RankSteps(
                steps=steps,
                groups=tuple(ALL_RANKS if v is None else str(groups.values[v].of_rank[rank]) for v in used_groups),
                peers=tuple(int(groups.values[v].of_rank[rank]) for v in used_peers),
            )
    listed = {name: tuple(members) for name, members in groups.listed().items()}
    listed[ALL_RANKS] = tuple(range(groups.ranks))
    job = job_of(name, [of_rank[rank] for rank in range(groups.ranks)], listed, {})
    seconds = [[step.seconds or 0.0 for step in steps] for steps in job.steps]
    return job, replay(job, seconds, shared=shared)


def _steps(body: RankBody, groups: JobGroups) -> tuple[tuple[TraceStep, ...], list[int | None], list[int]]:
    """Steps of a body, and which of the job's values their groups and their peers are, in the order of their places."""
    used_groups: dict[int | None, int] = {}
    used_peers: dict[bytes, tuple[int, int]] = {}  # one place for all values that are the same on every rank
    found = []
    for index, piece in enumerate(body.pieces):
        group, peer = ALL_RANKS, 0
        if piece.kind is NodeType.COLLECTIVE:
            group = str(used_groups.setdefault(piece.rank_value, len(used_groups)))
        elif piece.rank_value is not None:
            key = groups.values[piece.rank_value].of_rank.tobytes()
            peer = used_peers.setdefault(key, (len(used_peers), piece.rank_value))[0]
        found.append(_step(piece, index, (*body.data[index], *body.order[index]), group, peer))
    return tuple(found), list(used_groups), [value for _, value in used_peers.values()]


def _step(piece: Piece, index: int, before: tuple[int, ...], group: str, peer: int) -> TraceStep:
    tag = piece.attributes.get("comm_tag", 0)
    assert isinstance(tag, int)
    stream = (
        ("host", piece.stream)
        if piece.host
        else ("device", 0)
        if piece.kind is NodeType.COMPUTE
        else ("link", piece.stream)
    )
    return TraceStep(
        number=index, name=piece.label, does="host" if piece.host else DOES[piece.kind], before=before, stream=stream,
        seconds=piece.seconds, group=group, peer=peer, tag=tag,
    )  # fmt: skip
