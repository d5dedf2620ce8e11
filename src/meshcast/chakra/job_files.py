"""The files of a job's traces by their names: what writes traces and what reads them agree on them."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from meshcast.base import UsageError

SUFFIX = ".et"
JSON_SUFFIX = ".json"
GROUPS_SUFFIX = ".comm_groups.json"
MANIFEST_SUFFIX = ".manifest.json"
STEPS_OVERLAP = "steps_overlap"  # in the metadata: ranks begin the next step before all are done with this one
_RANK = re.compile(r"(?P<prefix>.*)\.(?P<rank>[0-9]+)\.(et|json)")


def rank_path(prefix: Path, rank: int, suffix: str = SUFFIX) -> Path:
    """The file of a rank."""
    return prefix.with_name(f"{prefix.name}.{rank}{suffix}")


def is_json_trace(path: Path) -> bool:
    """Whether a file is a rank's trace in JSON, by its name and how it begins."""
    if path.suffix != JSON_SUFFIX or named_rank(path) is None or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(400)
    return b'"workload_graph"' in head or (b'"version"' in head and b'"traceEvents"' not in head)


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


def check_ranks(asked: Collection[int], ranks: int) -> None:
    """Refuses ranks that a job does not have.

    Raises:
        UsageError: One is not there.
    """
    if asked and (unknown := max(asked)) >= ranks:
        raise UsageError(f"no rank {unknown} among {ranks}", where="--ranks", fix=f"ranks go from 0 to {ranks - 1}")
