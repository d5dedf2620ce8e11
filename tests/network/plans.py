"""Plans by hand, one stage a level, at rates that the healthy fabric can carry."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.flow import FlowTraffic
from meshcast.network.plan import AlgorithmName, CollectivePlan, Primitive, Stage

STEPS: dict[str, Callable[[int], int]] = {
    "ring": lambda n: n - 1, "bidirectional-ring": lambda n: math.ceil((n - 1) / 2), "torus-rings": lambda n: n - 1,
    "double-binary-tree": lambda n: 2 * math.ceil(math.log2(n)), "halving-doubling": lambda n: math.ceil(math.log2(n)),
    "direct": lambda n: 1, "one-shot": lambda n: 1, "in-network": lambda n: 2,
}  # fmt: skip


def stage(
    level: NetworkLevel,
    *,
    parts: int,
    below: int = 1,
    algorithm: AlgorithmName = "ring",
    primitive: Primitive = "all_reduce",
    sent: float = 1e8,
    rate: float | None = None,
) -> Stage:
    steps = STEPS[algorithm](parts)
    return Stage(
        level=level, primitive=primitive, algorithm=algorithm, parts=parts, below=below, steps=steps,
        alpha_s=level.latency_s, step_bytes=sent / steps, rate=rate or level.bandwidth,
    )  # fmt: skip


def plan(*stages: Stage, pipelined: bool = True, start_s: float = 0.0) -> CollectivePlan:
    kind = stages[0].primitive if stages else "all_reduce"
    return CollectivePlan(kind=kind, algorithm="by hand", start_s=start_s, stages=stages, pipelined=pipelined)


def whole(made: CollectivePlan, devices: int) -> FlowTraffic:
    """One group of all devices."""
    return FlowTraffic(plan=made, groups=np.arange(devices)[None, :])


def hierarchical(cluster: Cluster, devices: int, *, sent: float = 1e8, pipelined: bool = True) -> CollectivePlan:
    """A ring in each of two levels: the outer ring carries the share of each member of a node."""
    node, fabric = cluster.levels
    return plan(
        stage(node, parts=node.size, sent=sent),
        stage(fabric, parts=devices // node.size, below=node.size, sent=sent / node.size),
        pipelined=pipelined,
        start_s=3e-6,
    )
