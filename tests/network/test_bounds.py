"""What must hold for every collective on every cluster of the catalogue, whatever the library chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.mesh import Group
from meshcast.hardware import Cluster, NetworkLevel, cluster_names, load_cluster
from meshcast.network import plan_collective, spread_over_levels
from meshcast.workload.graph import Collective

KINDS = (
    *("all_gather", "reduce_scatter", "all_reduce", "all_to_all"),
    *("collective_permute", "collective_broadcast", "collective_reduce"),
)
NAMES = cluster_names()
kinds, names = st.sampled_from(KINDS), st.sampled_from(NAMES)
sizes = st.floats(1, 1e11)
groups = st.tuples(st.integers(2, 300), st.sampled_from([1, 2, 4, 8, 72, 256]))


def seconds(kind: str, dim: tuple[int, int], size: float, on: Cluster) -> float:
    op = Collective(kind=kind, group=Group(dims=(dim,)), input_bytes=int(size), output_bytes=int(size))
    return plan_collective(op, on).seconds


def changed(on: Cluster, **factors: float) -> Cluster:
    def level(at: NetworkLevel) -> NetworkLevel:
        return replace(at, **{name: getattr(at, name) * factor for name, factor in factors.items()})

    return replace(on, levels=tuple(map(level, on.levels)))


@settings(deadline=None, max_examples=60)
@given(kinds, groups, sizes, names)
def test_never_below_what_a_device_must_send(kind: str, dim: tuple[int, int], size: float, name: str) -> None:
    """Over all its ports at once; switches that add let it send half of an all-reduce."""
    on = load_cluster(name)
    op = Collective(kind=kind, group=Group(dims=(dim,)), input_bytes=int(size), output_bytes=int(size))
    spread = spread_over_levels(op.group, on)
    ports = sum(at.level.bandwidth for at in spread)
    adding = any(at.level.in_network_reduction for at in spread)
    bound = op.sent_bytes / 2 if adding and kind == "all_reduce" else op.sent_bytes
    assert plan_collective(op, on).seconds >= bound / ports


@settings(deadline=None, max_examples=60)
@given(kinds, groups, sizes, names, st.floats(1, 8))
def test_more_bandwidth_is_never_slower(kind: str, dim: tuple[int, int], size: float, name: str, factor: float) -> None:
    on = load_cluster(name)
    assert seconds(kind, dim, size, changed(on, link_bandwidth=factor)) <= seconds(kind, dim, size, on) * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(kinds, groups, sizes, names, st.floats(0, 1))
def test_lower_latency_is_never_slower(kind: str, dim: tuple[int, int], size: float, name: str, factor: float) -> None:
    on = load_cluster(name)
    assert seconds(kind, dim, size, changed(on, latency_s=factor)) <= seconds(kind, dim, size, on) * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(kinds, groups, sizes, names, st.floats(1, 100))
def test_more_bytes_are_never_faster(kind: str, dim: tuple[int, int], size: float, name: str, factor: float) -> None:
    on = load_cluster(name)
    assert seconds(kind, dim, size * factor, on) >= seconds(kind, dim, size, on) * (1 - 1e-12)


@settings(deadline=None, max_examples=50)
@given(kinds, st.sampled_from([2, 4, 8]), sizes, names, st.integers(0, 7))
def test_groups_that_lie_alike_take_the_same_time(kind: str, count: int, size: float, name: str, place: int) -> None:
    on = load_cluster(name)
    here, there = (
        Collective(
            kind=kind,
            group=Group(dims=((count, 1),), first=first, devices=8 * 144),
            input_bytes=int(size),
            output_bytes=int(size),
        )
        for first in (0, place * 144)
    )
    assert plan_collective(here, on).seconds == plan_collective(there, on).seconds


@settings(deadline=None, max_examples=50)
@given(kinds, groups, sizes, names)
def test_a_plan_adds_up_to_its_time(kind: str, dim: tuple[int, int], size: float, name: str) -> None:
    """The seam's formula: the start, every stage's steps, and the longest stage on the wire."""
    op = Collective(kind=kind, group=Group(dims=(dim,)), input_bytes=int(size), output_bytes=int(size))
    plan = plan_collective(op, load_cluster(name))
    steps = sum(stage.steps * stage.alpha_s for stage in plan.stages)
    wire = max(stage.steps * stage.step_bytes / stage.rate for stage in plan.stages)
    assert plan.seconds == pytest.approx(plan.start_s + steps + wire)
    assert all(stage.alpha_s >= 0 and stage.steps >= 1 for stage in plan.stages)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cluster_answers_for_every_kind_and_size(name: str, kind: str) -> None:
    on = load_cluster(name)
    for count in (2, 3, 8, 64, 4096):
        assert 0 < seconds(kind, (count, 1), 0, on) <= seconds(kind, (count, 1), 1e9, on)
