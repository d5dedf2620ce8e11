"""The same model on a second data set, LayerDAG's TPU-Tile graphs: learnt from one file, tested on the other.

The training file is not in the public snapshot, so graphs of `val.pth` are learnt from and those of `test.pth` are set apart.
As in the paper graphs are grown for a runtime: those that were learnt from are put into bins of as many each by their runtime,
a bin has counts of its own, and what is grown has the runtime of a graph of its bin. A surrogate of runtimes (ridge on the
logarithms of a graph's nodes, edges, layers and ops of each kind) is trained on grown graphs and tested on real ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshcast.base import tell
from meshcast.traces.synthetic.baselines import perturbed_copy, random_graph
from meshcast.traces.synthetic.distances import distances
from meshcast.traces.synthetic.evaluation import Evaluation, judged
from meshcast.traces.synthetic.graphs import OpGraph
from meshcast.traces.synthetic.model import learnt
from meshcast.traces.synthetic.tpu_tile import TimedGraph, read_tpu_tile

LEARNT, APART = "val.pth", "test.pth"
BINS = 10  # of runtimes, as many graphs in each
WITHOUT = ("bytes", "operations", "dimensions", "shapes kept")  # which the data set does not have


def evaluate_tiles(folder: Path, *, graphs: int, seed: int) -> Evaluation:
    """Learns from one file, grows graphs and compares them with the other.

    Args:
        folder: Where both files are.
        graphs: How many are grown, and how many each baseline makes.
        seed: Of all that is drawn.

    Raises:
        InputError: A file is missing or cannot be read.
    """
    known, apart = (read_tpu_tile(folder / name) for name in (LEARNT, APART))
    bins = _bins(known)
    tell("learning")
    model = learnt([graph for row in bins for graph in row])
    runtime = {each.graph.name: each.runtime for each in known}
    random = np.random.default_rng(seed)
    ours: list[TimedGraph] = []
    for number in range(graphs):
        like = bins[number % BINS]
        nodes = len(like[int(random.integers(len(like)))].nodes)
        grown = model.grow(like[0].family, nodes, seed + number)
        ours.append(TimedGraph(graph=grown, runtime=runtime[grown.model]))
    made: dict[str, list[TimedGraph]] = {"real": known, "generated": ours}
    for name, maker in (("copy and perturb", perturbed_copy), ("chance", random_graph)):
        rows = [maker(bins[number % BINS], random) for number in range(graphs)]
        made[name] = [TimedGraph(graph=each, runtime=runtime[each.model]) for each in rows]
    kinds = sorted({node.kind for each in known for node in each.graph.nodes})
    tested = _features(apart, kinds), np.array([each.runtime for each in apart])
    surrogates = {
        name: judged(name, _features(row, kinds), np.array([each.runtime for each in row]), *tested)
        for name, row in made.items()
    }
    theirs = [each.graph for each in apart]
    return Evaluation(
        graphs=len(ours), held_out=len(apart),
        valid={name: sum(not each.graph.complaints() for each in row) for name, row in made.items()},
        distances={name: distances([each.graph for each in row], theirs, without=WITHOUT) for name, row in made.items()},
        surrogates=surrogates,
    )  # fmt: skip


def _bins(known: Sequence[TimedGraph]) -> list[list[OpGraph]]:
    """Graphs by runtime, each bin a family of its own."""
    order = sorted(known, key=lambda each: each.runtime)
    parts = np.array_split(np.arange(len(order)), BINS)
    return [
        [replace(order[int(place)].graph, family=f"{order[0].graph.family} {number}") for place in part]
        for number, part in enumerate(parts)
    ]


def _features(row: Sequence[TimedGraph], kinds: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found = []
    for each in row:
        nodes = each.graph.nodes
        counts = Counter(node.kind for node in nodes)
        totals = [len(nodes), sum(len(node.parents) for node in nodes), len(each.graph.layers())]
        found.append([math.log2(1 + total) for total in (*totals, *(counts[kind] for kind in kinds))])
    return np.array(found)
