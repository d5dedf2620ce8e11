"""The closed form and the fabric's flows agree on every cluster of the catalogue, but where flows really meet."""

from __future__ import annotations

import itertools

import pytest

from meshcast.base.mesh import Group, Mesh
from meshcast.hardware import Cluster, cluster_names, load_cluster
from meshcast.network import spread_over_levels
from meshcast.network.benchmark import collective_of
from meshcast.network.models import AlphaBeta, Flow
from meshcast.network.setting import Setting
from meshcast.network.slices import regular
from meshcast.network.spread import LevelSpread

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "collective_broadcast",
    "collective_reduce",
)  # fmt: skip
SIZES = (4096, 2**20, 2**28)
MESHES = (
    {"a": 3},
    {"a": 2, "b": 2, "c": 2},
    {"a": 4, "b": 2},
    {"a": 12},
    {"a": 8, "b": 8},
    {"a": 2, "b": 16},
    {"a": 256},
)


def flows_meet(at: LevelSpread, devices: int) -> bool:
    """Whether a level's links may carry more than the closed form counts.

    Switches that have less upwards than downwards, or routers with one link to each other, when groups reach beyond one of
    them; rings and tori, when groups lie on them in other shapes than evenly spaced boxes.
    """
    level = at.level
    narrow = level.topology == "dragonfly" or (level.topology == "fat-tree" and level.taper > 1)
    return (narrow and devices > level.devices_per_leaf) or not regular(at.lines)


def groups_of(mesh: Mesh) -> list[Group]:
    names = list(mesh.sizes)
    choices = itertools.chain.from_iterable(itertools.combinations(names, count + 1) for count in range(len(names)))
    return [mesh.group(axes) for axes in choices]


def compared(cluster: Cluster, mesh: Mesh, sizes: tuple[int, ...]) -> list[tuple[str, float, bool]]:
    """(what, flow over closed form, whether flows may meet) of all collectives over axes of a mesh.

    Each with one of the sizes, in turn: over the groups of a cluster's meshes every collective has had all of them.
    """
    setting = Setting(cluster=cluster.for_devices(mesh.size), devices=mesh.size)
    closed, flow = AlphaBeta(setting=setting), Flow(setting=setting)
    found: list[tuple[str, float, bool]] = []
    for place, group in enumerate(groups_of(mesh), start=mesh.size):
        meet = any(flows_meet(at, mesh.size) for at in spread_over_levels(group, setting.cluster))
        for turn, kind in enumerate(KINDS, start=place):
            size = sizes[turn % len(sizes)]
            collective = collective_of(kind, size, group)
            what = f"{kind} of {size} over {group} of {mesh}"
            found.append((what, flow.seconds(collective) / closed.seconds(collective), meet))
    return found


@pytest.mark.parametrize("name", cluster_names())
def test_both_agree_where_no_flows_meet(name: str) -> None:
    cluster = load_cluster(name)
    found = [
        row for sizes in MESHES if Mesh.of(sizes).size <= cluster.max_devices
        for row in compared(cluster, Mesh.of(sizes), SIZES)
    ]  # fmt: skip
    assert found
    assert [(what, ratio) for what, ratio, _ in found if ratio < 1 - 1e-9] == []
    assert [(what, ratio) for what, ratio, meet in found if not meet and ratio > 1 + 1e-6] == []


@pytest.mark.parametrize(
    ("name", "mesh"), [("h100-oversubscribed", {"a": 256}), ("perlmutter", {"a": 64}), ("mi250x-node", {"a": 2, "b": 2, "c": 2})]
)  # fmt: skip
def test_flows_that_meet_take_longer(name: str, mesh: dict[str, int]) -> None:
    """The rule leaves out nothing that would agree anyway."""
    found = compared(load_cluster(name), Mesh.of(mesh), (2**28,))
    assert any(meet and ratio > 1.1 for _, ratio, meet in found)
