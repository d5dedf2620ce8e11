"""Who talks to whom at a level: the members of a group that run a stage among each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshcast.network.fabric.fabric import Fabric
from meshcast.network.fabric.links import Ints
from meshcast.network.flow.traffic import Groups


def parts_of(groups: Groups, fabric: Fabric, level: int) -> tuple[Ints, Ints, Ints, Ints]:
    """(device, set, part, rank within its part) of all members; members that a level can connect form one set."""
    device = groups.reshape(-1).astype(np.int64)
    group = np.repeat(np.arange(len(groups)), groups.shape[1])
    last = level == len(fabric.levels) - 1
    domain = np.zeros_like(device) if last else device // fabric.levels[level].size
    part = device // fabric.inner_size(level)
    _, where = np.unique(np.stack([group, domain]), axis=1, return_inverse=True)
    where = where.reshape(-1)
    order = np.lexsort((device, part, where))
    device, where, part = device[order], where[order], part[order]
    starts = np.flatnonzero(np.diff(where, prepend=-1) | np.diff(part, prepend=-1))
    lengths = np.diff(np.append(starts, len(device)))
    rank = np.arange(len(device)) - np.repeat(starts, lengths)
    return device, where, part, rank


def peer_sets(groups: Groups, fabric: Fabric, level: int) -> Iterator[Groups]:
    """Rows of devices, one of each part, that run a stage with each other; rows of equal length at a time.

    The i-th member of a part works with the i-th members of the other parts. Where parts have different numbers of
    members, the last ones of larger parts have no peers and leave their share to the others.
    """
    device, where, part, rank = parts_of(groups, fabric, level)
    order = np.lexsort((part, rank, where))
    device, where, rank = device[order], where[order], rank[order]
    starts = np.flatnonzero((np.diff(where, prepend=-1) != 0) | (np.diff(rank, prepend=-1) != 0))
    lengths = np.diff(np.append(starts, len(device)))
    # The first row of a set has one member of every part: rows that are shorter lack some.
    whole = np.zeros(int(where.max()) + 1, np.int64)
    np.maximum.at(whole, where[starts], lengths)
    complete = (lengths == whole[where[starts]]) & (lengths > 1)
    for length in np.unique(lengths[complete]):
        first = starts[complete & (lengths == length)]
        yield device[first[:, None] + np.arange(length)]


def outside_pairs(groups: Groups, fabric: Fabric, level: int, most: int) -> Iterator[tuple[Ints, Ints]]:
    """(from, to) for all members of a set that lie in different parts, at most about `most` pairs at a time."""
    device, where, part, _ = parts_of(groups, fabric, level)
    starts = np.flatnonzero(np.diff(where, prepend=-1))
    ends = np.append(starts[1:], len(device))
    for length in np.unique(ends - starts):
        first = starts[ends - starts == length]
        at_once = max(1, most // int(length * length))
        for chunk in range(0, len(first), at_once):
            rows = first[chunk : chunk + at_once, None] + np.arange(length)
            members, own = device[rows], part[rows]
            a_few = max(1, most // int(length * len(rows)))
            for sender in range(0, int(length), a_few):
                senders = slice(sender, sender + a_few)
                apart = own[:, senders, None] != own[:, None, :]
                source = np.broadcast_to(members[:, senders, None], apart.shape)[apart]
                target = np.broadcast_to(members[:, None, :], apart.shape)[apart]
                if len(source):
                    yield source, target
