"""Chakra traces of a job's ranks: `PREFIX.RANK.et`, the groups of its ranks, and a manifest of what is equal."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshcast.chakra.job_files import check_ranks, groups_path, manifest_path, named_rank, rank_path
from meshcast.chakra.schema import GENERATIONS, VERSIONS, Generation
from meshcast.errors import InfeasibleError, UnsupportedError, UsageError, nearest
from meshcast.export.encoding import ClassFiles
from meshcast.export.job import JobTrace, RankClass
from meshcast.export.job_groups import RankValues
from meshcast.ranges import ranges
from meshcast.units import format_bytes

MANIFEST = "meshcast.chakra/1"
SPARE_BYTES = 256 << 20  # of a disk that is not to be filled up
WRITERS = 4  # threads: they wait for the disk most of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraFiles:
    """What is to be written.

    Attributes:
        prefix: Files are `PREFIX.RANK.et`, `PREFIX.comm_groups.json` and `PREFIX.manifest.json`.
        generation: Of the schema.
        ranks: Those whose files are wanted; None for all.
        dedup: Whether ranks that are equal have one file, that of the lowest.
    """

    prefix: Path
    generation: Generation = "current"
    ranks: tuple[int, ...] | None = None
    dedup: bool = False

    def path(self, rank: int) -> Path:
        """The file of a rank."""
        return rank_path(self.prefix, rank)

    @property
    def groups(self) -> Path:
        """The file of the groups."""
        return groups_path(self.prefix)

    @property
    def manifest(self) -> Path:
        """The file that says what is equal."""
        return manifest_path(self.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What will be written, before it is."""

    files: tuple[tuple[int, ClassFiles], ...]  # rank, and the class that it is of
    size: int


def planned(job: JobTrace, wanted: ChakraFiles) -> Planned:
    """The files of a job with their size in all.

    Raises:
        UsageError: A rank is not there, or the schema is not known.
        UnsupportedError: One file cannot stand for all equal ranks.
    """
    if wanted.generation not in GENERATIONS:
        raise UsageError(
            f"no schema {wanted.generation!r}", where="--schema", fix=nearest(wanted.generation, GENERATIONS)
        )
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
        InfeasibleError: The disk has not the room for them.
    """
    what = what or planned(job, wanted)
    folder = wanted.prefix.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(folder, what)
        with tempfile.TemporaryDirectory(prefix=f".{wanted.prefix.name}.", suffix=".part", dir=folder) as name:
            beside = replace(wanted, prefix=Path(name) / wanted.prefix.name)
            with ThreadPoolExecutor(max_workers=min(WRITERS, os.cpu_count() or 1)) as pool:
                for _ in pool.map(lambda file: _write_rank(beside, *file), what.files):
                    pass
            _write_json(beside.groups, job.groups.listed())
            _write_json(beside.manifest, _manifest(job, wanted))
            _put(beside, wanted, {rank for rank, _ in what.files})
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}", where=str(error.filename or folder),
            fix="choose another place with -o",
        ) from None  # fmt: skip
    return {
        "workload-configuration": wanted.prefix, "comm-group-configuration": wanted.groups, "manifest": wanted.manifest,
    }  # fmt: skip


def _check_room(folder: Path, what: Planned) -> None:
    free = shutil.disk_usage(folder).free
    if what.size + SPARE_BYTES > free:
        raise InfeasibleError(
            f"{len(what.files):,} files of {format_bytes(what.size)} in all do not fit on a disk with "
            f"{format_bytes(free)} free", where=str(folder),
            fix="write one file for all equal ranks (--dedup), fewer (--ranks), or compact loops (leave out --unroll)",
        )  # fmt: skip


def _put(beside: ChakraFiles, wanted: ChakraFiles, ranks: set[int]) -> None:
    """Moves files that are whole to their places, and what an earlier export left there away.

    The manifest goes first and comes last: what stands without one is not taken for whole.
    """
    _remove_earlier(wanted, ranks)
    wanted.manifest.unlink(missing_ok=True)
    for rank in ranks:
        beside.path(rank).replace(wanted.path(rank))
    beside.groups.replace(wanted.groups)
    beside.manifest.replace(wanted.manifest)


def _remove_earlier(wanted: ChakraFiles, ranks: set[int]) -> None:
    """Takes away what an earlier export left under the same prefix, which would be taken for ranks of this one."""
    if not wanted.manifest.is_file():
        return
    for path in wanted.prefix.parent.iterdir():
        found = named_rank(path)
        if found is not None and path == wanted.path(found[1]) and found[1] not in ranks:
            path.unlink()


def _write_rank(wanted: ChakraFiles, rank: int, files: ClassFiles) -> None:
    with wanted.path(rank).open("wb", buffering=0) as out:
        out.write(files.file(rank).data)


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
        "dedup": wanted.dedup, "comm_groups": wanted.groups.name, "step_time_s": job.step_s, "classes": classes,
    }  # fmt: skip


def _values(job: JobTrace, of_class: RankClass) -> list[RankValues]:
    """The values in which ranks of a class differ."""
    used = sorted({piece.rank_value for piece in of_class.body.pieces if piece.rank_value is not None})
    return [job.groups.values[number] for number in used]


def _ambiguous(job: JobTrace, of_class: RankClass, ranks: list[int]) -> bool:
    """Whether the first rank's file has one number for values that differ on other ranks."""
    known: dict[tuple[bool, int], list[int]] = {}
    for value in _values(job, of_class):
        rows = value.of_rank[ranks].tolist()
        if known.setdefault((value.attribute == "pg_name", rows[0]), rows) != rows:
            return True
    return False
