"""Whether grown graphs stand for real ones: validity, distances from graphs set apart, and what a surrogate learns from them.

The surrogate is a ridge regression of the logarithm of the step, as predicted of the graph, on the logarithms of its work:
operations of products (of two bytes and fewer, and of wider types, which devices have other rates for) and others, bytes, bytes
of each collective, launches, nodes and layers. It is trained on grown graphs,
tested on real ones that nothing was learnt from, and compared with the same trained on real graphs (LayerDAG, section 4.3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import piece
from meshcast.chakra import COLLECTIVE_CODES
from meshcast.evidence import spearman
from meshcast.traces.synthetic.baselines import perturbed_copy, random_graph
from meshcast.traces.synthetic.distances import distances
from meshcast.traces.synthetic.graphs import OpGraph
from meshcast.traces.synthetic.model import GraphModel
from meshcast.traces.synthetic.timed_graphs import graph_seconds

RIDGE = 1.0  # weight of the squares of the standardised coefficients
SPEARMAN_SHARE, ERROR_RATIO = 0.9, 1.3  # of the surrogate that learnt from real graphs, which ours should reach
Floats = npt.NDArray[np.float64]
COLLECTIVES = tuple(COLLECTIVE_CODES)
WIDE = ("f32", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """How well a surrogate predicts real graphs: correlation of ranks and of logarithms, and the geometric mean of its errors."""

    trained_on: str
    graphs: int
    spearman: float
    pearson: float
    geomean_error: float

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "trained_on": self.trained_on, "graphs": self.graphs, "spearman": self.spearman,
            "pearson": self.pearson, "geomean_error": self.geomean_error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `validate generated` finds.

    Attributes:
        graphs: How many were grown.
        valid: How many can be run, edges, sizes and shapes taken together, by who made the graphs.
        held_out: Real graphs that were set apart.
        distances: From those, by who made the graphs and by measure.
        surrogates: By what they were trained on.
    """

    graphs: int
    valid: dict[str, int]
    held_out: int
    distances: dict[str, dict[str, float]]
    surrogates: dict[str, Surrogate]

    @property
    def reached(self) -> bool:
        """Whether all graphs are valid and the surrogate is nearly as good as the one that learnt from real graphs."""
        ours, real = self.surrogates["generated"], self.surrogates["real"]
        near = (
            ours.spearman >= SPEARMAN_SHARE * real.spearman and ours.geomean_error <= ERROR_RATIO * real.geomean_error
        )
        return self.valid["generated"] == self.graphs and near

    def to_json(self) -> dict[str, Any]:
        """The summary, the last line of the command."""
        return {
            "schema": "meshcast.generated/2", "graphs": self.graphs, "valid": self.valid, "held_out": self.held_out,
            "distances": self.distances, "surrogates": {name: each.to_json() for name, each in self.surrogates.items()},
            "reached": self.reached,
        }  # fmt: skip


def evaluate(model: GraphModel, corpus: Sequence[OpGraph], *, graphs: int, seed: int, on: str) -> Evaluation:
    """Evaluates a model on a corpus.

    Args:
        model: What grows graphs.
        corpus: Real graphs, those that it has learnt from and those set apart.
        graphs: How many are grown, and how many each baseline makes.
        seed: Of all that is drawn.
        on: The hardware that steps are predicted on.
    """
    known = [graph for graph in corpus if not graph.held_out]
    apart = [graph for graph in corpus if graph.held_out]
    random = np.random.default_rng(seed)
    # Of sizes and models as those set apart have them: families, not models, which were never seen.
    templates = [apart[number % len(apart)] for number in range(graphs)]
    ours = [model.grow(each.family, len(each.nodes), seed + number) for number, each in enumerate(templates)]
    made: dict[str, list[OpGraph]] = {
        "generated": ours,
        "copy and perturb": [perturbed_copy(_of_family(known, each), random) for each in templates],
        "chance": [random_graph(_of_family(known, each), random) for each in templates],
    }
    number = itertools.count()

    def seconds(graph: OpGraph, total: int = len(corpus) + graphs * len(made)) -> float:
        done = next(number)
        with piece(f"step {done + 1} of {total} graphs", done=done, total=total):
            return graph_seconds(graph, on)

    timed = {graph.name: seconds(graph) for graph in corpus}
    tested = [timed[graph.name] for graph in apart]
    surrogates = {"real": _surrogate("real", known, [timed[graph.name] for graph in known], apart, tested)}
    for name, row in made.items():
        surrogates[name] = _surrogate(name, row, [seconds(graph) for graph in row], apart, tested)
    every = {"real": known, **made}
    return Evaluation(
        graphs=len(ours), held_out=len(apart), surrogates=surrogates,
        valid={name: sum(not graph.complaints() for graph in row) for name, row in every.items()},
        distances={name: distances(row, apart) for name, row in every.items()},
    )  # fmt: skip


def _of_family(graphs: Sequence[OpGraph], like: OpGraph) -> list[OpGraph]:
    return [graph for graph in graphs if graph.family == like.family] or list(graphs)


def _features(graph: OpGraph) -> list[float]:
    """Logarithms of what a graph has of everything."""
    kernels = [node for node in graph.nodes if not node.is_collective]
    totals = [
        sum(node.flops * node.repeat for node in kernels if node.matrix and node.dtype not in WIDE),
        sum(node.flops * node.repeat for node in kernels if node.matrix and node.dtype in WIDE),
        sum(node.flops * node.repeat for node in kernels if not node.matrix),
        float(sum(node.bytes * node.repeat for node in kernels)), float(sum(node.repeat for node in graph.nodes)),
        float(len(graph.nodes)), float(len(graph.layers())),
    ]  # fmt: skip
    for kind in COLLECTIVES:
        totals.append(float(sum(node.bytes * node.repeat for node in graph.nodes if node.kind == kind)))
    return [math.log2(1 + total) for total in totals]


def _surrogate(
    name: str, graphs: Sequence[OpGraph], seconds: Sequence[float], apart: Sequence[OpGraph], tested: Sequence[float]
) -> Surrogate:
    features, asked = (np.array([_features(graph) for graph in row]) for row in (graphs, apart))
    return judged(name, features, np.array(seconds), asked, np.array(tested))


def judged(name: str, features: Floats, seconds: Floats, asked: Floats, tested: Floats) -> Surrogate:
    """A surrogate that learnt some times by features, on others."""
    answers, truth = _fitted(features, np.log(seconds))(asked), np.log(tested)
    return Surrogate(
        trained_on=name, graphs=len(features), spearman=spearman(answers, truth) or 0.0,
        pearson=float(np.corrcoef(answers, truth)[0, 1]) if answers.std() and truth.std() else 0.0,
        geomean_error=float(np.exp(np.mean(np.abs(answers - truth))) - 1),
    )  # fmt: skip


def _fitted(features: Floats, targets: Floats) -> Callable[[Floats], Floats]:
    """A ridge regression on standardised features; those that do not vary count for nothing."""
    middle, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > 0, spread, np.inf)
    plain = (features - middle) / spread
    weights = np.linalg.solve(plain.T @ plain + RIDGE * np.eye(plain.shape[1]), plain.T @ (targets - targets.mean()))
    return lambda asked: np.asarray(((asked - middle) / spread) @ weights + targets.mean(), dtype=np.float64)
