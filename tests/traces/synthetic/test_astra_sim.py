"""ASTRA-sim itself on generated traces, where it is on the PATH: its roofline's nanoseconds of all their nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.chakra import rank_path, read_trace
from meshcast.hardware import cluster_network, resolve
from meshcast.network.astra import astra_available, preset_system, run_alone
from meshcast.traces import GraphConditions, grow_for, shipped_model, write_graph

PEAK_TERA = 900.0


@pytest.mark.skipif("Unaware" not in astra_available(), reason="ASTRA-sim is not on the PATH (meshcast doctor)")
@pytest.mark.parametrize("like", ["measured-mlp", "measured-t5", "recorded-gpt2"])
def test_every_node_of_a_rank_alone_is_run(tmp_path: Path, like: str) -> None:
    """One kernel at a time, each whole nanoseconds of operations / min(peak, bandwidth x operations / bytes)."""
    cluster = resolve("dgx-h100")
    network = cluster_network(cluster, 2)
    system = replace(
        preset_system(network, cluster.device), others={"roofline-enabled": 1, "peak-perf": PEAK_TERA}
    )  # fmt: skip
    graph = grow_for(shipped_model(), like, 120, 7, GraphConditions()).graph
    assert graph.ranks == 1
    write_graph(graph, tmp_path / "job")
    assert system.local_memory_bandwidth
    expected = 0
    for node in read_trace(rank_path(tmp_path / "job", 0)).nodes:
        operations, size = node.attributes["num_ops"], node.attributes["tensor_size"]
        assert isinstance(operations, int)
        assert isinstance(size, int)
        rate = min(system.local_memory_bandwidth * 1e9 * (operations / size), PEAK_TERA * 1e12)
        expected += int(operations / rate * 1e9)
    assert run_alone(tmp_path / "job", network, system).finished_ns == (expected, expected)
