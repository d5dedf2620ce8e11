"""`CollectivePlan`: how a collective is carried out, level by level, in equal steps.

It is the seam between choosing and timing. The closed form adds a plan up; the flow simulation turns its stages into
flows between devices and lets them share the links of a fabric. Alone on healthy links both give

    start + sum over stages of steps * alpha + (max if pipelined else sum) over stages of steps * step_bytes / rate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshcast.base import largest, made_quickly
from meshcast.hardware import NetworkLevel

Primitive = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast", "reduce"]
AlgorithmName = Literal[
    "ring", "bidirectional-ring", "double-binary-tree", "halving-doubling", "direct", "torus-rings", "in-network", "one-shot"
]  # fmt: skip


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Equal steps of one algorithm among the parts that one level connects.

    Attributes:
        level: The network level whose links the stage uses.
        primitive: What the stage does with its part of the data.
        algorithm: The pattern of its steps.
        parts: Domains of the level below (devices, at the innermost) that take part.
        below: Members of the group in each part: they run this stage side by side, each with its own peers.
        steps: Number of equal steps.
        alpha_s: Seconds of one step beside the wire: software, switches, synchronisation, and in the slowest stage of a
            plan what handing over chunks costs.
        step_bytes: Bytes that one device sends in one step.
        rate: bytes/s at which one device sends when nothing else uses the links: algorithm and protocol included.
    """

    level: NetworkLevel
    primitive: Primitive
    algorithm: AlgorithmName
    parts: int
    below: int
    steps: int
    alpha_s: float
    step_bytes: float
    rate: float

    @property
    def latency_s(self) -> float:
        """Seconds of all steps beside the wire."""
        return self.steps * self.alpha_s

    @property
    def bandwidth_s(self) -> float:
        """Seconds of all steps on the wire."""
        return self.steps * self.step_bytes / self.rate if self.step_bytes else 0.0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePlan:
    """How a collective is carried out, and why so.

    Attributes:
        kind: The collective's kind.
        algorithm: What it is called as a whole, e.g. "ring", "in-network + ring".
        protocol: The protocol of the software that moves the data, e.g. "LL", "LL128", "Simple"; empty where there is one only.
        start_s: Seconds before the first step and after the last.
        stages: What is done, innermost level first.
        pipelined: Whether stages work on different chunks at the same time, so that the slowest alone counts.
        why: In words, what made this plan the choice.
        others: Seconds of the plans that were not chosen, by name.
    """

    kind: str
    algorithm: str
    protocol: str = ""
    start_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    pipelined: bool = True
    why: str = ""
    others: tuple[tuple[str, float], ...] = ()

    @property
    def latency_s(self) -> float:
        """Seconds beside the wire."""
        return self.start_s + sum([stage.latency_s for stage in self.stages])

    @property
    def bandwidth_s(self) -> float:
        """Seconds on the wire."""
        times = [stage.bandwidth_s for stage in self.stages]
        return (largest(times) if times else 0.0) if self.pipelined else sum(times)

    @property
    def seconds(self) -> float:
        """Seconds of the collective, alone on healthy links."""
        return self.latency_s + self.bandwidth_s

    @property
    def in_network(self) -> bool:
        """Whether switches carry out a part of it."""
        return any(stage.algorithm == "in-network" for stage in self.stages)

    @property
    def level(self) -> str:
        """Name of the level that is longest on the wire; "none" where nothing is sent."""
        return self.bottleneck.level.name if self.bottleneck else "none"

    @property
    def level_bytes(self) -> dict[str, float]:
        """Bytes that one device sends over each level, by the level's name."""
        sent: dict[str, float] = {}
        for stage in self.stages:
            sent[stage.level.name] = sent.get(stage.level.name, 0.0) + stage.steps * stage.step_bytes
        return sent

    @property
    def bottleneck(self) -> Stage | None:
        """The stage that is longest on the wire."""
        return max(self.stages, key=lambda stage: stage.bandwidth_s, default=None)
