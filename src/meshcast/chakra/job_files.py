"""The files of a job's traces by their names, and ranks as a short text: what writes traces and what reads them agree on it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from meshcast.errors import MeshcastError, UsageError

SUFFIX = ".et"
GROUPS_SUFFIX = ".comm_groups.json"
MANIFEST_SUFFIX = ".manifest.json"
STEPS_OVERLAP = "steps_overlap"  # in the metadata: ranks begin the next step before all are done with this one
_RANK = re.compile(r"(?P<prefix>.*)\.(?P<rank>[0-9]+)\.et")


def rank_path(prefix: Path, rank: int) -> Path:
    """The file of a rank."""
    return prefix.with_name(f"{prefix.name}.{rank}{SUFFIX}")


def groups_path(prefix: Path) -> Path:
    """The file of the groups."""
    return prefix.with_name(prefix.name + GROUPS_SUFFIX)


def manifest_path(prefix: Path) -> Path:
    """The file that says what is equal."""
    return prefix.with_name(prefix.name + MANIFEST_SUFFIX)


def named_rank(path: Path) -> tuple[str, int] | None:
    """The name of the prefix and the rank of a file; None where it is no rank's."""
    found = _RANK.fullmatch(path.name)
    return (found["prefix"], int(found["rank"])) if found else None


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as a short text: `0-7,16`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def parse_ranges(text: str, *, where: str = "--ranks", error: type[MeshcastError] = UsageError) -> tuple[int, ...]:
    """Whole numbers from `0-7,16`, in order and each once.

    Args:
        text: The text.
        where: What it stands in.
        error: What it is refused with.

    Raises:
        MeshcastError: It is no such text; the `error` that is asked for.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
            raise error(f"{part!r} is no rank and no range of ranks", where=where, fix="write them as 0-7,16")
        if dash and int(last) < int(first):
            raise error(f"{part!r} ends before it begins", where=where, fix="write the lower rank first")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def check_ranks(asked: Collection[int], ranks: int) -> None:
    """Refuses ranks that a job does not have.

    Raises:
        UsageError: One is not there.
    """
    if asked and (unknown := max(asked)) >= ranks:
        raise UsageError(f"no rank {unknown} among {ranks}", where="--ranks", fix=f"ranks go from 0 to {ranks - 1}")
