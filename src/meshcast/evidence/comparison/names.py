"""What is compared by the names that it is given and shown by: targets, hardware, fidelities."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshcast.base import UsageError, expect
from meshcast.hardware import Cluster, Device
from meshcast.programs import Program, program_name

Target = str | Path | Program
Hardware = str | Device | Cluster


def labels(targets: Sequence[Target]) -> list[str]:
    """Short names of targets; where two would be the same, what was asked for in full."""
    short = [_label(target) for target in targets]
    full = [target.name if isinstance(target, Program) else str(target) for target in targets]
    labels = [long if short.count(name) > 1 else name for name, long in zip(short, full, strict=True)]
    return list(once(labels, "TARGET"))


def _label(target: Target) -> str:
    if isinstance(target, Program):
        return target.name
    return program_name(Path(target)) if Path(target).is_file() else str(target)


def once(names: Sequence[str], where: str) -> Sequence[str]:
    """Names of which none is given twice.

    Raises:
        UsageError: One is.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice!r} is named twice", where=where, fix="name each once")
    return names


def names_of(value: str | Sequence[str], option: str) -> list[str]:
    """Names as a list, or with commas between them.

    Raises:
        UsageError: It is neither.
    """
    expect(value, (str, list, tuple), "a text or a list of texts", where=option)
    for name in [value] if isinstance(value, str) else value:
        expect(name, str, "a text or a list of texts", where=option)
    if isinstance(value, str):
        return split_names(value)
    return list(value)


def hardware_of(value: Hardware | Sequence[Hardware]) -> list[Hardware]:
    """Devices and clusters as a list.

    Raises:
        UsageError: Something else is among them.
    """
    if isinstance(value, (Device, Cluster)):
        return [value]
    what = "a text, a meshcast.Device or meshcast.Cluster, or a list of them"
    expect(value, (str, list, tuple), what, where="on")
    if isinstance(value, str):
        return list(split_names(value))
    for each in value:
        expect(each, (str, Device, Cluster), what, where="on")
    return list(value)


def by_name(on: Sequence[Hardware]) -> dict[str, Hardware]:
    """Hardware by the name that it is shown by; objects whose name is taken are numbered."""
    texts = {each for each in on if isinstance(each, str)}
    found: dict[str, Hardware] = {}
    for each in on:
        names = (
            iter((each,))
            if isinstance(each, str)
            else (n for n in _numbered(each.name) if n not in texts | found.keys())
        )
        found[next(names)] = each
    return found


def _numbered(name: str) -> Iterator[str]:
    """A name, then with a number."""
    yield name
    yield from (f"{name} ({number})" for number in itertools.count(2))


def split_names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]
