"""`Manifest`: which ranks of an export are equal, and in which numbers they differ; checked once, where it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from meshcast.base import LARGEST, InputError, parse_ranges

AGAIN = "export the traces again, or take the manifest away: their files are read then"
GROUP, PEER = "pg_name", "peer"  # what a number is of; the two sides of a message share theirs
LARGEST_NUMBER = (1 << 63) - 1  # of groups and ranks, in traces
_PEERS = ("comm_dst", "comm_src")
Key = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualRanks:
    """Ranks that one file stands for.

    Attributes:
        file: The file, of the first of them.
        ranks: All of them.
        ambiguous: Whether the file has one number where others have two, so that it does not stand for them.
        values: Numbers that stand in the file (of `GROUP` or `PEER`), and what each of the ranks has there.
    """

    file: Path
    ranks: tuple[int, ...]
    ambiguous: bool
    values: dict[Key, tuple[int, ...]] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a manifest: which ranks of a job are equal, and the numbers in which they differ."""

    name: str
    ranks: int
    dedup: bool
    groups: Path
    classes: tuple[EqualRanks, ...]


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file.

    Raises:
        InputError: It is none, or does not name every rank once.
    """
    said, where = read_json(path), str(path)
    ranks = _said(said, "ranks", int, where)
    if not 0 < ranks <= LARGEST:
        raise InputError(f"is of {ranks:.6g} ranks, and jobs have 1 to {LARGEST}", where=where, fix=AGAIN)
    classes = tuple(
        _equal(_is(each, dict, f"classes[{number}]", where), f"classes[{number}].", path, ranks)
        for number, each in enumerate(_said(said, "classes", list, where))
    )
    named = sorted(rank for each in classes for rank in each.ranks)
    if named != list(range(ranks)):
        raise InputError(f"names {len(named)} of {ranks} ranks", where=where, fix="export all ranks: leave out --ranks")
    return Manifest(
        name=_said(said, "name", str, where), ranks=ranks, dedup=_said(said, "dedup", bool, where),
        groups=_beside(path, said, "comm_groups"), classes=classes,
    )  # fmt: skip


def _equal(said: dict[str, Any], at: str, path: Path, of_job: int) -> EqualRanks:
    where = str(path)
    ranks = parse_ranges(_said(said, "ranks", str, where, at), where=where, error=InputError, below=of_job)
    values: dict[Key, tuple[int, ...]] = {}
    for number, each in enumerate(_said(said, "values", list, where, at)):
        inside = f"{at}values[{number}]"
        value = _is(each, dict, inside, where)
        attribute = _said(value, "attribute", str, where, inside + ".")
        if attribute not in (GROUP, *_PEERS):
            raise InputError(f"{inside}.attribute is {attribute!r}", where=where, fix=AGAIN)
        of_rank = _said(value, "of_rank", list, where, inside + ".")
        if len(of_rank) != len(ranks) or not all(type(one) is int and 0 <= one <= LARGEST_NUMBER for one in of_rank):
            raise InputError(
                f"{inside}.of_rank is no list of {len(ranks)} whole numbers, one for each rank", where=where, fix=AGAIN
            )
        key = (GROUP if attribute == GROUP else PEER, _said(value, "in_file", int, where, inside + "."))
        values.setdefault(key, tuple(of_rank))
    return EqualRanks(
        file=_beside(path, said, "file", at), ranks=ranks,
        ambiguous=_said(said, "ambiguous", bool, where, at), values=values,
    )  # fmt: skip


def _beside(path: Path, said: dict[str, Any], name: str, at: str = "") -> Path:
    """A file that a manifest names, in its own folder.

    Raises:
        InputError: It is no name of a file, or one of another folder: a manifest may come from anywhere.
    """
    found = _said(said, name, str, str(path), at)
    if found in ("", ".", "..") or any(mark in found for mark in ("/", "\\", "\0")):
        raise InputError(
            f"{at}{name} is {found!r:.60}, and not the name of a file in the manifest's folder",
            where=str(path),
            fix=AGAIN,
        )
    return path.with_name(found)


def _said(said: dict[str, Any], name: str, kind: type[T], where: str, at: str = "") -> T:
    if name not in said:
        raise InputError(f"is no manifest of traces: {at}{name} is missing", where=where, fix=AGAIN)
    return _is(said[name], kind, f"{at}{name}", where)


def _is(value: Any, kind: type[T], name: str, where: str) -> T:
    if type(value) is not kind:
        raise InputError(
            f"is no manifest of traces: {name} is {value!r:.60}, not of type {kind.__name__}", where=where, fix=AGAIN
        )
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; Python's own reader keeps the last of what is said twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if [key for key, _ in pairs].count(name) > 1)
        raise ValueError(f"{twice!r} is in one object twice")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        InputError: It holds none.
    """
    try:
        found = json.loads(path.read_text(), object_pairs_hook=_each_once)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"cannot be read as JSON: {error}", where=str(path), fix="check the path, or write it again"
        ) from None
    if not isinstance(found, dict):
        raise InputError("holds no object", where=str(path), fix='write an object, {"NAME": ...}')
    return found
