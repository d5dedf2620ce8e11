"""LayerDAG's TPU-Tile graphs: kernels of TpuGraphs' tile collection, ops by number and a runtime each.

The public repository (https://github.com/Graph-COM/LayerDAG, data_files/tpu_tile_processed) has `val.pth` and `test.pth`, 630 and
631 graphs, as PyTorch saves them; they are read without it (`base/torch_files.py`).
"""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshcast.base import InputError, saved_tensors
from meshcast.traces.synthetic.graphs import OpGraph, OpNode

FAMILY = "tpu-tile"
FIX = "give val.pth or test.pth of data_files/tpu_tile_processed in Graph-COM/LayerDAG"
_LISTS = ("src_list", "dst_list", "x_n_list", "y_list")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedGraph:
    """A graph with its runtime, normalised and averaged over the compiler's configurations, as LayerDAG has it."""

    graph: OpGraph
    runtime: float


def read_tpu_tile(path: Path) -> list[TimedGraph]:
    """The graphs of a file.

    Raises:
        InputError: It is no such file, or one of its graphs cannot be run.
    """
    try:
        found = saved_tensors(path.read_bytes())
    except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read as graphs: {said}", where=str(path), fix=FIX) from None
    if not isinstance(found, dict) or any(not isinstance(found.get(key), list) for key in _LISTS):
        raise InputError(f"has none of the lists {', '.join(_LISTS)}", where=str(path), fix=FIX)
    rows = zip(*(found[key] for key in _LISTS), strict=True)
    return [_graph(f"{path.stem} {number}", path, *row) for number, row in enumerate(rows)]


def _graph(name: str, path: Path, sources: Any, targets: Any, kinds: Any, runtime: Any) -> TimedGraph:
    """A graph of one device; an op's number is its kind, and of sizes nothing is said: a byte each."""
    parents: list[set[int]] = [set() for _ in kinds]
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        parents[target].add(source)
    nodes = tuple(
        OpNode(kind=f"op {kind}", bytes=1, parents=tuple(sorted(each)))
        for kind, each in zip(kinds.tolist(), parents, strict=True)
    )
    graph = OpGraph(name=name, model=name, family=FAMILY, ranks=1, groups=(), nodes=nodes)
    if complaints := graph.complaints():
        raise InputError(f"graph {name}: {complaints[0]}", where=str(path), fix=FIX)
    return TimedGraph(graph=graph, runtime=float(np.ravel(runtime)[0]))
