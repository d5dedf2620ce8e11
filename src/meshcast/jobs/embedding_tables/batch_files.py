"""Samples of indices: text, NumPy's files, and the batches of `dlrm_datasets`.

A batch of https://github.com/facebookresearch/dlrm_datasets is a gzipped file of torch with (indices, offsets, lengths):
indices of all tables behind one another, offsets of every bag by table and then by sample, lengths with a row a table.
torch is not needed for that (`base/torch_files.py`).
"""

from __future__ import annotations

import gzip
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError, saved_tensors
from meshcast.jobs.embedding_tables.distribution import Distribution, counted

Longs = npt.NDArray[np.int64]
FIX = "give one index a line, a .npy or .npz file, or a .pt or .pt.gz file of (indices, offsets, lengths)"


@dataclass(frozen=True, kw_only=True)
class IndexBatch:
    """One batch of look-ups: `offsets` has where each bag starts, `tables` tables behind one another."""

    indices: Longs
    offsets: Longs
    tables: int

    @property
    def batch(self) -> int:
        """Samples."""
        return (len(self.offsets) - 1) // self.tables

    def of_table(self, number: int) -> Longs:
        """The indices of one table."""
        first, last = self.offsets[number * self.batch], self.offsets[(number + 1) * self.batch]
        return self.indices[first:last]

    def pooling(self, number: int) -> tuple[float, float]:
        """Mean and standard deviation of what a sample looks up in one table."""
        lengths = np.diff(self.offsets[number * self.batch : (number + 1) * self.batch + 1])
        return float(lengths.mean()), float(lengths.std())


def read_batch(path: Path) -> IndexBatch:
    """A batch of `dlrm_datasets`.

    Raises:
        InputError: It cannot be read as one.
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        found = saved_tensors(content)
    except (OSError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"no batch of look-ups: {error}", where=str(path), fix=FIX) from error
    if (
        not isinstance(found, (tuple, list))
        or len(found) != 3
        or not all(isinstance(each, np.ndarray) for each in found)
    ):
        raise InputError("is not (indices, offsets, lengths)", where=str(path), fix=FIX)
    indices, offsets, lengths = found
    tables = lengths.shape[0] if lengths.ndim == 2 else 1
    offsets = offsets.ravel().astype(np.int64)
    if len(offsets) == lengths.size:
        offsets = np.append(offsets, len(indices))
    if (len(offsets) - 1) % tables or offsets[-1] != len(indices) or np.any(np.diff(offsets) < 0):
        raise InputError(
            f"{len(indices):,} indices, {len(offsets):,} offsets and {lengths.size:,} lengths do not match",
            where=str(path),
            fix=FIX,
        )
    return IndexBatch(indices=indices.astype(np.int64), offsets=offsets, tables=tables)


def sampled(path: Path, table: str, where: str, *, rows: int | None = None) -> Distribution:
    """The distribution of a sample of indices in a file; of a batch, `table` is the table's number.

    Raises:
        InputError: The file cannot be read, has no such table, or an index that is none of so many rows.
    """
    if not path.is_file():
        raise InputError(f"no file {str(path)!r} with a sample of indices", where=where, fix=FIX)
    if path.name.endswith((".pt", ".pt.gz")):
        batch = read_batch(path)
        if not table.isdigit() or int(table) >= batch.tables:
            raise InputError(
                f"table {table!r} of {batch.tables}", where=where, fix="write sample:FILE#NUMBER, counted from 0"
            )
        indices = batch.of_table(int(table))
    else:
        try:
            if path.suffix in (".npy", ".npz"):
                loaded = np.load(path, allow_pickle=False)
                indices = _whole(loaded[_array_of(loaded, table)] if path.suffix == ".npz" else loaded)
            else:
                with warnings.catch_warnings(action="ignore"):  # of an empty file, which is told below
                    indices = np.loadtxt(path, dtype=np.int64, ndmin=1).ravel()
        except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise InputError(f"no sample of indices: {error}", where=str(path), fix=FIX) from error
    if not len(indices):
        raise InputError("has no indices", where=str(path), fix=FIX)
    if indices.min() < 0:
        raise InputError(f"has an index of {indices.min():,}", where=str(path), fix="count rows from 0")
    if rows is not None and indices.max() >= rows:
        raise InputError(
            f"{path.name} looks row {indices.max():,} up, and the table has {rows:,}", where=where,
            fix=f"give the table {indices.max() + 1:,} rows or more, counted from 0",
        )  # fmt: skip
    return counted(indices)


def _array_of(archive: Mapping[str, Any], name: str) -> str:
    """The array of an .npz file that is asked for: the one of that name, or the only one."""
    names = list(archive)
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    told = f"no array {name!r}" if name else "which array is not said"
    raise ValueError(f"{told}, of {', '.join(names[:8]) or 'none'}: write sample:FILE#NAME")


def _whole(values: Any) -> Longs:
    """Whole numbers as they are; others are no indices."""
    found = np.asarray(values).ravel()
    if found.dtype.kind not in "iu":
        raise TypeError(f"its numbers are {found.dtype}, and indices are whole")
    return found.astype(np.int64)
