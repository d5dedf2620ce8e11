"""Topologies in cluster files: the keys that each has, and what is said about those that it has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import hardware
from meshcast.base.errors import InputError
from meshcast.hardware import load_cluster

TEXT = """\
schema = "meshcast.cluster/1"
name = "lab"
device = "h100-sxm"
max_devices = "{size} devices"

[[levels]]
name = "net"
technology = "RoCE"
topology = "{topology}"
size = "{size} devices"
links = "1 link"
link_bandwidth = "400 Gbit/s"
latency = "5 us"
{keys}
"""


def load(folder: Path, topology: str, size: int, *keys: str) -> hardware.NetworkLevel:
    path = folder / "lab.toml"
    path.write_text(TEXT.format(topology=topology, size=size, keys="\n".join(keys)))
    return load_cluster(path).levels[0]


def test_a_fat_tree(tmp_path: Path) -> None:
    level = load(tmp_path, "fat-tree", 4096, 'radix = "64 ports"', 'oversubscription = "3:1"', 'rails = "8 rails"')
    assert (level.radix, level.oversubscription, level.rails, level.switched) == (64, 3.0, 8, True)
    assert (level.devices_per_leaf, level.taper) == (48, 3.0)
    assert level.effective_bandwidth == pytest.approx(50e9 / 3)


def test_a_dragonfly(tmp_path: Path) -> None:
    level = load(tmp_path, "dragonfly", 288, 'dims = "4x8x9"', 'global_links = "2 links"')
    assert (level.dims, level.global_links, level.devices_per_leaf) == ((4, 8, 9), 2, 4)
    assert level.effective_bandwidth == pytest.approx(50e9 / 2)


def test_a_pcie_host(tmp_path: Path) -> None:
    keys = (
        'radix = "2 devices"',
        'sockets = "2 sockets"',
        'socket_bandwidth = "60 GB/s"',
        'staging_bandwidth = "20 GB/s"',
    )
    level = load(tmp_path, "pcie", 8, *keys)
    assert (level.radix, level.sockets, level.socket_bandwidth, level.staging_bandwidth) == (2, 2, 60e9, 20e9)


def test_a_twisted_torus(tmp_path: Path) -> None:
    level = load(tmp_path, "torus", 32, 'dims = "4x8"', "twist = true", 'wrap = "multiples-of-4"')
    assert (level.twist, level.wrap, level.taper, level.switched) == (True, "multiples-of-4", 1.0, False)


@pytest.mark.parametrize(
    ("topology", "size", "keys", "message"),
    [
        ("fat-tree", 64, (), "missing key 'radix': a fat-tree needs it"),
        ("fat-tree", 64, ('radix = "1 port"',), "2 or more"),
        ("fat-tree", 64, ('radix = "8 ports"', 'oversubscription = "3 to 1"'), "expected a ratio like '3:1'"),
        ("switch", 64, ('oversubscription = "3:1"',), "oversubscription belongs to a fat-tree"),
        ("fat-tree", 64, ('radix = "8 ports"', 'wrap = "never"'), "wrap belongs to a ring or torus"),
        ("torus", 64, ('dims = "8x8"', 'wrap = "sometimes"'), "expected one of always, full-axis"),
        ("torus", 64, ('dims = "8x9"',), "dims holds 72 devices, size says 64"),
        ("dragonfly", 64, ('dims = "8x8"', 'global_links = "1 link"'), "devices per router x routers per group x groups"),
        ("dragonfly", 96, ('dims = "2x4x12"', 'global_links = "2 links"'), "12 groups need 11"),
        ("dragonfly", 96, ('dims = "2x4x12"',), "missing key 'global_links'"),
        ("pcie", 8, ('radix = "2 devices"', 'sockets = "2 sockets"'), "2 sockets need a socket_bandwidth"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, topology: str, size: int, keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, topology, size, *keys)
    assert message in str(caught.value)
