"""How an option is declared: once, as a field of a part of `Options`, with everything that is made of it.

Of a declaration come the flat keyword of `predict`, `compare` and `trace`, the flags of the verbs that run the part's stage with
their help and their reading, the values that are accepted, and how `inputs` tell it. A module without weight: the command line's
help is made of it, and pays for every dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from meshcast.base import UsageError, checked

# `heeded`; `estimates`: heeded by what is worked out, and by nothing that is replayed; `refused` where it is given.
OfTraces = Literal["refused", "estimates", "heeded"]
_KEY = "meshcast"  # of a field's metadata
AS_DEFAULT: Any = object()  # of `Declaration.unset`


class FlagText(NamedTuple):
    """A flag of the command line.

    Attributes:
        flag: With its dashes.
        help: What it says in `--help`.
        metavar: What stands for its value there; None: its type.
        parameter: Its name in Python; by default the flag's.
        repeated: Whether it may be given several times, and is read as a list of texts.
    """

    flag: str
    help: str
    metavar: str | None = None
    parameter: str = ""
    repeated: bool = False

    @property
    def name(self) -> str:
        """The name of the verb's parameter."""
        return self.parameter or self.flag.strip("-").replace("-", "_")


class Declaration(NamedTuple):
    """What is declared of an option besides its default and its type.

    Attributes:
        name: The flat name: the keyword of `Options(...)` and of `predict(...)`.
        flags: Those that ask for it; several make one value together.
        no_flag: Why it has none.
        kinds: Classes of the values that are taken; empty: that of the default.
        read: From a flat name and a value that is taken, what is kept; where it is given, `kinds` are its own matter.
        from_flags: From the texts of the flags, the value; by default the only flag's own.
        unset: What a flag holds that nobody wrote; by default the option's default.
        one_of: The only values there are (`check_choices`), made when they are needed.
        wrong: What is said of another, up to the value: `no clocks`.
        fix: What is said to be written instead; by default the values.
        told: Its name among `inputs`; by default its flat name.
        untold: Why it has none.
        of_traces: What predictions of traces do with it, which have decided already what runs, where and in which order.
        takes: The type of the keyword's value, where that is not the field's own: what `read` reads.
        example: Another value than its default, as a keyword has it, where neither `one_of` nor the default's kind gives one.
    """

    name: str = ""
    flags: tuple[FlagText, ...] = ()
    no_flag: str = ""
    kinds: tuple[Any, ...] = ()
    read: Callable[[str, Any], Any] | None = None
    from_flags: Callable[..., Any] | None = None
    unset: Any = AS_DEFAULT
    one_of: Callable[[], Sequence[str]] | None = None
    wrong: str = ""
    fix: str = ""
    told: str = ""
    untold: str = ""
    of_traces: OfTraces = "refused"
    takes: str = ""
    example: Callable[[], Any] | None = None

    @property
    def where(self) -> str:
        """The place that an error names: the flag, or the keyword where there is no flag."""
        return self.flags[0].flag if self.flags else self.name


class DeclaredField(NamedTuple):
    """An option: where it is kept, what it is by default, what is declared of it."""

    attribute: str
    default: Callable[[], Any]
    declaration: Declaration

    @property
    def name(self) -> str:
        """The flat name."""
        return self.declaration.name

    def taken(self, value: Any) -> Any:
        """A value as it is kept.

        Raises:
            UsageError: It is of another kind.
        """
        if self.declaration.read is not None:
            return self.declaration.read(self.name, value)
        return checked(self.name, value, self.declaration.kinds or (type(self.default()),))

    def check_choice(self, value: Any) -> None:
        """Refuses what is not among the only values there are.

        Raises:
            UsageError: It is another.
        """
        told = self.declaration
        if told.one_of is not None and value not in (known := told.one_of()):
            fix = told.fix or "one of " + ", ".join(known)
            raise UsageError(told.wrong.format(repr(value)), where=told.where, fix=fix)


def option(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING, **declared: Any) -> Any:
    """A field of a part: its default or what makes it, and what `Declaration` has.

    Args:
        default: The value where nobody says otherwise.
        default_factory: What makes it, of values that are mutable or have weight.
        **declared: Fields of `Declaration`; `flag`, `help`, `metavar` and `parameter` make the only flag.
    """
    if flag := declared.pop("flag", ""):
        given = {name: declared.pop(name) for name in ("help", "metavar", "parameter", "repeated") if name in declared}
        declared["flags"] = (FlagText(flag=flag, **given),)
    metadata = {_KEY: Declaration(**declared)}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declared_fields(part: type) -> Mapping[str, DeclaredField]:
    """The options that a dataclass keeps, by their flat names."""
    if part not in _FIELDS:
        _FIELDS[part] = dict(_declared(part))
    return _FIELDS[part]


_FIELDS: dict[type, dict[str, DeclaredField]] = {}


def _declared(part: type) -> Iterator[tuple[str, DeclaredField]]:
    for each in dataclasses.fields(part):
        if _KEY not in each.metadata:
            continue
        said: Declaration = each.metadata[_KEY]
        name = said.name or each.name
        make = each.default_factory if each.default_factory is not dataclasses.MISSING else _constant(each.default)
        said = said._replace(name=name, told="" if said.untold else said.told or name)
        yield name, DeclaredField(attribute=each.name, default=make, declaration=said)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def take_values(part: Any) -> None:
    """Puts every option of a part into the class that the rest relies on: what a part does when it is made.

    Raises:
        UsageError: One is of another kind.
    """
    for each in declared_fields(type(part)).values():
        object.__setattr__(part, each.attribute, each.taken(getattr(part, each.attribute)))


def key_of(part: Any) -> tuple[object, ...]:
    """Everything that a part says, as a key: whatever is declared has a place in it."""
    values = (getattr(part, each.attribute) for each in declared_fields(type(part)).values())
    # A mapping's order has no meaning.
    return tuple(tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values)
