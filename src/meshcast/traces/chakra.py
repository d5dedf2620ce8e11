"""Chakra traces of a job's ranks: `PREFIX.RANK.et`, the groups of its ranks, and a manifest of what is equal."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from meshcast.base import (
    InfeasibleError,
    Staged,
    UnsupportedError,
    UsageError,
    format_bytes,
    nearest,
    ranges,
    told_each,
    whole_files,
)
from meshcast.chakra import (
    GENERATIONS,
    VERSIONS,
    Generation,
    check_ranks,
    groups_path,
    manifest_path,
    named_rank,
    rank_path,
)
from meshcast.jobs import JobTrace, RankClass, RankValues
from meshcast.network import INPUT_FILES as ASTRA_FILES
from meshcast.traces.encoding import ClassFiles
from meshcast.traces.format_names import ANOTHER_PLACE
from meshcast.traces.writers import write_all

ASTRA_SUFFIX = ".astra"
MANIFEST = "meshcast.chakra/1"
SPARE_BYTES = 256 << 20  # of a disk that is not to be filled up; of a small one
SPARE_SHARE = 20  # a twentieth


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraFiles:
    """The files of a Chakra export that are asked for.

    Attributes:
        prefix: Files are `PREFIX.RANK.et`, `PREFIX.comm_groups.json` and `PREFIX.manifest.json`.
        generation: The generation of the schema.
        ranks: Those whose files are wanted; None for all.
        dedup: Whether ranks that are equal have one file, that of the lowest.
        inputs: What else ASTRA-sim is told, by its flags: names and texts of files in `PREFIX.astra/`.
    """

    prefix: Path
    generation: Generation = "current"
    ranks: tuple[int, ...] | None = None
    dedup: bool = False
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def path(self, rank: int) -> Path:
        """The file of a rank."""
        return rank_path(self.prefix, rank)

    @property
    def groups(self) -> Path:
        """The file of the groups."""
        return groups_path(self.prefix)

    @property
    def astra(self) -> Path:
        """The folder of what else ASTRA-sim is told."""
        return self.prefix.with_name(self.prefix.name + ASTRA_SUFFIX)

    @property
    def manifest(self) -> Path:
        """The file that says what is equal."""
        return manifest_path(self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The files of a Chakra export with their sizes, before they are written."""

    files: tuple[tuple[int, ClassFiles], ...]  # rank, and the class that it is of
    size: int


def check_schema(schema: str) -> Generation:
    """The generation of the schema that a text names.

    Raises:
        UsageError: There is none of that name.
    """
    found = next((known for known in GENERATIONS if known == schema), None)
    if found is None:
        raise UsageError(f"no schema {schema!r}", where="--schema", fix=nearest(schema, GENERATIONS))
    return found


def planned(job: JobTrace, wanted: ChakraFiles) -> Planned:
    """The files of a job with their size in all.

    Raises:
        UsageError: A rank is not there.
        UnsupportedError: One file cannot stand for all equal ranks.
    """
    asked = None if wanted.ranks is None else set(wanted.ranks)
    check_ranks(asked or (), job.ranks)
    files: list[tuple[int, ClassFiles]] = []
    size = 0
    for each in job.classes:
        encoded = ClassFiles(job=job, of_class=each, generation=wanted.generation)
        ranks = [int(rank) for rank in each.ranks if asked is None or int(rank) in asked]
        if wanted.dedup and ranks and _ambiguous(job, each, ranks):
            raise UnsupportedError(
                f"rank {ranks[0]} has one neighbour in two roles, where ranks like it have two: one file cannot say which",
                where="--dedup", fix="leave out --dedup",
            )  # fmt: skip
        for rank in ranks[:1] if wanted.dedup else ranks:
            files.append((rank, encoded))
            size += encoded.size(rank)
    return Planned(files=tuple(files), size=size)


def write(job: JobTrace, wanted: ChakraFiles, what: Planned | None = None) -> dict[str, Path]:
    """Writes the files, and gives the paths that ASTRA-sim wants by its flags, and that of the manifest.

    Raises:
        UsageError: They cannot be written there.
        OutputError: The disk has not the room for them.
    """
    what = what or planned(job, wanted)
    with whole_files(wanted.prefix, fix=ANOTHER_PLACE) as staged:
        _check_room(wanted.prefix.parent, what)
        _without_earlier(staged, wanted, {rank for rank, _ in what.files})
        write_all(
            (staged.path(wanted.path(rank)), partial(files.file, rank))
            for rank, files in told_each(what.files, len(what.files), "ranks written")
        )
        _write_json(staged.path(wanted.groups), job.groups.listed())
        for file, text in wanted.inputs.values():
            staged.path(wanted.astra / file).write_text(text, encoding="utf-8")
        # Taken away first and put there last: what stands without one is not taken for whole.
        staged.without(wanted.manifest)
        _write_json(staged.path(wanted.manifest), _manifest(job, wanted))
    if not wanted.inputs:
        with contextlib.suppress(OSError):  # an earlier export's, empty now; or there is none
            wanted.astra.rmdir()
    return {
        "workload-configuration": wanted.prefix, "comm-group-configuration": wanted.groups,
        **{flag: wanted.astra / file for flag, (file, _) in wanted.inputs.items()}, "manifest": wanted.manifest,
    }  # fmt: skip


def _check_room(folder: Path, what: Planned) -> None:
    disk = shutil.disk_usage(folder)
    free, spare = disk.free, min(SPARE_BYTES, disk.total // SPARE_SHARE)
    if what.size + spare > free:
        raise InfeasibleError(
            f"{len(what.files):,} files of {format_bytes(what.size)} in all do not fit on a disk with "
            f"{format_bytes(free)} free, of which {format_bytes(spare)} are kept free", where=str(folder),
            fix="write one file for all equal ranks (--dedup), fewer (--ranks), or compact loops (leave out --unroll)",
        )  # fmt: skip


def _without_earlier(staged: Staged, wanted: ChakraFiles, ranks: set[int]) -> None:
    """Takes away what an earlier export left under the same prefix, which would be taken for ranks of this one."""
    ours = wanted.manifest.is_file()
    for path in wanted.prefix.parent.iterdir():
        found = named_rank(path)
        if found is not None and path == wanted.path(found[1]) and found[1] not in ranks:
            if not ours:
                raise UsageError(
                    "a file of no export has the name of a rank, and would be taken for one of this export", where=str(path),
                    fix="move it away, or choose another prefix",
                )  # fmt: skip
            staged.without(path)
    if ours and wanted.astra.is_dir():  # of other hardware, or of more ranks; what users put there stays
        for name in ASTRA_FILES:
            staged.without(wanted.astra / name)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def _manifest(job: JobTrace, wanted: ChakraFiles) -> Mapping[str, Any]:
    asked = None if wanted.ranks is None else set(wanted.ranks)
    classes = []
    for each in job.classes:
        ranks = [int(rank) for rank in each.ranks if asked is None or int(rank) in asked]
        if not ranks:
            continue
        values = _values(job, each)
        classes.append(
            {
                "file": wanted.path(ranks[0]).name,
                "ranks": ranges(ranks),
                "nodes": len(each.body),
                "ambiguous": _ambiguous(job, each, ranks),
                # What stands in the file is the first rank's; that of the others is beside it, in the order of `ranks`.
                "values": [
                    {
                        "attribute": value.attribute,
                        "in_file": int(value.of_rank[ranks[0]]),
                        "of_rank": value.of_rank[ranks].tolist(),
                    }
                    for value in values
                ],
            }
        )
    return {
        "schema": MANIFEST, "name": job.name, "ranks": job.ranks, "version": VERSIONS[wanted.generation],
        "dedup": wanted.dedup, "comm_groups": wanted.groups.name, "step_time_s": job.step_s,
        "makespan_s": job.makespan_s, "classes": classes,
    }  # fmt: skip


def _values(job: JobTrace, of_class: RankClass) -> list[RankValues]:
    """The values in which ranks of a class differ."""
    return [job.groups.values[number] for number in of_class.body.rank_values()]


def _ambiguous(job: JobTrace, of_class: RankClass, ranks: list[int]) -> bool:
    """Whether the first rank's file has one number for values that differ on other ranks."""
    known: dict[tuple[bool, int], list[int]] = {}
    for value in _values(job, of_class):
        rows = value.of_rank[ranks].tolist()
        if known.setdefault((value.attribute == "pg_name", rows[0]), rows) != rows:
            return True
    return False
