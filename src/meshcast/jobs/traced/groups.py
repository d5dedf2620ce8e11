"""Groups of a job's ranks: as a file beside its traces lists them, and as traces do themselves; and whether ranks are in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshcast.base import InputError, shortened
from meshcast.chakra import ChakraTrace, NodeType, named_node
from meshcast.jobs.traced.manifest import read_json
from meshcast.jobs.traced.rank_steps import RankSteps

Groups = dict[str, tuple[int, ...]]
MOST_NAMED = 8  # ranks of a group, in a message


def read_groups(path: Path | None) -> Groups:
    """Groups of ranks by their names, `{"1": [0, 1]}`.

    Raises:
        InputError: The file is none.
    """
    if path is None:
        return {}
    found: Groups = {}
    for name, ranks in read_json(path).items():
        what = _complaint(ranks)
        if what:
            raise InputError(
                f"group {name!r} {what}", where=str(path),
                fix=f'write "{name}": [0, 1] for ranks 0 and 1, every rank once',
            )  # fmt: skip
        found[name] = tuple(ranks)
    return found


def add_groups(groups: Groups, trace: ChakraTrace) -> None:
    """Adds groups that a trace itself lists: PyTorch writes them into a metadata node, `[{"pg_name": ..., "ranks": [...]}]`.

    A list of no ranks says nothing about the group.

    Raises:
        InputError: They are listed in another form, or a group has other members elsewhere.
    """
    for index, node in enumerate(trace.nodes):
        if node.kind is not NodeType.METADATA or node.inputs is None or "pg_name" not in node.inputs.values:
            continue
        here, fix = named_node(trace, index), 'write [{"pg_name": "1", "ranks": [0, 1]}]'
        try:
            listed = json.loads(node.inputs.values.strip().removeprefix("['").removesuffix("']"))
            said = [(str(each["pg_name"]), each["ranks"]) for each in listed]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"{here} lists process groups in a form that is not known", where=trace.where, fix=fix
            ) from None
        for name, ranks in said:
            if what := _complaint(ranks):
                raise InputError(f"{here}: process group {name!r} {what}", where=trace.where, fix=fix)
            known = groups.get(name, tuple(ranks))
            if ranks and sorted(known) != sorted(ranks):
                raise InputError(
                    f"{here}: process group {name!r} is of ranks {shortened(ranks, MOST_NAMED)}, and elsewhere of "
                    f"ranks {shortened(known, MOST_NAMED)}",
                    where=trace.where, fix="give groups of different ranks different names",
                )  # fmt: skip
            if ranks:
                groups[name] = known


def _complaint(ranks: Any) -> str:
    """What is wrong with a list of ranks; nothing where it is one."""
    if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks):
        return f"is {ranks!r:.60}, not a list of ranks"
    if len(set(ranks)) != len(ranks):
        return f"has rank {next(rank for rank in ranks if ranks.count(rank) > 1)} twice"
    return ""


def check_members(of_rank: Sequence[RankSteps], groups: Groups, size: int, *, alone: bool, listed: Path | None) -> None:
    """Refuses groups and messages of ranks that are not there.

    Args:
        of_rank: What the ranks that have traces do.
        groups: All groups, that of all ranks among them.
        size: How many ranks the job has.
        alone: Whether one trace stands for all ranks.
        listed: The file that lists groups, if there is one.

    Raises:
        InputError: A group is not listed, or is of other ranks; a message goes nowhere, or to its own rank.
    """
    members = {name: frozenset(ranks) for name, ranks in groups.items()}
    for rank, each in enumerate(of_rank):
        where = each.source.where
        for place, name in enumerate(each.groups):
            if name not in groups:
                raise InputError(
                    f"{each.first_with_group(place)} is over group {name!r}, which is not listed", where=where,
                    fix='list it in PREFIX.comm_groups.json, {"1": [0, 1]}, or in a metadata node',
                )  # fmt: skip
            if not alone and rank not in members[name]:
                raise InputError(
                    f"{each.first_with_group(place)} of rank {rank} is over group {name!r} of ranks "
                    f"{shortened(groups[name], MOST_NAMED)}",
                    where=where, fix=f"list rank {rank} in the group, or give the node the group that it is in",
                )  # fmt: skip
        for place, peer in enumerate(each.peers):
            if peer >= size or (peer == rank and not alone):
                what = "that rank itself" if peer == rank else f"rank {peer}, and there are {size} (0 to {size - 1})"
                raise InputError(
                    f"{each.first_with_peer(place)} of rank {rank} is a message to or from {what}", where=where,
                    fix="name another rank of the job in comm_dst or comm_src",
                )  # fmt: skip
    for name, ranks in groups.items():
        if not alone and ranks and max(ranks) >= size:
            raise InputError(
                f"group {name!r} has rank {max(ranks)}, and only ranks 0 to {size - 1} have traces",
                where=str(listed) if listed is not None else of_rank[0].source.where,
                fix="add the traces of all ranks, or list those that there are",
            )  # fmt: skip
