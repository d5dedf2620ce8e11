"""What a program's text cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of reading that the program's text cannot state."""

    trip_counts: Mapping[str, int] = field(default_factory=dict)  # by loop label; "*" for every unknown one
    approximate: bool = False  # cost unknown custom calls by their bytes instead of refusing
    skew: float = 0.0  # exponent of the Zipf law that gather and scatter indices follow; 0: uniform
