"""ASTRA-sim's system, remote memory and group files: read, written, and wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UsageError
from meshcast.network.astra import (
    AstraDimension,
    AstraNetwork,
    AstraSystem,
    RemoteMemory,
    groups_text,
    read_groups,
    read_network,
    read_remote_memory,
    read_system,
    remote_memory_text,
    system_text,
    write_inputs,
)
from meshcast.network.astra.config import IMPLEMENTATIONS

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 2,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct4"],
    "all-gather-implementation": ["ring", "direct"],
    "reduce-scatter-implementation": ["ring", "direct"],
    "all-to-all-implementation": ["direct", "direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
    "roofline-enabled": 1,
    "peak-perf": 900,
    "boost-mode": 0,
}


def written(folder: Path, data: Any) -> Path:
    path = folder / "file.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_system_is_read(tmp_path: Path) -> None:
    system = read_system(written(tmp_path, SYSTEM))
    assert system.names("all_reduce") == ("ring", "direct4")
    assert (system.splits, system.endpoint_delay_ns, system.active_chunks) == (4, 10, 2)
    assert system.local_memory_bandwidth == 1600.0
    assert dict(system.others) == {"roofline-enabled": 1, "peak-perf": 900, "boost-mode": 0}
    assert json.loads(system_text(system)) == SYSTEM


names = st.lists(st.sampled_from(sorted(IMPLEMENTATIONS)), max_size=3).map(tuple)


@given(
    st.builds(
        AstraSystem, all_reduce=names, all_gather=names, reduce_scatter=names, all_to_all=names, splits=st.integers(1, 64),
        endpoint_delay_ns=st.integers(0, 1000), active_chunks=st.integers(1, 8),
        optimisation=st.sampled_from(("baseline", "localBWAware")), scheduling=st.sampled_from(("LIFO", "FIFO")),
        local_memory_bandwidth=st.none() | st.floats(1, 1e5), others=st.sampled_from(({}, {"peak-perf": 3.5})),
    )
)  # fmt: skip
def test_systems_that_are_written_are_read_back(tmp_path_factory: pytest.TempPathFactory, system: AstraSystem) -> None:
    assert read_system(written(tmp_path_factory.mktemp("astra"), system_text(system))) == system


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"endpoint-dely": 3}, "unknown key 'endpoint-dely'"),
        ({"endpoint-delay": -1}, "endpoint-delay: -1"),
        ({"endpoint-delay": 1.5}, "endpoint-delay: 1.5"),
        ({"active-chunks-per-dimension": 0}, "whole number of 1"),
        ({"scheduling-policy": "lifo"}, "none of LIFO"),
        ({"all-reduce-implementation": ["rings"]}, "'rings'"),
        ({"all-reduce-implementation": "ring"}, "no list"),
        ({"local-mem-bw": 0}, "above 0"),
        ({"preferred-dataset-splits": None}, "preferred-dataset-splits"),
    ],
)
def test_mistakes_in_a_system(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_system(written(tmp_path, SYSTEM | change))


def test_a_system_without_chunks(tmp_path: Path) -> None:
    without = {key: value for key, value in SYSTEM.items() if key != "preferred-dataset-splits"}
    with pytest.raises(InputError, match="no preferred-dataset-splits"):
        read_system(written(tmp_path, without))


def test_files_that_are_no_objects(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not JSON") as raised:
        read_system(written(tmp_path, '{\n"endpoint-delay" 3}'))
    assert str(raised.value.where).endswith(":2:18")
    with pytest.raises(InputError, match="no JSON object"):
        read_system(written(tmp_path, [1]))
    with pytest.raises(InputError, match="cannot be read"):
        read_system(tmp_path / "none.json")


def test_remote_memory(tmp_path: Path) -> None:
    for memory in (
        RemoteMemory(),
        RemoteMemory(kind="MEMORY_POOL", latency_ns=100.0, bandwidth=50.0, nodes=2, npus_per_node=8),
    ):
        assert read_remote_memory(written(tmp_path, remote_memory_text(memory))) == memory
    with pytest.raises(InputError, match="no memory-type"):
        read_remote_memory(written(tmp_path, {}))
    with pytest.raises(InputError, match="unknown key"):
        read_remote_memory(written(tmp_path, {"memory-typ": "MEMORY_POOL"}))
    with pytest.raises(InputError, match="none of"):
        read_remote_memory(written(tmp_path, {"memory-type": "POOL"}))


def test_groups(tmp_path: Path) -> None:
    groups = {1: (0, 2), 2: (1, 3)}
    assert read_groups(written(tmp_path, groups_text(groups)), 4) == groups
    for wrong, words in (
        ({"0": [0]}, "numbers from 1"), ({"one": [0]}, "numbers from 1"), ({"1": []}, "no list"),
        ({"1": [0, 4]}, "NPU 4, the network has 4"), ({"1": [0, 0]}, "2 NPUs are named, 1 of them different"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read_groups(written(tmp_path, wrong), 4)


def test_inputs_of_a_run(tmp_path: Path) -> None:
    network = AstraNetwork(dimensions=(AstraDimension(shape="Ring", npus=4, bandwidth=50.0, latency_ns=500.0),))
    system = AstraSystem(all_reduce=("ring",), splits=1)
    paths = write_inputs(tmp_path / "new", network, system, RemoteMemory())
    assert read_network(paths["network-configuration"]) == network
    assert read_system(paths["system-configuration"]) == system
    assert read_remote_memory(paths["remote-memory-configuration"]) == RemoteMemory()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_inputs(tmp_path / "file", network, system, RemoteMemory())
