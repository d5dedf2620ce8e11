"""What is tried side by side besides devices and fidelities: plans, batches, stacks, and whatever else may be asked for.

`--try "plan=fsdp=8;tp=8,sp=1" --try "batch=16;32" --try stack=megatron`: a name, and values with semicolons between them (plans
have commas); a name that is given again has more values. A name is that of an option of `predict`, of `stack`, or of a setting of
the model. Every combination is a target of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshcast.base import UsageError
from meshcast.jobs import with_stack
from meshcast.options import Options, option_places

TRY = "--try"
# Options that are given otherwise, and how; answers are compared as they are asked for, without levers.
_DECIDED = {
    "on": "--on A,B",
    "fidelity": "--fidelity A,B",
    "settings": '--try "batch=16;32"',
    "what_if": "--on A,A+memory.bandwidth=2x",
    "levers": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One combination: values by name, as they were written; empty where nothing is varied."""

    values: Mapping[str, str] = field(default_factory=dict)

    def named(self, target: str) -> str:
        """A target's name with what is tried of it."""
        return ", ".join([target, *(f"{name} {value}" for name, value in self.values.items())])

    def options(self, base: Options) -> Options:
        """The options of one question.

        Raises:
            UsageError: A value is none of its option's.
        """
        places = option_places()
        chosen = {name: value for name, value in self.values.items() if name in places}
        settings = {name: value for name, value in self.values.items() if name not in (*places, "stack")}
        found = base.changed({name: _value(name, value) for name, value in chosen.items()}, where=TRY)
        if settings:
            found = found.having(settings={**base.program.settings, **settings})
        if stack := self.values.get("stack"):
            found = with_stack(found, stack, but=frozenset(found.written))
        return found


def variants_of(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Every combination of what is tried; one that varies nothing where nothing is.

    Raises:
        UsageError: A text is not `NAME=VALUE[;VALUE...]`, or names what is given otherwise.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = (side.strip() for side in text.partition("="))
        listed = [value.strip() for value in values.split(";") if value.strip()]
        if not name or not equals or not listed:
            raise UsageError(f"{text!r} is not NAME=VALUE;VALUE", where=TRY, fix='such as --try "batch=16;32"')
        if name in _DECIDED:
            instead = _DECIDED[name]
            raise UsageError(f"{name} is not tried here", where=TRY, fix=f"write {instead}" if instead else None)
        known = axes.setdefault(name, [])
        if twice := next((value for value in listed if value in known or listed.count(value) > 1), None):
            raise UsageError(f"{name}={twice} is tried twice", where=TRY, fix="name each value once")
        known += listed
    names = list(axes)
    return tuple(Variant(values=dict(zip(names, values, strict=True))) for values in itertools.product(*axes.values()))


def _value(name: str, text: str) -> str | int:
    """A value as the option takes it: a number of devices is one."""
    return int(text) if name == "devices" and text.isascii() and text.isdecimal() else text
