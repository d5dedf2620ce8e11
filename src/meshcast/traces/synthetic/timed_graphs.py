"""The step of a graph, predicted on hardware by what its nodes do."""

from __future__ import annotations

import tempfile
from pathlib import Path

from meshcast.jobs import predict
from meshcast.traces.synthetic.graphs import OpGraph
from meshcast.traces.synthetic.trace_files import write_graph


def graph_seconds(graph: OpGraph, on: str) -> float:
    """Seconds of a step of a graph's ranks on a device or cluster.

    Raises:
        UnsupportedError: There is no such hardware.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_graph(graph, Path(folder) / "job", first_alone=True)
        found = predict(Path(folder) / "job", on=on, durations="estimated", levers=False)
    assert found.step_time_s is not None
    return found.step_time_s
