"""Whether a trace can be run at all: numbers are unique, dependencies exist, and nothing waits for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.base import InputError
from meshcast.chakra.reader import ChakraTrace

MOST_NAMED = 6  # nodes of a circle, in a message


CALLED = "rf_id"  # an attribute that Chakra's converter gives the nodes of PyTorch's traces


def checked_trace(trace: ChakraTrace) -> ChakraTrace:
    """The trace itself, if it can be run.

    In traces of PyTorch a control dependency names the caller, which may wait for what it has called, or be left out by the
    converter: it says nothing about order, and is dropped. What has to be waited for is among data dependencies there.

    Raises:
        InputError: Two nodes have one number, a dependency is missing, or nodes wait for each other in a circle; the
            message names the nodes, and where in the file they begin.
    """
    place: dict[int, int] = {}
    for index, node in enumerate(trace.nodes):
        if node.number in place:
            raise InputError(
                f"{named_node(trace, index)} has the number of {named_node(trace, place[node.number])}", where=trace.where,
                fix="number nodes uniquely",
            )  # fmt: skip
        place[node.number] = index
    if any(CALLED in node.attributes for node in trace.nodes):
        trace = replace(trace, nodes=tuple(replace(node, control_deps=()) for node in trace.nodes))
    waits: list[list[int]] = []
    for index, node in enumerate(trace.nodes):
        waits.append([])
        for kind, numbers in (("data", node.data_deps), ("control", node.control_deps)):
            for number in numbers:
                if number not in place:
                    raise InputError(
                        f"{named_node(trace, index)} waits for node {number} ({kind} dependency), which is not in the file",
                        where=trace.where, fix="add the node, or take the dependency out",
                    )  # fmt: skip
                waits[index].append(place[number])
    circle = circle_of(waits)
    if circle:
        said = " <- ".join(named_node(trace, index) for index in circle[:MOST_NAMED])
        more = ", ..." if len(circle) > MOST_NAMED else ""
        what = f"{len(circle)} nodes wait for each other in a circle: {said}{more}"
        raise InputError(
            what if len(circle) > 1 else f"{said} waits for itself", where=trace.where,
            fix="take one of these dependencies out",
        )  # fmt: skip
    return trace


def named_node(trace: ChakraTrace, index: int) -> str:
    """A node as messages call it."""
    node = trace.nodes[index]
    at = f" (at byte {trace.offsets[index]})" if trace.offsets else ""
    return f"node {node.number} {node.name!r}{at}"


def circle_of(waits: Sequence[Sequence[int]]) -> list[int]:
    """Nodes of a circle, each before what it waits for; nothing where there is none."""
    followers: list[list[int]] = [[] for _ in waits]
    missing = [len(each) for each in waits]
    for index, each in enumerate(waits):
        for before in each:
            followers[before].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    done = 0
    while ready:
        index = ready.pop()
        done += 1
        for after in followers[index]:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    if done == len(waits):
        return []
    # What is left waits for something that is left: going back comes round.
    at = next(index for index, count in enumerate(missing) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(before for before in waits[at] if missing[before])
    return path[seen[at] :]
