"""A user's own graph: two hosts of two devices with different cards, and what can be wrong with its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshcast.base.errors import InputError
from meshcast.hardware import Conditions, LinkCondition
from meshcast.network.fabric import read_fabric
from meshcast.network.flow import FlowJob, simulate_flows
from tests.network.clusters import FABRIC, NODE, cluster
from tests.network.plans import plan, stage, whole

TEXT = """\
schema = "meshcast.fabric/1"
name = "lab"
devices = "4 devices"

[[nodes]]
name = "host"
count = "2 nodes"

[[nodes]]
name = "leaf"
kind = "switch"

[[links]]
from = ["0", "1"]
to = ["host.0"]
bandwidth = "100 GB/s"
kind = "node"

[[links]]
from = ["2..3"]
to = ["host.1"]
bandwidth = "50 GB/s"
count = "2 links"
kind = "node"

[[links]]
from = ["host"]
to = ["leaf"]
bandwidth = "10 GB/s"
latency = "5 us"
kind = "fabric"

[[speeds]]
devices = ["3"]
share = "0.5"
"""


def write(folder: Path, text: str = TEXT) -> Path:
    path = folder / "lab.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flows_find_their_way_through_a_graph(tmp_path: Path) -> None:
    """A ring over four devices crosses from host to host twice, at 10 GB/s."""
    read = read_fabric(write(tmp_path))
    assert read.speed == {3: 0.5}
    assert [level.name for level in read.fabric.levels] == ["node", "fabric"]
    assert len(read.fabric.links) == 12
    paths = read.fabric.paths(np.array([0, 0]), np.array([1, 2]))
    assert list(np.bincount(paths.flow)) == [2, 4]
    made = plan(stage(read.fabric.levels[1], parts=4, sent=1e9, rate=100e9))
    result = simulate_flows(read.fabric, [FlowJob(name="ring", traffic=whole(made, 4))])
    assert result.seconds == pytest.approx(made.latency_s + 1e9 / 10e9)
    assert result.levels[1].most == pytest.approx(1e9 / 10e9 / result.seconds)


def test_a_graph_with_the_levels_of_a_cluster(tmp_path: Path) -> None:
    from dataclasses import replace

    lab = cluster(replace(NODE, size=2), FABRIC)
    conditions = Conditions(links=(LinkCondition(level="node", device=2, share=0.5),))
    fabric = read_fabric(write(tmp_path), lab, conditions).fabric
    assert fabric.levels == lab.for_devices(4).levels
    assert fabric.capacity.min() == 10e9
    assert sorted(set(fabric.capacity[fabric.links.level == 0])) == [50e9, 100e9]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"host.0"', '"hots.0"'), "no node 'hots.0', did you mean 'host.0'?"),
        (('"2..3"', '"2..4"'), "no node '4'"),
        (('name = "leaf"', 'name = "host"'), "'host' cannot name a node"),
        (('bandwidth = "100 GB/s"', 'bandwidth = "100"'), "it has no unit"),
        (('kind = "switch"', 'kid = "switch"'), "unknown key 'nodes.1.kid'"),
        (('share = "0.5"', 'share = "fast"'), "expected a ratio like '3:1'"),
        (('devices = ["3"]', 'devices = ["leaf"]'), "is no device"),
        (('["leaf"]', "[]"), "has nodes in 'from' and in 'to'"),
        (("fabric/1", "fabric/2"), "expected one of meshcast.fabric/1"),
    ],
)
def test_mistakes_in_a_graph_file(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_fabric(write(tmp_path, TEXT.replace(*change)))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_kind_that_is_no_level_of_the_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no such level"):
        read_fabric(write(tmp_path, TEXT.replace('kind = "fabric"', 'kind = "ether"')), cluster(NODE))
