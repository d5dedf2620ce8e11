"""A published size of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The configuration of one published model, and what it is."""

    config: Any
    summary: str
