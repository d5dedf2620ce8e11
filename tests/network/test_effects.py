"""Settings that change nothing are named; those that do are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.hardware import Cluster, Conditions, LinkCondition, degraded
from meshcast.network.effects import settings_without_effect
from meshcast.network.fabric import fabric_of
from meshcast.network.flow import SharedFabric
from tests.network.clusters import FABRIC, NODE, TWO_LEVELS, cluster
from tests.network.plans import plan, stage, whole
from tests.network.test_fabric import FAT_TREE


def inside_a_node(on: Cluster, conditions: Conditions) -> float:
    """An all-reduce among the first eight of 64 devices."""
    made = plan(stage(on.levels[0], parts=8))
    return SharedFabric(fabric_of(on, 64, conditions)).alone(whole(made, 8))


def test_what_no_collective_reaches() -> None:
    on = cluster(replace(NODE, in_network_reduction=True), replace(FAT_TREE, oversubscription=2.0))
    conditions = Conditions(
        links=(
            LinkCondition(level="node", device=3, share=0.5),
            LinkCondition(level="node", device=40, share=0.5),
            LinkCondition(level="fabric", share=0.5),
        ),
        background={"fabric": 0.2, "node": 0.1},
        speed={3: 0.9},
    )
    assert settings_without_effect(on, conditions, inside_a_node) == (
        "in_network_reduction = true of level 'node' has no effect",
        "level 'fabric' of test is not used",
        "oversubscription = 2.0 of level 'fabric' has no effect",
        "links of device 40 at level 'node' at 0.5 of their rate have no effect",
        "links of all devices at level 'fabric' at 0.5 of their rate have no effect",
        "background traffic of 0.2 on level 'fabric' has no effect",
        "speed 0.9 of device 3 has no effect",
    )


def test_nothing_to_say_where_everything_counts() -> None:
    conditions = Conditions(links=(LinkCondition(level="node", device=3, share=0.5),))
    assert settings_without_effect(cluster(NODE), conditions, lambda on, state: inside_a_node_of_8(on, state)) == ()


def inside_a_node_of_8(on: Cluster, conditions: Conditions) -> float:
    return SharedFabric(fabric_of(on, 8, conditions)).alone(whole(plan(stage(on.levels[0], parts=8)), 8))


def test_the_share_that_conditions_leave_a_group() -> None:
    four = replace(NODE, links=4)
    conditions = Conditions(
        links=(
            LinkCondition(level="node", device=3, share=0.5, links=2),
            LinkCondition(level="node", device=5, share=0.1),
            LinkCondition(level="node", share=0.8),
        ),
        background={"node": 0.5},
    )
    assert degraded(four, range(3), conditions) == pytest.approx(0.8 * 0.5)
    assert degraded(four, range(5), conditions) == pytest.approx(0.75 * 0.8 * 0.5)
    assert degraded(four, range(8), conditions) == pytest.approx(0.1 * 0.8 * 0.5)
    assert degraded(FABRIC, range(8), conditions) == 1.0
    assert TWO_LEVELS.levels[1] == FABRIC
