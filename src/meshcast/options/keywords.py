"""Options as keywords, with their types, for editors and type checkers.

Written by `make option-keywords` of what is declared of every option (`options.declared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshcast.base import Mesh
    from meshcast.estimate import Clocks, Values
    from meshcast.hardware import Cluster, Conditions, Device
    from meshcast.lower import Fusion, Layers, Overlap, RaggedProducts
    from meshcast.options import ContentionSetting, Durations, Stack
    from meshcast.simulate import HostCosts, Scheduler
    from meshcast.workload import AttentionLibrary
    from meshcast.zoo import Plan


class ManyKeywords(TypedDict, total=False):
    """Options as keywords of `compare`, which takes several devices and fidelities by arguments of its own."""

    devices: int | None
    levers: bool | int
    what_if: str | Sequence[str]
    mesh: str | Mesh | Mapping[str, int] | None
    plan: str | Plan | None
    partitioner: str
    dims: Mapping[str, int]
    trip_counts: Mapping[str, int | str | tuple[int, int]]
    settings: Mapping[str, str | float | Sequence[int] | None]
    indices: str
    approximate: bool
    attention: str
    context_attention: str
    lowering: str
    compile_limit: float
    overlap: str | Overlap
    fusion: Fusion
    attention_library: AttentionLibrary
    layers: Layers
    ragged: RaggedProducts
    profile: str | Path | None
    simulator: str | None
    clocks: Clocks
    data: Values
    network: str
    placement: str | None
    conditions: Conditions
    fabric: str | None
    beside: Sequence[str]
    host: str
    scheduler: Scheduler
    channels: int
    contention: ContentionSetting
    durations: Durations
    host_costs: HostCosts | None
    stack: str | Path | Stack | None


class PlacedKeywords(ManyKeywords, total=False):
    """Options as keywords of what takes its hardware as an argument: `Program.on`."""

    fidelity: str


class OptionKeywords(PlacedKeywords, total=False):
    """Options as keywords of `predict` and of all that asks for one prediction."""

    on: str | Device | Cluster
