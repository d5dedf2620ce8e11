"""A run folder: the space, every point as it is finished, where and with what it was made; it can be resumed and merged.

space.toml        the space, as it was given
points.jsonl      a line for each finished point, in the order they were finished: {"point": ..., "outcome": ...}
points.parquet    the same as one flat table, in the order of the space (with the extra `explore`, which brings pyarrow)
summary.json      what `--json` prints at the end
plot.svg          a picture of the points that are held (`explore/plot.py`)
environment.json  versions, machine, command line, and the hash of the space that the points belong to

Lines are written whole, one by one: whatever ends a run leaves all points that were finished. A line that is cut off, as a
full disk leaves it, is passed over, and taken away by the run that goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from meshcast.base import VERSION, UsageError, not_written, whole_files, write_whole
from meshcast.explore.kept_points import POINTS, KeptOutcomes, ordered
from meshcast.explore.point import Outcome, Point
from meshcast.explore.space import Space

TABLE, SPACE, SUMMARY, ENVIRONMENT = "points.parquet", "space.toml", "summary.json", "environment.json"
ANOTHER = "name another folder: -o DIR"
ROWS = 20_000  # of a table that are held at once
TAIL = 2**16  # bytes in which the end of the last whole line is looked for: lines are a kilobyte or two
_TOLD = ("jax", "jaxlib", "numpy", "pyarrow", "ray", "optuna")


@dataclass(kw_only=True)
class RunStore:
    """The folder of one exploration.

    Attributes:
        path: The folder.
        digest: The hash of the space that its points belong to.
    """

    path: Path
    digest: str
    _mended: bool = False

    @classmethod
    def opened(cls, path: Path, space: Space, text: str, *, resume: bool, command: Iterable[str] = ()) -> RunStore:
        """The folder, made if it is not there.

        Args:
            path: The folder.
            space: What is searched over.
            text: The space as it was given.
            resume: Whether points of an earlier run are kept.
            command: The command line.

        Raises:
            UsageError: It holds something else, points of another space, or points that nobody asked to keep.
        """
        store = cls(path=path, digest=space_digest(space))
        points = path / POINTS
        if path.is_dir() and any(path.iterdir()) and not (path / ENVIRONMENT).exists():
            raise UsageError("the folder is not empty, and no exploration's", where=str(path), fix=ANOTHER)
        if points.exists() and not resume:
            raise UsageError(
                "the folder has points of an earlier run",
                where=str(path),
                fix=f"--resume goes on with them; or {ANOTHER}",
            )
        if (path / ENVIRONMENT).exists():
            earlier = json.loads((path / ENVIRONMENT).read_text(encoding="utf-8")).get("space")
            if earlier != store.digest:
                raise UsageError("its points are of another space", where=str(path), fix=ANOTHER)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(error, path, ANOTHER) from None
        write_whole(path / SPACE, text.encode())
        write_whole(path / ENVIRONMENT, (json.dumps(_environment(store.digest, command), indent=1) + "\n").encode())
        return store

    def keep(self, point: Point, outcome: Outcome) -> None:
        """Writes a finished point."""
        if not self._mended:
            self._mend()
            self._mended = True
        line = json.dumps({"point": point.to_json(), "outcome": outcome.to_json()}, allow_nan=False) + "\n"
        with (self.path / POINTS).open("a", encoding="utf-8") as file:
            file.write(line)

    def _mend(self) -> None:
        """Takes away a line that an earlier run was cut off in: others could not read the table. One that is whole is ended."""
        points = self.path / POINTS
        if not points.exists():
            return
        with points.open("rb+") as file:
            begin = size = file.seek(0, 2)
            tail = b""
            while begin and b"\n" not in tail:
                begin = max(0, begin - TAIL)
                file.seek(begin)
                tail = file.read(size - begin)
            last = tail.rpartition(b"\n")[2]
            try:
                json.loads(last)
            except ValueError:
                file.truncate(size - len(last))
            else:
                file.seek(size)
                file.write(b"\n")

    def kept(self) -> KeptOutcomes:
        """Outcomes of an earlier run by the numbers of their points; what failed by a bug is asked again."""
        return KeptOutcomes(self.path)

    def discard(self) -> None:
        """Takes a folder away that nothing has come of: what was asked for could not be."""
        if (self.path / POINTS).exists():
            return
        for name in (SPACE, ENVIRONMENT):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else has put something into it
            self.path.rmdir()

    def finish(self, summary: dict[str, Any], row_of: Callable[[Point, Outcome], dict[str, Any]]) -> list[str]:
        """Writes the table and the summary; the names of the files that there are (of a run without a point, no points)."""
        write_whole(self.path / SUMMARY, (json.dumps(summary, allow_nan=False, indent=1) + "\n").encode())
        written = [POINTS, SUMMARY] if (self.path / POINTS).exists() else [SUMMARY]
        if write_table(
            self.path / TABLE,
            lambda: (row_of(point, outcome) for point, outcome in ordered(self.path)),
        ):
            written.append(TABLE)
        return written


def space_digest(space: Space) -> str:
    """A hash of everything that says which points there are, and in which order."""
    said = json.dumps(
        [space.model, space.asked, [[axis.name, axis.values] for axis in space.axes], space.plans],
        default=str,
        sort_keys=True,
    )
    return hashlib.sha256(said.encode()).hexdigest()


def merged(folders: Iterable[Path], into: Path, space: Space | None = None) -> int:
    """Points of several folders of the same space in one, each once; how many there are.

    Args:
        folders: Where they are.
        into: Where they come together; nothing is written there where some cannot.
        space: The space that all have to be of; that of the first folder by default.

    Raises:
        UsageError: A folder is none of an exploration, or of another space.
    """
    digest = space_digest(space) if space is not None else None
    seen: set[int] = set()
    sources = list(folders)
    for folder in sources:
        try:
            data = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise UsageError(
                "no exploration's folder", where=str(folder), fix="name folders that explore -o wrote"
            ) from None
        if digest is not None and data["space"] != digest:
            raise UsageError("its points are of another space", where=str(folder), fix="merge folders of one space")
        digest = data["space"]
    if (into / POINTS).exists():
        raise UsageError("the folder has points already", where=str(into), fix=ANOTHER)
    into.mkdir(parents=True, exist_ok=True)
    with whole_files(into / POINTS, fix=ANOTHER) as staged, staged.open(into / POINTS) as out:
        for folder in sources:
            for point, outcome in ordered(folder):
                if point.number not in seen:
                    seen.add(point.number)
                    out.write((json.dumps({"point": point.to_json(), "outcome": outcome.to_json()}) + "\n").encode())
    write_whole(into / SPACE, (sources[0] / SPACE).read_bytes())
    write_whole(into / ENVIRONMENT, (sources[0] / ENVIRONMENT).read_bytes())
    return len(seen)


def write_table(path: Path, rows: Callable[[], Iterable[dict[str, Any]]]) -> bool:
    """Writes rows as Parquet, some at a time; whether pyarrow, which does it, is there, and there are any rows.

    A row may lack some columns: rows are gone through twice, once for the columns of all, and no more than a block is held.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False

    def tables() -> Iterator[Any]:
        for block in _blocks(rows()):
            plain = [_plain(row) for row in block]
            names = dict.fromkeys(name for row in plain for name in row)
            yield pyarrow.Table.from_pylist([{name: row.get(name) for name in names} for row in plain])

    schema: Any = None
    for table in tables():
        both = [table.schema] if schema is None else [schema, table.schema]
        schema = pyarrow.unify_schemas(both, promote_options="permissive")
    if schema is None:
        return False
    with (
        whole_files(path, fix=ANOTHER) as staged,
        pyarrow.parquet.ParquetWriter(staged.path(path), schema) as writer,
    ):
        for table in tables():
            missing = [field for field in schema if field.name not in table.column_names]
            for field in missing:
                table = table.append_column(field, pyarrow.nulls(table.num_rows, field.type))
            writer.write_table(table.select(schema.names).cast(schema))
    return True


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, (dict, list))}


def _blocks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    block: list[dict[str, Any]] = []
    for row in rows:
        block.append(row)
        if len(block) == ROWS:
            yield block
            block = []
    if block:
        yield block


def _environment(digest: str, command: Iterable[str]) -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for name in _TOLD:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "schema": "meshcast.exploration-environment/1",
        "space": digest,
        "meshcast": VERSION,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.node(),
        "packages": versions,
        "command": list(command),
    }
