"""Flags made of the options' declarations: a verb says which stages it runs (`runs`), and has the flags of their options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from meshcast.cli.completion import Names, completed, hardware_names
from meshcast.options import AS_DEFAULT, PART_KINDS, FlagText, OptionPlace, fidelity_names, option_places, stack_names

if TYPE_CHECKING:
    from meshcast.options import Options

STAGES = tuple(PART_KINDS)
# Help has flags in this order; all others come behind them as they are declared.
ORDER = (
    "on", "devices", "mesh", "plan", "fidelity", "profile", "simulator", "network", "partitioner", "lowering", "clocks", "data",
    "host", "scheduler", "channels", "contention", "overlap", "stack", "placement", "slow", "links", "background", "fabric",
    "beside", "dim", "trip_count", "setting", "indices", "approximate", "durations", "levers",
    "what_if",
)  # fmt: skip
# A stack is no option: it brings some, of these stages.
STACK = FlagText(
    flag="--stack",
    metavar="NAME|FILE",
    help="Software stack (meshcast stacks): xla, maxtext, megatron, nemo, pytorch-fsdp, ... or a TOML file: fusion, "
    "attention, the host's time, and --scheduler, --channels and --overlap where they are not given.",
)
# What shells offer behind flags whose values have names, where the declaration of an option does not list them.
_NAMES: dict[str, Names] = {"--on": hardware_names, "--stack": stack_names, "--fidelity": fidelity_names}
_STACK_STAGES = {"lowering", "run"}


class FlagValues(NamedTuple):
    """The values of the options' flags on one command line.

    Attributes:
        values: By the names of their parameters.
        written: Flat names of options whose flags are written: a stack gives only what they leave open.
    """

    values: Mapping[str, Any]
    written: frozenset[str]

    def options(self, **given: Any) -> Options:
        """The options that are asked for, with what the stack brings.

        Args:
            **given: By flat names, what the verb decides itself.
        """
        # Imported here: `--help`, `devices` and `doctor` must not pay for jaxlib, nor fail where it is broken.
        from meshcast.options import Options

        asked = {name: self._value(place) for name, place in option_places().items() if self._has(place)}
        chosen = Options(**{**asked, **given}, written=tuple(sorted(self.written)))
        if STACK.name not in self.values:
            return chosen
        from meshcast.jobs import with_stack

        return with_stack(chosen, self.values.get(STACK.name), but=self.written)

    def texts(self) -> dict[str, Any]:
        """What the command line says, by flat names, as plain values: texts, numbers, and settings as a table of texts."""
        found: dict[str, Any] = {}
        for name, place in option_places().items():
            if name not in self.written or not self._has(place):
                continue
            found[name] = dict(self._value(place)) if name == "settings" else self._value(place)
        stack = self.values.get(STACK.name)
        return found | ({STACK.name: stack} if stack is not None else {})

    def differing(self, *parts: str) -> Iterator[tuple[str, str]]:
        """Flat name and flag of options of some stages that are asked for, by a value that nobody needs to write."""
        for name, place in option_places().items():
            for flag in place.field.declaration.flags if place.part in parts else ():
                if flag.name in self.values and self.values[flag.name] != _unset(place, flag):
                    yield name, flag.flag

    def _has(self, place: OptionPlace) -> bool:
        return any(each.name in self.values for each in place.field.declaration.flags)

    def _value(self, place: OptionPlace) -> Any:
        declared = place.field.declaration
        texts = {flag.name: self.values.get(flag.name) for flag in declared.flags}
        return declared.from_flags(*texts.values()) if declared.from_flags is not None else next(iter(texts.values()))


def runs(
    *stages: str, without: Mapping[str, str], besides: Sequence[str] = (), instead: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A verb that runs some stages: where it takes `FlagValues`, its command line has the flags of their options.

    Args:
        *stages: Names of parts of `Options`.
        without: Options that the verb has no flag for, by flat names, single flags of an option that has several, or
            `--stack`, and why.
        besides: Flat names of options of other stages that the verb has flags for.
        instead: By flat names, what a flag holds that nobody wrote, where that is not the option's own default.
    """
    flags = sorted(verb_flags(stages, without, besides), key=lambda each: _rank(each[1].name))
    usual = instead or {}

    def made(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True)
        (taken,) = (name for name, each in own.parameters.items() if each.annotation is FlagValues)
        parameters: list[inspect.Parameter] = []
        for name, each in own.parameters.items():
            parameters += (
                [_parameter(*flag, usual) for flag in flags] if name == taken else [each.replace(kind=_KEYWORD)]
            )

        def command(**values: Any) -> None:
            context = values.pop(_CONTEXT)
            mine = {name: values.pop(name) for name in (flag.name for _, flag in flags)}
            asked = FlagValues(values=mine, written=_written(context))
            verb(**values, **{taken: asked})

        parameters.append(inspect.Parameter(_CONTEXT, _KEYWORD, annotation=typer.Context))
        functools.update_wrapper(command, verb, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        del command.__dict__["__wrapped__"]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        # Which a test compares with the declarations.
        command.stages, command.without, command.besides = stages, without, besides  # type: ignore[attr-defined]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return made


_CONTEXT = "context"
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def verb_flags(
    stages: tuple[str, ...], without: Mapping[str, str], besides: Sequence[str] = ()
) -> Iterator[tuple[OptionPlace | None, FlagText]]:
    """Flags of a verb that runs some stages, each with its option; the stack's has none."""
    for name, place in option_places().items():
        if (place.part in (None, *stages) or name in besides) and name not in without:
            yield from ((place, flag) for flag in place.field.declaration.flags if flag.flag not in without)
    if _STACK_STAGES & set(stages) and STACK.flag not in without:
        yield None, STACK


@functools.cache
def flag(parameter: str) -> Any:
    """A flag as typer has it, by the name of its parameter; for verbs that take single ones."""
    if parameter == STACK.name:
        return _typer_option(STACK)
    place, text = next(each for each in verb_flags(STAGES, {}) if each[1].name == parameter)
    return _typer_option(text, place)


def _typer_option(text: FlagText, place: OptionPlace | None = None) -> Any:
    names = _NAMES.get(text.flag) or (None if place is None else place.field.declaration.one_of)
    words = None if names is None else completed(names)
    return typer.Option(text.flag, help=text.help, metavar=text.metavar, autocompletion=words)


def _parameter(place: OptionPlace | None, text: FlagText, instead: Mapping[str, Any]) -> inspect.Parameter:
    default = None if place is None else instead.get(place.field.name, _unset(place, text))
    annotation = Annotated[_type(place, text), flag(text.name)]  # type: ignore[valid-type]  # made here
    return inspect.Parameter(text.name, _KEYWORD, default=default, annotation=annotation)


def _unset(place: OptionPlace, text: FlagText) -> Any:
    """What a flag holds that nobody writes."""
    if text.repeated:
        return None
    unset = place.field.declaration.unset
    return place.field.default() if unset is AS_DEFAULT else unset


def _type(place: OptionPlace | None, text: FlagText) -> Any:
    """The type that typer reads a flag's value into."""
    if text.repeated:
        return list[str] | None
    declared = place.field.declaration if place is not None else None
    if place is None or declared is None or declared.from_flags is not None:
        return str | None
    kinds = declared.kinds or (type(place.field.default()),)
    return kinds[0] | None if type(None) in kinds else kinds[0]


def _rank(parameter: str) -> int:
    return ORDER.index(parameter) if parameter in ORDER else len(ORDER)


def _written(context: typer.Context) -> frozenset[str]:
    """Flat names of options whose flags the command line has."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    found = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    places = option_places().items()
    return frozenset(
        name for name, place in places if any(each.name in found for each in place.field.declaration.flags)
    )
