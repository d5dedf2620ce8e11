"""Rows of a CSV of measurements, with the complaints that all of them share."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from meshcast.base import InputError

Cells = Mapping[str, str | None]


def csv_rows(
    path: Path, columns: Sequence[str], *, fix: str, one_of: Sequence[str] = (), whole: bool = False
) -> list[tuple[int, Cells]]:
    """(line, cells by column) of every row.

    Args:
        path: The file, packed where its name ends in `.gz`.
        columns: Those that it must have.
        fix: What its columns are, for who has written others.
        one_of: Columns of which one is enough.
        whole: Whether a row that ends before the last column is refused.

    Raises:
        InputError: It cannot be read, is empty, or lacks a column or cells of a row.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in columns if name not in header]
            if missing or (one_of and not set(one_of) & set(header)):
                lacks = ", ".join(missing) or " or ".join(one_of)
                raise InputError(
                    f"no column {lacks} (it has {', '.join(header) or 'nothing'})", where=f"{path}:1", fix=fix
                )
            reader.fieldnames = header
            rows = list(_rows(reader, header[-1] if whole and header else None, header, path))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "give a CSV file in UTF-8, with a header"
        raise InputError(f"cannot be read: {said}", where=str(path), fix=fix) from error
    if not rows:
        said = "has a header and no rows" if header else "is empty"
        raise InputError(said, where=str(path), fix="add a line for each measurement")
    return rows


def _rows(
    reader: csv.DictReader[str], last: str | None, header: Sequence[str], path: Path
) -> Iterator[tuple[int, Cells]]:
    """(line, cells) of rows, which reach as far as a last column if there is one to reach."""
    line = reader.line_num + 1
    try:
        for cells in reader:
            if last is not None and cells[last] is None:
                count = sum(cells[name] is not None for name in header)
                raise InputError(
                    f"the row has {count} cells, the header {len(header)}: {', '.join(header[count:])} would be missing",
                    where=f"{path}:{line}",
                    fix="add the cells, empty ones too, or the commas between them",
                )
            yield reader.line_num, cells
            line = reader.line_num + 1
    except csv.Error as error:
        said = "a quote is opened and not closed" if "end of data" in str(error) else str(error)
        raise InputError(
            f"the row that begins here cannot be read: {said}",
            where=f"{path}:{line}",
            fix="close each quote before a comma or the line's end, and double those inside a cell",
        ) from error
