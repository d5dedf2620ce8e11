"""What is tried side by side besides devices and fidelities: plans, batches, stacks, and whatever else may be asked for.

`--try "plan=fsdp=8;tp=8,sp=1" --try "batch=16;32" --try stack=megatron`: a name, and values with semicolons between them (plans
have commas); a name that is given again has more values. A name is that of an option of `predict`, of `stack`, or of a setting of
the model. Every combination is a target of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshcast.base import MeshcastError, UsageError
from meshcast.jobs import with_stack
from meshcast.options import Options, option_places
from meshcast.programs import setting_value
from meshcast.zoo import SERVE, Builder, model_named

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


def check_settings(variants: Sequence[Variant], targets: Sequence[object], options: Options) -> None:
    """Refuses settings that no model among the targets has, which would fail every question of theirs.

    Targets that are no models of the zoo say themselves what they take.

    Raises:
        UsageError: One is known to none, or cannot have its value in any.
    """
    models = [model_named(target) if isinstance(target, str) else None for target in targets]
    builders = [model for model in models if model is not None]
    if len(builders) < len(models):
        return
    for each in variants:
        settings = each.options(options).program.settings
        if settings.get("mode") == SERVE:
            continue  # two programs, with settings of both
        around = {"mode": settings["mode"]} if "mode" in settings else {}
        for name in (name for name in each.values if name in settings):
            asked = {**around, name: setting_value(str(settings[name]))}
            refused = [error for builder in builders if (error := _refused(builder, asked)) is not None]
            if refused and len(refused) == len(builders):
                raise UsageError(refused[0].message, where=TRY, fix=refused[0].fix)


def _refused(builder: Builder, settings: Mapping[str, object]) -> MeshcastError | None:
    """Why a model does not take some settings; None where it does."""
    try:
        builder.settled(settings)
    except MeshcastError as error:
        return error
    return None


def _value(name: str, text: str) -> str | int:
    """A value as the option takes it: a number of devices is one."""
    return int(text) if name == "devices" and text.isascii() and text.isdecimal() else text
