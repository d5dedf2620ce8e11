"""Sets of generated traces that simulators can be handed, with a manifest of what they cover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshcast.base import VERSION, UsageError, tell, whole_files
from meshcast.traces.synthetic.conditions import ConditionedGraph, GraphConditions, grow_for
from meshcast.traces.synthetic.model import GraphModel
from meshcast.traces.synthetic.trace_files import stage_graph

MANIFEST = "suite.json"
SUITE_NODES = (250, 500, 1000, 2000)
ANY = GraphConditions()


def write_suite(
    model: GraphModel, folder: Path, *, likes: Sequence[str], seed: int, count: int, conditions: GraphConditions = ANY
) -> dict[str, Any]:
    """Writes a set of traces that simulators can be handed, and its manifest: graphs like each of some models, of all sizes.

    Args:
        model: What graphs are grown by.
        folder: Where they go, each in a folder of its own.
        likes: Models or families; none for every family that was learnt.
        seed: The first graph's; the others' follow it.
        count: Graphs like each.
        conditions: What each of them is grown for.

    Raises:
        UsageError: Nothing was learnt of one of them, one of them cannot meet a condition, or something lies in the folder.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("is a file", where=str(folder), fix="give a new folder: a suite has one for each graph")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("is not empty", where=str(folder), fix="give a new folder: a suite is what its manifest lists")
    chosen = list(likes) or sorted({each.family for each in model.settings})
    rows: list[dict[str, Any]] = []
    # One set of files: a signal half-way ends the command, and leaves nothing.
    with whole_files(folder / MANIFEST) as staged:
        for like in chosen:
            for number in range(count):
                nodes = SUITE_NODES[number % len(SUITE_NODES)]
                made = grow_for(model, like, nodes, seed + len(rows), conditions)
                name = f"{like}-{nodes}-{seed + len(rows)}"
                total = len(chosen) * count
                tell(f"{len(rows):,} of {total:,} graphs: {name}", done=len(rows), total=total)
                written = stage_graph(
                    staged, made.graph, folder / name / "job", memory=conditions.memory_bytes is not None
                )
                rows.append(_row(made, name, like, seed + len(rows), len(written)))
        manifest = {
            "schema": "meshcast.suite/1", "version": VERSION, "seed": seed, "graphs": rows,
            "conditions": {"step_s": conditions.step_s, "memory_bytes": conditions.memory_bytes, "on": conditions.on},
            "covers": {
                "families": sorted({row["family"] for row in rows}), "ranks": sorted({row["ranks"] for row in rows}),
                "kinds": sorted({kind for row in rows for kind in row["kinds"]}),
                "collectives": sorted({kind for row in rows for kind in row["collectives"]}),
            },
        }  # fmt: skip
        staged.path(folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _row(made: ConditionedGraph, name: str, like: str, seed: int, written: int) -> dict[str, Any]:
    graph = made.graph
    return {
        "trace": f"{name}/job", "like": like, "family": graph.family, "seed": seed, "nodes": len(graph.nodes),
        "ranks": graph.ranks, "files": written, "layers": len(graph.layers()),
        "step_s": made.step_s, "memory_bytes": graph.memory_bytes,
        "kinds": sorted({node.kind for node in graph.nodes if not node.is_collective}),
        "collectives": sorted({node.kind for node in graph.nodes if node.is_collective}),
    }  # fmt: skip
