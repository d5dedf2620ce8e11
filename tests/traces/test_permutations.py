"""Permutations are exported by their own pairs: a send for who sends, a receive for who receives, with one tag."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import predict
from meshcast.chakra import NodeType, read_trace
from meshcast.hardware import resolve
from meshcast.hardware.astra import cluster_network
from meshcast.network.astra import astra_available, run_traces
from meshcast.network.astra.model import preset_system
from meshcast.options.options import Options
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
BACK = [(1, 0), (2, 1), (3, 2), (0, 3)]
CHAIN = [(0, 1), (1, 2), (2, 3)]
SWAP = [(0, 3), (3, 0), (1, 1)]
FORK_FREE = [(3, 1), (1, 0)]


def program(folder: Path, pairs: list[tuple[int, int]]) -> Path:
    listed = ", ".join(f"[{source}, {target}]" for source, target in pairs)
    path = folder / "permute.mlir"
    path.write_text(
        f"""
module attributes {{mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {{
    %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
      : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    %1 = "stablehlo.collective_permute"(%0) {{source_target_pairs = dense<[{listed}]> : tensor<{len(pairs)}x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : (tensor<512x512xf32>) -> tensor<512x512xf32>
    %2 = stablehlo.dot_general %1, %a, contracting_dims = [1] x [0]
      : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
    return %2 : tensor<512x512xf32>
  }}
}}
"""
    )
    return path


@pytest.mark.parametrize("pairs", [RING, BACK, CHAIN, SWAP, FORK_FREE])
def test_pairs_are_the_programs_own(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    network = tmp_path / "network.yml"
    network.write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n")
    on = f"h100-sxm@{network}"
    options = Options(on=on, network="astra", channels=1, contention="off", host="off")
    written = write_trace(
        "chakra", TraceRequest(target=str(program(tmp_path, pairs)), options=options, out=tmp_path / "job")
    ).summary
    sent, received = set(), set()
    for rank in range(4):
        for node in read_trace(tmp_path / f"job.{rank}.et").nodes:
            said = node.attributes
            if node.kind is NodeType.SEND:
                sent.add((rank, said["comm_dst"], said["comm_tag"], said["comm_size"]))
            elif node.kind is NodeType.RECEIVE:
                received.add((said["comm_src"], rank, said["comm_tag"], said["comm_size"]))
    assert sent == received
    assert {pair[:2] for pair in sent} == {pair for pair in pairs if pair[0] != pair[1]}
    assert {pair[3] for pair in sent} == {512 * 512 * 4}
    assert predict(tmp_path / "job", on=on).step_time_s == pytest.approx(written["step_time_s"], rel=1e-6)
    if astra_available():
        cluster = resolve(on)
        astra = cluster_network(cluster, 4)
        found = run_traces(
            tmp_path / "job", astra, preset_system(astra, cluster.device), groups=Path(written["comm_groups"])
        )
        assert found.seconds == pytest.approx(written["step_time_s"], rel=0.02)


def test_ranks_that_do_nothing_come_back(tmp_path: Path) -> None:
    """Only 0 sends and only 1 receives: two of four ranks have no node at all."""
    path = tmp_path / "alone.mlir"
    path.write_text(
        """
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {
    %1 = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (tensor<512x512xf32>) -> tensor<512x512xf32>
    return %1 : tensor<512x512xf32>
  }
}
"""
    )
    options = Options(on="dgx-h100", host="off")
    made = write_trace("chakra", TraceRequest(target=str(path), options=options, out=tmp_path / "job")).summary
    assert not read_trace(tmp_path / "job.3.et").nodes
    back = predict(str(tmp_path / "job"), Options(on="dgx-h100"))
    assert back.devices == 4
    assert back.step_time_s == pytest.approx(made["step_time_s"], rel=1e-9)
