"""Which files a target of traces stands for: `PREFIX.RANK.et` of all ranks, the groups beside them, a manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.errors import InputError

SUFFIX = ".et"
MANIFEST_SUFFIX = ".manifest.json"
_RANK = re.compile(r"(?P<prefix>.*)\.(?P<rank>[0-9]+)\.et")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFiles:
    """The files of one job.

    Attributes:
        name: What to call it.
        by_rank: The trace of every rank that has one.
        groups: The file that lists groups of ranks, if there is one.
        manifest: What a manifest says, where one file stands for several ranks.
    """

    name: str
    by_rank: dict[int, Path]
    groups: Path | None = None
    manifest: dict[str, Any] = field(default_factory=dict)


def names_traces(target: object) -> bool:
    """Whether a target is a trace, a prefix of traces, a folder of them, or a manifest."""
    if not isinstance(target, (str, Path)):
        return False
    path = Path(target)
    if str(target).endswith((SUFFIX, MANIFEST_SUFFIX)):
        return True
    if path.is_dir():
        return any(path.glob(f"*{SUFFIX}"))
    return not path.exists() and _file(path, 0).is_file()


def find_traces(target: str | Path) -> TraceFiles:
    """The files that a target stands for.

    Raises:
        InputError: There are none, ranks are missing, or a folder has those of several jobs.
    """
    path = Path(target)
    if str(target).endswith(MANIFEST_SUFFIX):
        return _of_manifest(path)
    if path.is_dir():
        prefixes = {found["prefix"] for each in path.glob(f"*{SUFFIX}") if (found := _RANK.fullmatch(each.name))}
        if len(prefixes) != 1:
            single = sorted(path.glob(f"*{SUFFIX}"))
            if not prefixes and len(single) == 1:
                return TraceFiles(
                    name=single[0].stem, by_rank={0: single[0]}, groups=_groups(single[0].with_suffix(""))
                )
            raise InputError(
                f"has traces of {len(prefixes)} jobs: {', '.join(sorted(prefixes)[:4])}", where=str(path),
                fix="name one of them: FOLDER/PREFIX",
            )  # fmt: skip
        path = path / prefixes.pop()
    elif path.suffix == SUFFIX:
        if not path.is_file():
            raise InputError("no such file", where=str(path), fix="check the path")
        found = _RANK.fullmatch(path.name)
        if found is None:
            return TraceFiles(name=path.stem, by_rank={0: path}, groups=_groups(path.with_suffix("")))
        path = path.with_name(found["prefix"])
    manifest = path.with_name(path.name + MANIFEST_SUFFIX)
    made = _of_manifest(manifest) if manifest.is_file() else None
    if made is not None and made.manifest.get("dedup"):
        return made
    by_rank = {
        int(found["rank"]): each
        for each in path.parent.glob(f"{_escaped(path.name)}.*{SUFFIX}")
        if (found := _RANK.fullmatch(each.name)) and found["prefix"] == path.name
    }
    if missing := sorted(set(range(max(by_rank) + 1)) - set(by_rank)):
        raise InputError(
            f"{len(missing)} of {max(by_rank) + 1} ranks have no file, rank {missing[0]} first", where=str(path),
            fix=f"a job needs {path.name}.RANK{SUFFIX} of all its ranks: export them all, or --dedup",
        )  # fmt: skip
    clear = made is not None and not any(each.get("ambiguous") for each in made.manifest["classes"])
    if (
        made is not None
        and clear
        and sorted(by_rank) == sorted(made.by_rank)
        and _as_exported(manifest, by_rank.values())
    ):
        return made  # what it says of equal ranks holds: one file of each kind is read, instead of thousands
    return TraceFiles(name=path.name, by_rank=dict(sorted(by_rank.items())), groups=_groups(path))


def _as_exported(manifest: Path, files: Iterable[Path]) -> bool:
    """Whether no file is younger than the manifest, which is written last: none was changed since."""
    written = manifest.stat().st_mtime_ns
    return all(file.stat().st_mtime_ns <= written for file in files)


def _escaped(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _file(prefix: Path, rank: int) -> Path:
    return prefix.with_name(f"{prefix.name}.{rank}{SUFFIX}")


def _groups(prefix: Path) -> Path | None:
    """The file of groups beside traces: ours, STAGE's, or that of a folder."""
    names = (f"{prefix.name}.comm_groups.json", f"{prefix.name}.json", "comm_groups.json", "comm_group.json")
    return next((found for name in names if (found := prefix.with_name(name)).is_file()), None)


def _of_manifest(path: Path) -> TraceFiles:
    said = read_json(path)
    try:
        by_rank = {
            rank: path.with_name(each["file"])
            for each in said["classes"]
            for rank in ranks_of(str(each["ranks"]), path)
        }
        name, groups = str(said["name"]), path.with_name(said["comm_groups"])
    except (KeyError, TypeError) as error:
        raise InputError(f"is no manifest of traces: {error} is missing", where=str(path)) from None
    if sorted(by_rank) != list(range(int(said["ranks"]))):
        raise InputError(
            f"names {len(by_rank)} of {said['ranks']} ranks", where=str(path), fix="export all ranks: leave out --ranks"
        )
    return TraceFiles(name=name, by_rank=dict(sorted(by_rank.items())), groups=groups, manifest=said)


def ranks_of(text: str, where: Path) -> list[int]:
    """Ranks from `0-7,16`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            found += range(int(first), int(last or first) + 1)
        except ValueError:
            raise InputError(f"{part!r} is no range of ranks", where=str(where)) from None
    return found


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        InputError: It holds none.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as JSON: {error}", where=str(path)) from None
    if not isinstance(found, dict):
        raise InputError("holds no object", where=str(path))
    return found


def read_groups(path: Path | None) -> dict[str, tuple[int, ...]]:
    """Groups of ranks by their names, `{"1": [0, 1]}`.

    Raises:
        InputError: The file is none.
    """
    if path is None:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for name, ranks in read_json(path).items():
        if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks):
            raise InputError(f"group {name!r} is no list of ranks", where=str(path))
        if len(set(ranks)) != len(ranks):
            raise InputError(f"group {name!r} has a rank twice", where=str(path))
        found[name] = tuple(ranks)
    return found
