"""How large the nodes of a job are, and how they depend on each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshcast.jobs import TracedRanks, TraceStep
from meshcast.traces.recorded.what_if import kernel_class


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the nodes of a class, all ranks together: what kernels move, what ranks put into a collective."""

    count: int
    least: int
    median: float
    most: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Who waits for whom, all ranks together.

    Attributes:
        nodes: How many there are; `edges` that one waits for another.
        free: Nodes that wait for nothing.
        most_before: The most that one node waits for; `most_behind` the most that wait for one.
        chain: Nodes of the longest row of which each waits for the one before, inside a rank.
        abreast: Nodes beside each other in the mean: those of a rank by its longest row.
    """

    nodes: int
    edges: int
    free: int
    most_before: int
    most_behind: int
    chain: int
    abreast: float


def sizes_of(job: TracedRanks) -> dict[str, Sizes]:
    """Sizes by class, the largest in all first."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for number, steps in enumerate(job.steps):
        ranks = int((job.of_rank == number).sum())
        for step in steps:
            for name, size in _sized(step):
                rows.setdefault(name, []).append((size, ranks))
    found = {}
    for name, row in rows.items():
        values = np.repeat([size for size, _ in row], [ranks for _, ranks in row])
        found[name] = Sizes(
            count=len(values), least=int(values.min()), median=float(np.median(values)), most=int(values.max()),
            total=int(values.sum()),
        )  # fmt: skip
    return dict(sorted(found.items(), key=lambda item: -item[1].total))


def _sized(step: TraceStep) -> Iterator[tuple[str, int]]:
    if step.does in ("collective", "send") and step.size:
        yield kernel_class(step), step.size
    elif step.does == "compute" and step.bytes and not step.waits:
        yield kernel_class(step), step.bytes


def dependencies_of(job: TracedRanks) -> Dependencies:
    """How the nodes of a job depend on each other."""
    nodes = edges = free = most_before = most_behind = chain = rows = 0
    for number, steps in enumerate(job.steps):
        ranks = int((job.of_rank == number).sum())
        behind: Counter[int] = Counter(each for step in steps for each in step.before)
        depths: dict[int, int] = {}
        for index in _in_order(steps):
            depths[index] = 1 + max((depths[each] for each in steps[index].before), default=0)
        longest = max(depths.values(), default=0)
        nodes += ranks * len(steps)
        edges += ranks * sum(len(step.before) for step in steps)
        free += ranks * sum(not step.before for step in steps)
        most_before = max(most_before, max((len(step.before) for step in steps), default=0))
        most_behind = max(most_behind, max(behind.values(), default=0))
        chain, rows = max(chain, longest), rows + ranks * longest
    return Dependencies(
        nodes=nodes, edges=edges, free=free, most_before=most_before, most_behind=most_behind, chain=chain,
        abreast=nodes / rows if rows else 0.0,
    )  # fmt: skip


def _in_order(steps: tuple[TraceStep, ...]) -> list[int]:
    """Places of the steps, each behind those that it waits for: traces of others may list them in any order."""
    left = [len(step.before) for step in steps]
    behind: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        for each in step.before:
            behind.setdefault(each, []).append(index)
    ready = [index for index, count in enumerate(left) if not count]
    for index in ready:  # grows while it is walked
        for each in behind.get(index, ()):
            left[each] -= 1
            if not left[each]:
                ready.append(each)
    return ready


def statistics_json(job: TracedRanks) -> dict[str, Any]:
    """Both as JSON."""
    found = dependencies_of(job)
    return {
        "sizes": {
            name: {"count": each.count, "least_bytes": each.least, "median_bytes": each.median, "most_bytes": each.most,
                   "total_bytes": each.total}
            for name, each in sizes_of(job).items()
        },
        "dependencies": {
            "nodes": found.nodes, "edges": found.edges, "without": found.free, "most_before": found.most_before,
            "most_behind": found.most_behind, "longest_chain": found.chain, "abreast": found.abreast,
        },
    }  # fmt: skip
