"""Rows of a CSV of measurements, with the complaints that all of them share."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshcast.base import InputError

Cells = Mapping[str, str | None]


def csv_rows(path: Path, columns: Sequence[str], *, fix: str, one_of: Sequence[str] = ()) -> list[tuple[int, Cells]]:
    """(line, cells by column) of every row.

    Args:
        path: The file, packed where its name ends in `.gz`.
        columns: Those that it must have.
        fix: What its columns are, for who has written others.
        one_of: Columns of which one is enough.

    Raises:
        InputError: It cannot be read, is empty, or lacks a column.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in columns if name not in header]
            if missing or (one_of and not set(one_of) & set(header)):
                lacks = ", ".join(missing) or " or ".join(one_of)
                raise InputError(
                    f"no column {lacks} (it has {', '.join(header) or 'nothing'})", where=f"{path}:1", fix=fix
                )
            reader.fieldnames = header
            rows: list[tuple[int, Cells]] = [(reader.line_num, cells) for cells in reader]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "give a CSV file in UTF-8, with a header"
        raise InputError(f"cannot be read: {said}", where=str(path), fix=fix) from error
    if not rows:
        said = "has a header and no rows" if header else "is empty"
        raise InputError(said, where=str(path), fix="add a line for each measurement")
    return rows
