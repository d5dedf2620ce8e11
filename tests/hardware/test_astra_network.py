"""ASTRA-sim's network files: read, written, wrong, and as clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.hardware import load_cluster, load_device, resolve
from meshcast.hardware.astra import (
    ASTRA_SHAPES,
    AstraDimension,
    AstraNetwork,
    cluster_network,
    even_sides,
    network_cluster,
    network_text,
    read_network,
)  # fmt: skip

TWO = """\
# two levels
topology: [ FullyConnected, Switch ]  # innermost first
npus_count: [ 8, 16 ]
bandwidth:
  - 400
  - 25.5
latency: [ 200.0,
           1e3 ]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "network.yml"
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    network = read_network(written(tmp_path, TWO))
    assert network.npus == 128
    assert network.dimensions == (
        AstraDimension(shape="FullyConnected", npus=8, bandwidth=400.0, latency_ns=200.0),
        AstraDimension(shape="Switch", npus=16, bandwidth=25.5, latency_ns=1000.0),
    )


dimensions = st.builds(
    AstraDimension, shape=st.sampled_from(ASTRA_SHAPES), npus=st.integers(2, 4096), bandwidth=st.floats(1e-3, 1e6),
    latency_ns=st.floats(0, 1e6),
)  # fmt: skip


@given(st.lists(dimensions, min_size=1, max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: list[AstraDimension]) -> None:
    network = AstraNetwork(dimensions=tuple(found))
    assert read_network(written(tmp_path_factory.mktemp("astra"), network_text(network))) == network


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("npus_count", "npu_count", 3, "unknown key 'npu_count'"),
        ("[ 8, 16 ]", "[ 8 ]", 3, "npus_count has 1 values, topology names 2"),
        ("[ 8, 16 ]", "8", 3, "not a list"),
        ("[ 8, 16 ]", "[ 8, 1 ]", 3, "2 or more"),
        ("Switch ]", "Swich ]", 2, "Swich"),
        ("25.5", "-3", 4, "-3"),
        ("1e3", "fast", 7, "fast"),
        ("npus_count: [ 8, 16 ]", "topology: [ Ring, Ring ]", 3, "given twice"),
        ("npus_count: [ 8, 16 ]", "npus_count [ 8, 16 ]", 3, "KEY"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    path = written(tmp_path, TWO.replace(old, new))
    with pytest.raises(InputError) as raised:
        read_network(path)
    assert raised.value.where == f"{path}:{line}"
    assert words in str(raised.value)


def test_missing_keys_and_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no bandwidth, latency"):
        read_network(written(tmp_path, "topology: [ Ring ]\nnpus_count: [ 4 ]\n"))
    with pytest.raises(InputError, match="cannot be read"):
        read_network(tmp_path / "none.yml")


def test_a_network_and_a_device_are_a_cluster(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    cluster = resolve(f"h100-sxm@{path}")
    assert (cluster.device.name, cluster.max_devices) == ("h100-sxm", 128)
    inner, outer = cluster.levels
    assert (inner.topology, inner.size, inner.links) == ("full", 8, 7)
    assert inner.link_bandwidth == 400 * 2**30
    assert (outer.topology, outer.size) == ("switch", 128)
    assert outer.latency_s == pytest.approx(2e-6)  # up and down
    assert cluster_network(cluster, 128) == read_network(path)
    with pytest.raises(UsageError, match="which device"):
        resolve(str(path))


@given(st.lists(dimensions, min_size=1, max_size=3))
def test_clusters_give_their_networks_back(found: list[AstraDimension]) -> None:
    network = AstraNetwork(dimensions=tuple(found))
    cluster = network_cluster(network, load_device("h100-sxm"), name="mine")
    back = cluster_network(cluster, network.npus)
    for ours, theirs in zip(back.dimensions, network.dimensions, strict=True):
        assert (ours.shape, ours.npus) == (theirs.shape, theirs.npus)
        assert ours.bandwidth == pytest.approx(theirs.bandwidth)
        assert ours.latency_ns == pytest.approx(theirs.latency_ns, abs=1e-6)


def test_clusters_of_the_catalogue_as_networks() -> None:
    shapes = {d.shape: d.npus for d in cluster_network(load_cluster("dgx-h100"), 8).dimensions}
    assert shapes == {"Switch": 8}
    torus = cluster_network(load_cluster("tpu-v5p-pod"), 64)
    assert [(d.shape, d.npus) for d in torus.dimensions] == [("Ring", 4)] * 3
    with pytest.raises(UnsupportedError, match="evenly"):
        cluster_network(load_cluster("dgx-h100"), 12)
    with pytest.raises(UsageError, match="no network"):
        cluster_network(load_cluster("dgx-h100"), 1)


def test_sides_of_boxes() -> None:
    assert even_sides(64, (16, 16)) == (8, 8)
    assert even_sides(48, (16, 20, 28)) == (3, 4, 4)
    assert even_sides(4, (16, 16, 16)) == (2, 2)
    with pytest.raises(UnsupportedError, match="no box"):
        even_sides(17, (16, 16))


def test_what_an_oversubscribed_tree_lacks_is_not_lost() -> None:
    tree = load_cluster("h100-oversubscribed")
    level = tree.levels[1]
    assert level.taper > 1
    inside, across = cluster_network(tree, 8 * level.devices_per_leaf).dimensions
    assert inside.bandwidth == pytest.approx(tree.levels[0].bandwidth / 2**30)
    assert across.bandwidth == pytest.approx(level.bandwidth / level.taper / 2**30)
    _, leaf = cluster_network(tree, 16).dimensions  # two nodes on one switch
    assert leaf.bandwidth == pytest.approx(level.bandwidth / 2**30)
