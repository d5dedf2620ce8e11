"""`Brought`: what a software stack has brought into options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a software stack has brought into options: its name or file, which fields are its own, who named it."""

    stack: str
    fields: tuple[str, ...]
    in_plan: bool = field(default=False, compare=False)
    framework: str = field(default="", compare=False)  # the stack's
    recipe: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what its recipes say in plans
