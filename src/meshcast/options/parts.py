"""`OptionParts`: the options of each stage, together; and where an option is among them by its flat name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from meshcast.base import UsageError, nearest
from meshcast.options.declared import DeclaredField, declared_fields
from meshcast.options.estimate_options import EstimateOptions
from meshcast.options.lowering_options import LoweringOptions
from meshcast.options.network_options import NetworkOptions
from meshcast.options.program_options import ProgramOptions
from meshcast.options.run_options import RunOptions


class OptionParts(NamedTuple):
    """Options by the stage that they shape."""

    program: ProgramOptions
    lowering: LoweringOptions
    estimate: EstimateOptions
    network: NetworkOptions
    run: RunOptions


PART_KINDS: Mapping[str, type] = {
    "program": ProgramOptions,
    "lowering": LoweringOptions,
    "estimate": EstimateOptions,
    "network": NetworkOptions,
    "run": RunOptions,
}


class OptionPlace(NamedTuple):
    """Where an option is: the name of its part (None: in `Options` itself), and its field there."""

    part: str | None
    field: DeclaredField


@functools.cache
def part_places() -> dict[str, OptionPlace]:
    """Every option of a part by its flat name, in the order of stages."""
    kinds = PART_KINDS.items()
    return {name: OptionPlace(part, each) for part, kind in kinds for name, each in declared_fields(kind).items()}


@functools.cache
def default_parts() -> OptionParts:
    """All options of stages at their defaults; made when they are needed: the state of hardware has weight."""
    return OptionParts(**{name: kind() for name, kind in PART_KINDS.items()})


def with_values(parts: OptionParts, values: Mapping[str, Any]) -> OptionParts:
    """Parts with some replaced as a whole, and with single options changed by their flat names.

    A name may be both: `network` is a part, and by a text the model of the network.

    Raises:
        UsageError: There is no such option, or a value is of another kind.
    """
    if not values:
        return parts  # the very same: what is known of them is kept by their identity
    entire: dict[str, Any] = {
        name: each for name, each in values.items() if name in PART_KINDS and isinstance(each, PART_KINDS[name])
    }
    single: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name in entire:
            continue
        if name not in part_places():
            raise UsageError(f"there is no option {name!r}", where="Options", fix=nearest(name, sorted(part_places())))
        place = part_places()[name]
        single.setdefault(str(place.part), {})[place.field.attribute] = value
    parts = parts._replace(**entire)
    changed: dict[str, Any] = {name: replace(getattr(parts, name), **each) for name, each in single.items()}
    return parts._replace(**changed)
