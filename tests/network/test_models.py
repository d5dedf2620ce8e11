"""The network models behind their seam: conditions, placement, other jobs, uneven groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, UnsupportedError, UsageError
from meshcast.base.mesh import Group, Mesh
from meshcast.hardware import Conditions, LinkCondition, load_cluster
from meshcast.network.arranging import Arrangement, arranged, other_job, without_effect
from meshcast.network.benchmark import collective_of
from meshcast.network.models import NETWORK_MODELS, Flow, groups_apart, network_model
from meshcast.network.setting import Setting
from meshcast.workload.graph import Collective

MESH = Mesh.of({"data": 8, "model": 8})
GIB = 1 << 30


def setting(devices: int = 64, **more: object) -> Setting:
    return Setting(cluster=load_cluster("dgx-h100").for_devices(devices), devices=devices, **more)  # type: ignore[arg-type]


def over(*axes: str, kind: str = "all_reduce", size: int = GIB) -> Collective:
    return collective_of(kind, size, MESH.group(axes))


@pytest.mark.parametrize("network", ["alpha-beta", "flow"])
def test_a_tired_link_slows_all_who_share_its_group(network: str) -> None:
    slow = Conditions(links=(LinkCondition(level="infiniband", device=5, share=0.5),))
    healthy, tired = network_model(network, setting()), network_model(network, setting(conditions=slow))
    assert tired.seconds(over("data")) > 1.8 * healthy.seconds(over("data"))
    assert tired.seconds(over("model")) == healthy.seconds(over("model"))


@settings(max_examples=30, deadline=None)
@given(first=st.integers(0, 40), distance=st.integers(1, 40), count=st.integers(1, 12))
def test_of_pairs_that_lie_alike_one_says_what_all_take(first: int, distance: int, count: int) -> None:
    """What is left out takes as long as something that is not, on nodes of eight in racks of twenty-four."""
    node, fabric = load_cluster("dgx-h100").levels
    rack = replace(fabric, name="rack", size=24, link_bandwidth=2 * fabric.link_bandwidth)
    three = replace(load_cluster("dgx-h100"), levels=(node, rack, fabric))
    model = network_model("alpha-beta", Setting(cluster=three, devices=128))
    pairs = tuple(Group(dims=((2, distance),), axes=("pipeline",), first=first + place) for place in range(count))
    taken = [model.seconds(collective_of("collective_permute", GIB, pair)) for pair in pairs]
    apart = groups_apart(model, pairs)
    asked = [model.seconds(collective_of("collective_permute", GIB, pair)) for pair in apart]
    assert set(asked) == set(taken)
    assert apart[0] is pairs[0]
    assert len(apart) <= 3


def test_of_pairs_on_links_in_a_state_of_their_own_all_are_asked() -> None:
    pairs = tuple(Group(dims=((2, 8),), axes=("pipeline",), first=place) for place in range(8))
    tired = Conditions(links=(LinkCondition(level="infiniband", device=5, share=0.5),))
    assert len(groups_apart(network_model("alpha-beta", setting()), pairs)) == 1
    assert groups_apart(network_model("alpha-beta", setting(conditions=tired)), pairs) == pairs
    assert groups_apart(network_model("flow", setting()), pairs) == pairs


@pytest.mark.parametrize("network", ["alpha-beta", "flow"])
def test_background_traffic_takes_its_share(network: str) -> None:
    half = setting(conditions=Conditions(background={"infiniband": 0.5}))
    alone, shared = network_model(network, setting()), network_model(network, half)
    assert shared.seconds(over("data")) == pytest.approx(2 * alone.seconds(over("data")), rel=0.1)


def test_failed_links_need_the_graph() -> None:
    failed = setting(conditions=Conditions(links=(LinkCondition(level="nvlink", device=3, share=0.0),)))
    with pytest.raises(UnsupportedError, match="have failed"):
        network_model("alpha-beta", failed).seconds(over("model"))
    # Switches cannot add for a device without links to them; other algorithms go around by its network card.
    around = network_model("flow", failed)
    assert not around.plan(over("model")).in_network
    assert around.seconds(over("model")) > network_model("flow", setting()).seconds(over("model"))
    cut_off = setting(8, conditions=failed.conditions)
    with pytest.raises(InfeasibleError):
        network_model("flow", cut_off).seconds(collective_of("all_reduce", GIB, Group(dims=((8, 1),))))


def test_other_jobs_on_the_same_links_slow_ours_down() -> None:
    quiet, _ = arranged(Arrangement(network="flow"), load_cluster("dgx-h100"), 64, {})
    busy, _ = arranged(
        Arrangement(network="flow", beside=(other_job("all_reduce:1GiB:0-63"),)), load_cluster("dgx-h100"), 64, {}
    )
    apart, _ = arranged(
        Arrangement(network="flow", beside=(other_job("all_reduce:1GiB:64-127"),)), load_cluster("dgx-h100"), 64, {}
    )
    alone = network_model("flow", quiet).seconds(over("data"))
    assert network_model("flow", busy).seconds(over("data")) > 1.5 * alone
    assert apart.devices == 128
    assert network_model("flow", apart).seconds(over("data")) == pytest.approx(alone, rel=1e-9)


def test_collectives_at_once_share_and_those_apart_do_not() -> None:
    for network in ("alpha-beta", "flow"):
        model = network_model(network, setting())
        assert list(model.shares([over("data"), over("model")])) == pytest.approx([1, 1], abs=0.01)
        both = model.shares([over("data"), over("data", kind="all_gather")])
        assert all(0.4 < share < 0.8 for share in both)
        assert sum(both) < 1.3


def test_uneven_groups_take_as_long_as_the_slowest() -> None:
    uneven = replace(
        over("model"), group=Group(dims=((6, 1),), table=(tuple(range(6)), (6, 7), tuple(range(8, 14)), (14, 15)))
    )
    model = network_model("flow", setting(16))
    largest = Group(dims=((6, 1),), table=(tuple(range(6)),))
    assert model.seconds(uneven) >= model.seconds(replace(uneven, group=largest))
    assert network_model("alpha-beta", setting(16)).seconds(uneven) > 0


def test_a_placement_moves_the_busy_axis_inside(tmp_path: Path) -> None:
    cluster = load_cluster("dgx-h100")
    wanted = {over("data"): 10, over("model", size=1 << 10): 1}
    best, said = arranged(Arrangement(placement="optimise"), cluster, 64, wanted)
    dense, _ = arranged(Arrangement(), cluster, 64, wanted)
    assert "instead of" in said[0]
    fast, slow = (network_model("alpha-beta", each) for each in (best, dense))
    assert fast.seconds(over("data")) < 0.5 * slow.seconds(over("data"))
    path = tmp_path / "placement"
    assert best.placement is not None
    path.write_text("\n".join(map(str, best.placement.devices)))
    given, _ = arranged(Arrangement(placement=str(path)), cluster, 64, wanted)
    assert given == best


def test_what_changes_nothing_is_said() -> None:
    tired = Conditions(links=(LinkCondition(level="infiniband", device=5, share=0.5),), background={"nvlink": 0.5})
    (said,) = without_effect("flow", setting(conditions=tired), {over("model"): 1}, levels=False)
    assert "infiniband" in said
    assert "no effect" in said


def test_only_flow_knows_single_links() -> None:
    for asked in (Arrangement(beside=(other_job("all_reduce:1GiB:0-7"),)), Arrangement(graph="fabric.toml")):
        with pytest.raises(UsageError, match="knows no links"):
            arranged(asked, load_cluster("dgx-h100"), 8, {})
    with pytest.raises(UsageError, match="KIND:BYTES:FIRST-LAST"):
        other_job("all_reduce:1GiB")


def test_every_model_answers() -> None:
    for name in NETWORK_MODELS:
        if not name.startswith("astra-sim"):
            devices = 8 if name == "astra-aware" else 64
            group = Group(dims=((devices, 1),))
            assert network_model(name, setting(devices)).seconds(collective_of("all_reduce", GIB, group)) > 1e-3
    with pytest.raises(UsageError, match="no network model"):
        network_model("carrier-pigeon", setting())


def test_collectives_started_at_once_are_each_slower() -> None:
    model = network_model("flow", setting())
    assert isinstance(model, Flow)
    one = over("data")
    result = model.together([(one, model.plan(one)), (one, model.plan(one))])
    assert result.jobs[0].seconds == pytest.approx(2 * model.seconds(one), rel=0.1)


def test_the_fabric_reaches_as_far_as_the_farthest_device(tmp_path: Path) -> None:
    path = tmp_path / "placement"
    for first, devices in ((0, 8), (1, 9), (2, 10)):
        path.write_text("\n".join(str(first + rank) for rank in range(8)))
        found, _ = arranged(Arrangement(network="flow", placement=str(path)), load_cluster("dgx-h100"), 8, {})
        assert found.devices == devices
    crossing = network_model("flow", found).seconds(collective_of("all_reduce", GIB, Group(dims=((8, 1),))))
    inside = network_model("flow", setting(8)).seconds(collective_of("all_reduce", GIB, Group(dims=((8, 1),))))
    assert crossing > inside
