"""How well grown graphs meet what they are grown for: a size, a family, a step, memory, and both of the last.

    python benchmarks/conditioned_graphs.py            # seeds 0 to 4
    python benchmarks/conditioned_graphs.py --seeds 2 --like llama3-70b --like vit

A graph meets its family where the shares of its kinds of nodes, with their types, are nearest (total variation) to those of the
graphs of that family that were learnt from, among families of the same source (zoo or measured).
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from meshcast.traces import GraphConditions, OpGraph, grow_for, shipped_corpus, shipped_model

LIKES = ("llama3-70b", "gpt", "vit", "resnet", "measured-decoder", "recorded-dlrm")
NODES = (100, 500, 2000)
STEPS = (20e-3, 200e-3)
MEMORIES = (2e9, 40e9)


def main() -> None:
    """Prints a line a condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--like", action="append")
    parser.add_argument("--nodes", type=int, default=300, help="of graphs grown for a step or memory")
    asked = parser.parse_args()
    model, likes = shipped_model(), asked.like or LIKES
    grown = [model.grow(like, nodes, seed) for like in likes for nodes in NODES for seed in range(asked.seeds)]
    sizes = [nodes for _ in likes for nodes in NODES for _ in range(asked.seeds)]
    exact = sum(len(graph.nodes) == nodes for graph, nodes in zip(grown, sizes, strict=True))
    valid = sum(not graph.complaints() for graph in grown)
    print(f"size: {exact} of {len(grown)} graphs of {', '.join(map(str, NODES))} nodes have as many; {valid} are valid")
    _families(asked.seeds)
    for what, conditions in (
        ("step", [GraphConditions(step_s=each) for each in STEPS]),
        ("memory", [GraphConditions(memory_bytes=each) for each in MEMORIES]),
        ("both", [GraphConditions(step_s=step, memory_bytes=held) for step in STEPS for held in MEMORIES]),
    ):
        print(_met(what, likes, conditions, asked.seeds, asked.nodes), flush=True)


def _met(what: str, likes: Iterable[str], conditions: Iterable[GraphConditions], seeds: int, nodes: int) -> str:
    away: list[float] = []
    valid, refused = 0, list[str]()
    for like in likes:
        for each in conditions:
            for seed in range(seeds):
                try:
                    found = grow_for(shipped_model(), like, nodes, seed, each)
                except Exception as error:  # told, with what was asked for
                    refused.append(f"{like}, seed {seed}: {error}")
                    continue
                valid += not found.graph.complaints()
                if each.step_s is not None and found.step_s is not None:
                    away.append(abs(found.step_s / each.step_s - 1))
                if each.memory_bytes is not None:
                    away.append(abs(found.graph.memory_bytes / each.memory_bytes - 1))
    told = "".join(f"\n  refused: {each}" for each in refused)
    return (
        f"{what}: {valid} valid graphs, at most {max(away, default=0):.2%} and in the mean "
        f"{sum(away) / max(1, len(away)):.2%} from what was asked for, {len(refused)} refused{told}"
    )


def _families(seeds: int) -> None:
    rows: defaultdict[str, list[OpGraph]] = defaultdict(list)
    for graph in shipped_corpus():
        if not graph.held_out:
            rows[graph.family].append(graph)
    mixes = {family: _mix(graphs) for family, graphs in rows.items()}
    middle = {family: sorted(len(each.nodes) for each in graphs)[len(graphs) // 2] for family, graphs in rows.items()}
    met = total = 0
    confused: Counter[str] = Counter()
    for family in mixes:
        for seed in range(seeds):
            nearest = _nearest(shipped_model().grow(family, middle[family], seed), mixes)
            total, met = total + 1, met + (nearest == family)
            confused[f"{family} for {nearest}"] += nearest != family
    told = ", ".join(f"{name} ({count})" for name, count in confused.most_common() if count)
    print(f"family: {met} of {total} graphs are nearest to their own family; else {told or 'none'}")
    apart = [graph for graph in shipped_corpus() if graph.held_out]
    real = sum(_nearest(graph, mixes) == graph.family for graph in apart)
    print(f"  of real graphs that nothing was learnt from: {real} of {len(apart)}", flush=True)


def _nearest(graph: OpGraph, mixes: Mapping[str, Mapping[str, float]]) -> str:
    measured = graph.family.startswith("measured-")
    rivals = [each for each in mixes if each.startswith("measured-") == measured]
    mine = _mix([graph])
    return min(rivals, key=lambda each: _variation(mine, mixes[each]))


def _mix(graphs: Iterable[OpGraph]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    graphs = list(graphs)
    for graph in graphs:
        for node in graph.nodes:
            found[f"{node.kind} {node.dtype}"] += 1 / len(graph.nodes) / len(graphs)
    return dict(found)


def _variation(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other})


if __name__ == "__main__":
    main()
