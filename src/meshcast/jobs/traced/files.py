"""Which files a target of traces stands for: `PREFIX.RANK.et` of all ranks, the groups beside them, a manifest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import InputError
from meshcast.chakra import (
    JSON_SUFFIX,
    MANIFEST_SUFFIX,
    SUFFIX,
    groups_path,
    is_json_trace,
    manifest_path,
    named_rank,
    rank_path,
)
from meshcast.jobs.traced.manifest import Manifest, read_manifest


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
    manifest: Manifest | None = None


def names_traces(target: object) -> bool:
    """Whether a target is a trace, a prefix of traces, a folder of them, or a manifest."""
    if not isinstance(target, (str, Path)):
        return False
    path = Path(target)
    if str(target).endswith((SUFFIX, MANIFEST_SUFFIX)):
        return True
    if path.is_dir():
        return any(_inside(path))
    if path.exists():
        return is_json_trace(path)
    return (
        rank_path(path, 0).is_file() or manifest_path(path).is_file() or is_json_trace(rank_path(path, 0, JSON_SUFFIX))
    )


def _inside(folder: Path) -> list[Path]:
    """Traces in a folder: protobuf's, and JSON where there are none."""
    return [*folder.glob(f"*{SUFFIX}")] or [each for each in folder.glob(f"*{JSON_SUFFIX}") if is_json_trace(each)]


def find_traces(target: str | Path) -> TraceFiles:
    """The files that a target stands for.

    Raises:
        InputError: There are none, ranks are missing, or a folder has those of several jobs.
    """
    path = Path(target)
    if str(target).endswith(MANIFEST_SUFFIX):
        return _of_manifest(path)
    if path.is_dir():
        prefixes = {found[0] for each in _inside(path) if (found := named_rank(each))}
        if len(prefixes) != 1:
            single = sorted(_inside(path))
            if not prefixes and len(single) == 1:
                return TraceFiles(
                    name=single[0].stem, by_rank={0: single[0]}, groups=_groups(single[0].with_suffix(""))
                )
            raise InputError(
                f"has traces of {len(prefixes)} jobs: {', '.join(sorted(prefixes)[:4])}", where=str(path),
                fix="name one of them: FOLDER/PREFIX",
            )  # fmt: skip
        path = path / prefixes.pop()
    elif path.suffix == SUFFIX or is_json_trace(path):
        if not path.is_file():
            raise InputError("no such file", where=str(path), fix="check the path")
        found = named_rank(path)
        if found is None:
            return TraceFiles(name=path.stem, by_rank={0: path}, groups=_groups(path.with_suffix("")))
        path = path.with_name(found[0])
    manifest = manifest_path(path)
    made = _of_manifest(manifest) if manifest.is_file() else None
    if made is not None and made.manifest is not None and made.manifest.dedup:
        return made
    by_rank = {found[1]: each for each in _inside(path.parent) if (found := named_rank(each)) and found[0] == path.name}
    if not by_rank:
        what = "is no trace" if path.exists() else "no such trace"
        raise InputError(
            what,
            where=str(target),
            fix=f"name a Chakra trace: FILE{SUFFIX}, PREFIX of PREFIX.RANK{SUFFIX}, or a folder of them",
        )
    if missing := sorted(set(range(max(by_rank) + 1)) - set(by_rank)):
        raise InputError(
            f"{len(missing)} of {max(by_rank) + 1} ranks have no file, rank {missing[0]} first", where=str(path),
            fix=f"a job needs {path.name}.RANK{SUFFIX} of all its ranks: export them all, or --dedup",
        )  # fmt: skip
    if (
        made is not None
        and made.manifest is not None
        and not any(each.ambiguous for each in made.manifest.classes)
        and sorted(by_rank) == sorted(made.by_rank)
        and _as_exported(manifest, by_rank.values())
    ):
        return made  # what it says of equal ranks holds: one file of each kind is read, instead of thousands
    return TraceFiles(name=path.name, by_rank=dict(sorted(by_rank.items())), groups=_groups(path))


def _as_exported(manifest: Path, files: Iterable[Path]) -> bool:
    """Whether no file is younger than the manifest, which is written last: none was changed since."""
    written = manifest.stat().st_mtime_ns
    return all(file.stat().st_mtime_ns <= written for file in files)


def _groups(prefix: Path) -> Path | None:
    """The file of groups beside traces: ours, STAGE's, or that of a folder."""
    names = (groups_path(prefix).name, f"{prefix.name}.json", "comm_groups.json", "comm_group.json")
    return next((found for name in names if (found := prefix.with_name(name)).is_file()), None)


def _of_manifest(path: Path) -> TraceFiles:
    said = read_manifest(path)
    by_rank = {rank: each.file for each in said.classes for rank in each.ranks}
    return TraceFiles(name=said.name, by_rank=dict(sorted(by_rank.items())), groups=said.groups, manifest=said)
