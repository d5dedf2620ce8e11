"""Everything a prediction depends on besides the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshcast.estimate.estimator import Clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a prediction depends on besides the program."""

    on: str = "h100-sxm"
    devices: int | None = None
    mesh: Mapping[str, int] | None = None
    fidelity: str = "auto"
    network: str = "alpha-beta"
    partitioner: str = "shardy"
    lowering: str = "auto"
    clocks: Clocks = "sustained"
    dims: Mapping[str, int] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    approximate: bool = False
    levers: bool = True
