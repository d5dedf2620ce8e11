"""`FlowPhase`: what a collective asks of the links of a fabric until its next step of another kind.

The equal steps of a stage are one phase. With V = steps * step_bytes sent by each device, links l that carry b_l bytes
of it and the rate c_l, and nothing else on the links, it takes

    L + max(V / rate, max over l of b_l / c_l),        L = steps * alpha

The first term is what the plan's algorithm and protocol reach, the second what the fabric lets through. A pipelined
plan is one phase of all its stages at once: latencies add up, the slowest stage bounds the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshcast.network.fabric.fabric import Fabric
from meshcast.network.fabric.links import Floats, Ints
from meshcast.network.flow.stage_loads import Loads, stage_loads
from meshcast.network.flow.traffic import FlowTraffic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowPhase:
    """Flows that progress together: each link's bytes and flows, and the time that it takes alone.

    Attributes:
        latency_s: Seconds beside the wire.
        wire_s: Seconds on the wire, alone.
        links: Links in use, in order.
        flows: Flows over each of them.
        sent: Bytes over each of them.
        key: Equal for equal content.
    """

    latency_s: float
    wire_s: float
    links: Ints
    flows: Floats
    sent: Floats
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(np.array([self.latency_s, self.wire_s]).tobytes(), digest_size=16)
        for column in (self.links, self.flows, self.sent):
            digest.update(np.ascontiguousarray(column).tobytes())
        object.__setattr__(self, "key", digest.digest())

    @property
    def seconds(self) -> float:
        """Seconds of the phase, alone."""
        return self.latency_s + self.wire_s


def _phase(fabric: Fabric, latency_s: float, planned_s: float, loads: Sequence[Loads]) -> FlowPhase:
    sent, flows = np.zeros(len(fabric.links)), np.zeros(len(fabric.links))
    for load in loads:
        sent += load.sent
        flows += load.flows
    links = np.flatnonzero(sent > 0)
    healthy, now = sent[links] / fabric.links.bandwidth[links], sent[links] / fabric.capacity[links]
    # Software gets the same part of a slower link: a tired link takes longer by what it would at the plan's own rate.
    reached = max(1.0, planned_s / healthy.max()) if links.size and healthy.max() > 0 else 1.0
    bound = float(np.where(now > healthy, now * reached, now).max(initial=0.0))
    return FlowPhase(
        latency_s=latency_s, wire_s=max(planned_s, bound), links=links, flows=flows[links], sent=sent[links]
    )


def phases_of(fabric: Fabric, traffic: FlowTraffic) -> tuple[FlowPhase, ...]:
    """The phases of a collective, one after the other.

    Raises:
        InfeasibleError: Failed links leave members without any way to each other.
        UnsupportedError: An algorithm cannot run on the topology of its level.
    """
    return tuple(phase for phase in _phases(fabric, traffic) if phase.seconds > 0)


def _phases(fabric: Fabric, traffic: FlowTraffic) -> Iterator[FlowPhase]:
    plan = traffic.plan
    yield _phase(fabric, plan.start_s, 0.0, ())
    staged = [(stage, tuple(stage_loads(fabric, stage, traffic))) for stage in plan.stages]
    if plan.pipelined:
        together = [load for _, loads in staged for load in loads]
        yield _phase(fabric, plan.latency_s - plan.start_s, plan.bandwidth_s, together)
        return
    for stage, loads in staged:
        for load in loads:
            yield _phase(fabric, load.share * stage.latency_s, load.share * stage.bandwidth_s, (load,))


def merged(phases: Sequence[FlowPhase]) -> FlowPhase:
    """A collective's phases as one: what it asks of the links on average over its time."""
    links = np.unique(np.concatenate([phase.links for phase in phases]))
    flows, sent = np.zeros(len(links)), np.zeros(len(links))
    for phase in phases:
        where = np.searchsorted(links, phase.links)
        # Flows of phases that follow each other are not there at once.
        flows[where] = np.maximum(flows[where], phase.flows)
        sent[where] += phase.sent
    return FlowPhase(
        latency_s=sum(phase.latency_s for phase in phases),
        wire_s=sum(phase.wire_s for phase in phases),
        links=links,
        flows=flows,
        sent=sent,
    )
