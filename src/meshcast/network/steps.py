"""Stages and plans made of steps: where technologies, protocols and what a chunk costs enter.

A stage moves x bytes of a device in s steps at rate r. Software cuts the x bytes into chunks; handing one over costs c.
With m chunks in a pipeline of s steps the time beyond the steps' latency is `(m + s) * (x / (m r) + c)`. Libraries
size their chunks so that filling the pipeline and handing over cost about the same, m = sqrt(s x / (r c)), and then

    x / r  +  2 sqrt(s c x / r)        (and s c, which the latency of a step includes)

The root is why measured rates grow slowly over five decades of message sizes. After the pipelined trees and rings of
Thakur, Rabenseifner and Gropp (2005) and Chan et al., "Collective communication: theory, practice, and experience"
(2007). Stages of a plan work on different chunks at once, so only the slowest stage's `x / r + 2 sqrt(...)` counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.base import by_point, copier, larger, largest, made_quickly, smaller
from meshcast.hardware import LinkProtocol, NetworkLevel
from meshcast.network.plan import AlgorithmName, CollectivePlan, Primitive, Stage
from meshcast.network.ports import port
from meshcast.network.spread import LevelSpread

# A collective of the workload, and what its stages do.
PRIMITIVES: dict[str, Primitive] = {
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_to_all": "all_to_all",
    "collective_permute": "permute",
    "collective_broadcast": "broadcast",
    "collective_reduce": "reduce",
}
# What devices pass on as it came, and what they add to before they do.
_PASSED_ON, _ADDED_UP = ("all_gather", "collective_broadcast"), ("reduce_scatter", "collective_reduce")
# How often the whole buffer goes around: reducing it and spreading the result are two ways.
PHASES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "collective_broadcast": 1, "collective_reduce": 1}


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The collective that an algorithm is asked to carry out, and where.

    Attributes:
        kind: The collective's kind, as in the workload.
        size: Bytes of the whole buffer.
        members: The number of members of one group.
        spread: How a group lies over the levels, innermost first.
        copies: How many rows of an all-to-all are copies of one.
        protocol: The protocol that moves the data, by name; empty for levels that have but one.
    """

    kind: str
    size: float
    members: int
    spread: tuple[LevelSpread, ...]
    copies: int = 1
    protocol: str = ""

    @property
    def primitive(self) -> Primitive:
        """The primitive that its stages are made of."""
        return PRIMITIVES[self.kind]

    @property
    def phases(self) -> int:
        """How often the whole buffer goes around."""
        return PHASES[self.kind]

    @property
    def passed_on(self) -> float:
        """Bytes that one device sends on a ring through all members; a chain passes on all of a broadcast."""
        if self.kind in ("collective_broadcast", "collective_reduce"):
            return self.size
        return self.phases * (self.members - 1) / self.members * self.size


def protocol_names(spread: tuple[LevelSpread, ...]) -> tuple[str, ...]:
    """Protocols that every level has; a level with a single nameless one goes along with any."""
    named = [[p.name for p in at.level.link.protocols if p.name] for at in spread]
    wanted = [names for names in named if names]
    if not wanted:
        return ("",)
    return tuple(name for name in wanted[0] if all(name in names for names in wanted))


def protocol_of(level: NetworkLevel, name: str) -> LinkProtocol:
    """A level's protocol of this name, or its nameless one."""
    nameless: LinkProtocol | None = None
    for protocol in level.link.protocols:
        if protocol.name == name:
            return protocol
        if not protocol.name:
            nameless = protocol
    assert nameless is not None
    return nameless


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """A stage, and the steps in which its chunks follow each other.

    Attributes:
        slack: What the library itself reckons that chunks cost at least, as a share of the time on the wire.
    """

    stage: Stage
    chunk_s: float
    rounds: int
    slack: float = 0.0

    @property
    def handing_over_s(self) -> float:
        """Seconds that chunks cost beside their bytes: `2 sqrt(s c x / r)`."""
        wire = self.stage.bandwidth_s
        return larger(2 * by_point(math.sqrt, self.rounds * self.chunk_s * wire), self.slack * wire)


def several_rings(at: LevelSpread, kind: str) -> float:
    """The share of all links' rate that rings along several sides of a slice reach.

    One ring takes a link either way and runs at full rate; with more links than these, several rings run at once and an
    all-reduce reaches `rings_share` of them, or one is taken and the other links are left. An all-reduce scatters sums and
    gathers them. What is gathered is passed on as it came, at full rate; so of the time of both phases `2 / rings_share - 1`
    is that of the sums, which every device adds to before it passes them on.
    """
    ways = sum(line.free_ways for line in at.lines)
    if len(at.lines) < 2 or ways <= 2 or kind in _PASSED_ON:
        return 1.0
    share = at.level.link.rings_share
    return max(1 / (2 / share - 1) if kind in _ADDED_UP else share, 2 / ways)


def work(
    problem: Problem,
    at: LevelSpread,
    algorithm: AlgorithmName,
    *,
    steps: int,
    sent: float,
    share: float = 1.0,
    rate: float | None = None,
    step_s: float | None = None,
    rounds: int | None = None,
    limit: float = math.inf,
) -> StageWork:
    """A stage of `problem` at one level.

    Args:
        problem: What is asked for.
        at: The level, and how the group lies in it.
        algorithm: The pattern of the steps.
        steps: Their number.
        sent: Bytes that one device sends in all of them.
        share: The share of the rate that software reaches on these links which the algorithm leaves.
        rate: bytes/s of the wire for this pattern; that of the port if not said.
        step_s: Seconds of one step; the level's latency and the protocol's software if not said.
        rounds: Steps that chunks follow each other through; all steps if not said.
        limit: bytes/s beyond which the algorithm does not come, whatever the links and the protocol allow.
    """
    link, protocol = at.level.link, protocol_of(at.level, problem.protocol)
    if rate is None:
        rate = port(at)
        share *= several_rings(at, problem.kind)
    stage = Stage(
        level=at.level,
        primitive=problem.primitive,
        algorithm=algorithm,
        parts=at.parts,
        below=at.below,
        steps=steps,
        alpha_s=at.level.latency_s + protocol.step_s if step_s is None else step_s,
        step_bytes=sent / steps,
        rate=smaller(smaller(rate * link.share * protocol.share * share, protocol.limit), limit),
    )
    return StageWork(stage=stage, chunk_s=protocol.chunk_s, rounds=steps if rounds is None else rounds)


_slower_steps = copier(Stage, "alpha_s")


def plan(problem: Problem, algorithm: str, works: list[StageWork], *, start_s: float | None = None) -> CollectivePlan:
    """The stages as one plan; what chunks cost stands in the slowest stage's steps."""
    wires = [item.stage.bandwidth_s for item in works]
    whole = largest([seconds + item.handing_over_s for seconds, item in zip(wires, works, strict=True)])
    slowest = wires.index(max(wires))
    stages = [item.stage for item in works]
    longest = stages[slowest]
    # Never negative but for rounding: the whole is at least the longest time on the wire.
    beside = larger(0.0, whole - wires[slowest])
    stages[slowest] = _slower_steps(longest, longest.alpha_s + beside / longest.steps)
    if start_s is None:
        start_s = max(
            [at.level.link.start_s + protocol_of(at.level, problem.protocol).start_s for at in problem.spread]
        )
    return CollectivePlan(
        kind=problem.kind,
        algorithm=algorithm,
        protocol=problem.protocol,
        start_s=start_s,
        stages=tuple(stages),
    )
