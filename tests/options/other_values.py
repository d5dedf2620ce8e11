"""Another value than the default of an option, of its declaration alone: no list of options is kept in tests."""

from __future__ import annotations

from typing import Any

from meshcast.options.options import option_places


def other_value(name: str) -> Any:
    """A value as a keyword has it: the declared example, another of the only values there are, or another of its kind."""
    field = option_places()[name].field
    said, default = field.declaration, field.default()
    if said.example is not None:
        return said.example()
    if said.one_of is not None:
        return next(each for each in said.one_of() if each != default)
    kinds = said.kinds or (type(default),)
    if bool in kinds:
        return not default
    if int in kinds or float in kinds:
        return (default or 0) + 2
    assert str in kinds, f"the declaration of {name} needs an example: another value than its default"
    return "another"
