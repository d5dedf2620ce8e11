"""`Inputs`: everything that shaped a prediction, by the names that it is asked for with, and which of it nobody asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Defaults that people are told, of those that are there: what they would change first. JSON has all of them.
_TOLD = (
    "mode", "batch", "seq", "target", "context", "prompt", "output", "prefill_chunk", "chunk", "mbs", "microbatches",
    "attention", "remat", "precision", "compute_dtype", "param_dtype", "zero", "stack", "clocks", "scheduler", "overlap",
    "indices", "contention",
)  # fmt: skip
_NOTHING: tuple[Any, ...] = (None, "", {}, [])
_LONG = ("host_costs",)  # a table of its own: JSON has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that shaped a prediction, by name, and who decided each.

    Attributes:
        values: Every input by its name, as JSON has it: flags, keys of a plan and settings of a model as they were used, also
            where a default, a stack or the device decided them.
        defaults: Names of those that neither the user nor a stack decided.
        by_stack: Names of those that the software stack brought.
        in_plan: Names of those that the plan's own text tells.
    """

    values: Mapping[str, Any]
    defaults: tuple[str, ...] = ()
    by_stack: tuple[str, ...] = ()
    in_plan: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Under `inputs` of a prediction."""
        stack = {"by_stack": list(self.by_stack)} if self.by_stack else {}
        return {**self.values, "defaults": list(self.defaults), **stack}

    def rows(self) -> list[tuple[str, str]]:
        """For people: what was asked for, what the stack brought, and the defaults that decide something."""
        asked = [n for n in self.values if n not in {*self.defaults, *self.by_stack, *self.in_plan, "model"}]
        rows = (
            ("inputs", asked),
            ("of the stack", [name for name in self.by_stack if name not in _LONG]),
            ("defaults", [name for name in _TOLD if name in self.defaults]),
        )
        return [(title, line) for title, names in rows if (line := self._line(names))]

    def _line(self, names: Iterable[str]) -> str:
        told = ((name, self.values[name]) for name in names)
        return ", ".join(_text(name, value) for name, value in told if value not in _NOTHING)


def _text(name: str, value: Any) -> str:
    """`batch=64`, `mesh(fsdp=8,tensor=8)`, `plan(fsdp=64)`."""
    if isinstance(value, dict):
        return f"{name}({','.join(f'{key}={each}' for key, each in value.items())})"
    if isinstance(value, list):
        return f"{name}({','.join(map(str, value))})"
    if isinstance(value, bool):
        return f"{name}={int(value)}"
    return f"{name}({value})" if "=" in str(value) else f"{name}={value}"
