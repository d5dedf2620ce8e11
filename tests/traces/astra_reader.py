"""A tiny simulator of traces by ASTRA-sim's rules, written apart from the package: it shares no code with reader or replay.

One computation, one communication and one step of the host in flight on each rank; of what is ready the lowest number goes
first; a receive holds nothing. A collective starts when the last of its group has come to it.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chakra.test_nodes import fields, messages

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
Network = Callable[[int, int, tuple[int, ...]], float]  # (comm_type, bytes, ranks) -> nanoseconds


def numbers(data: Any) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


def read(path: Path) -> dict[int, dict[str, Any]]:
    nodes = {}
    for message in messages(path.read_bytes())[1:]:
        node: dict[str, Any] = {"data": [], "control": [], "micros": 0}
        for place, value in fields(message):
            if place in (1, 3, 7):
                node[{1: "id", 3: "type", 7: "micros"}[place]] = value
            elif place in (4, 5):
                node["control" if place == 4 else "data"] = numbers(value)
            elif place == 10:
                assert isinstance(value, bytes)
                (_, name), (kind, inner) = fields(value)
                assert isinstance(name, bytes)
                if kind == 3:
                    assert isinstance(inner, bytes)
                    inner = struct.unpack("<d", inner)[0]
                node[name.decode()] = inner.decode() if isinstance(inner, bytes) else inner
        nodes[node["id"]] = node
    return nodes


def makespan_ns(
    prefix: str, ranks: int, groups: dict[str, list[int]], collective: Network, message: Callable[[int, int, int], float],
    *, exact: bool = False, control: bool = False,
) -> float:  # fmt: skip
    """When the last rank is done; `exact` takes nanoseconds instead of microseconds, `control` its dependencies too."""
    traces = [read(Path(f"{prefix}.{rank}.et")) for rank in range(ranks)]
    waits = [{i: set(n["data"]) | (set(n["control"]) if control else set()) for i, n in t.items()} for t in traces]
    free = [{"host": True, "compute": True, "link": True} for _ in range(ranks)]
    ready: list[list[int]] = [sorted(i for i, w in waits[rank].items() if not w) for rank in range(ranks)]
    followers: list[dict[int, list[int]]] = []
    for waited in waits:
        after: dict[int, list[int]] = {i: [] for i in waited}
        for waiting, before in waited.items():
            for each in before:
                after[each].append(waiting)
        followers.append(after)
    arrived: dict[tuple[int, int, int], int] = {}
    posted: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    met: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]] = {}
    turns: list[dict[tuple[int, ...], int]] = [{} for _ in range(ranks)]
    events: list[tuple[float, int, int]] = []
    now, done = 0.0, 0

    def seconds(node: dict[str, Any]) -> float:
        return node["duration_ns"] if exact else max(1.0, 1000.0 * node["micros"])

    def resource(node: dict[str, Any]) -> str:
        return "host" if node.get("is_cpu_op") else "compute" if node["type"] == COMPUTE else "link"

    def issue(rank: int) -> None:
        for number in list(ready[rank]):
            node = traces[rank][number]
            if node["type"] == RECEIVE:
                key = (node["comm_src"], rank, node["comm_tag"])
                ready[rank].remove(number)
                if arrived.get(key, 0):
                    arrived[key] -= 1
                    heapq.heappush(events, (now, rank, number))
                else:
                    posted.setdefault(key, []).append((rank, number))
                continue
            what = resource(node)
            if not free[rank][what]:
                continue
            free[rank][what] = False
            ready[rank].remove(number)
            if node["type"] == COMPUTE:
                heapq.heappush(events, (now + seconds(node), rank, number))
            elif node["type"] == SEND:
                heapq.heappush(events, (now + message(rank, node["comm_dst"], node["comm_size"]), rank, number))
            else:
                group = tuple(groups[node["pg_name"]]) if "pg_name" in node else tuple(range(ranks))
                turn = turns[rank][group] = turns[rank].get(group, 0) + 1
                members = met.setdefault((group, turn), [])
                members.append((rank, number))
                if len(members) == len(group):
                    end = now + collective(node["comm_type"], node["comm_size"], group)
                    for other, their in members:
                        heapq.heappush(events, (end, other, their))

    for rank in range(ranks):
        issue(rank)
    while events:
        now, rank, number = heapq.heappop(events)
        done += 1
        node = traces[rank][number]
        if node["type"] != RECEIVE:
            free[rank][resource(node)] = True
        if node["type"] == SEND:
            key = (rank, node["comm_dst"], node["comm_tag"])
            if posted.get(key):
                heapq.heappush(events, (now, *posted[key].pop(0)))
            else:
                arrived[key] = arrived.get(key, 0) + 1
        for after_this in followers[rank][number]:
            waits[rank][after_this].discard(number)
            if not waits[rank][after_this]:
                ready[rank].append(after_this)
        ready[rank].sort()
        issue(rank)
    assert done == sum(map(len, traces)), "ranks wait for ever"
    return now
