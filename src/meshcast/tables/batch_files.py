"""Samples of indices: text, NumPy's files, and the batches of `dlrm_datasets`.

A batch of https://github.com/facebookresearch/dlrm_datasets is a gzipped file of torch with (indices, offsets, lengths):
indices of all tables behind one another, offsets of every bag by table and then by sample, lengths with a row a table.
torch's files are zip archives with a pickle that names raw arrays; they are read here without torch, and nothing in the
pickle is called but tensors' makers.
"""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError
from meshcast.tables.distribution import Distribution, counted

Longs = npt.NDArray[np.int64]
_STORAGES = {
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}
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
        found = _tensors(content)
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


def sampled(path: Path, table: str, where: str) -> Distribution:
    """The distribution of a sample of indices in a file; of a batch, `table` is the table's number.

    Raises:
        InputError: The file cannot be read, or has no such table.
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
                indices = np.asarray(loaded[table] if path.suffix == ".npz" else loaded).ravel().astype(np.int64)
            else:
                indices = np.loadtxt(path, dtype=np.int64, ndmin=1).ravel()
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"no sample of indices: {error}", where=str(path), fix=FIX) from error
    if not len(indices):
        raise InputError("has no indices", where=str(path), fix=FIX)
    return counted(indices)


def _tensors(content: bytes) -> Any:
    """What a file of torch holds, its tensors as arrays."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {name.split("/", 1)[-1]: name for name in archive.namelist()}
        return _Unpickler(
            io.BytesIO(archive.read(names["data.pkl"])), lambda key: archive.read(names[f"data/{key}"])
        ).load()


def _rebuilt(storage: npt.NDArray[Any], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    """A tensor as torch describes one: `torch._utils._rebuild_tensor_v2`."""
    count = int(np.prod(size)) if size else 1
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if count else offset
    if count and not 0 <= offset <= last < len(storage):
        raise ValueError("a tensor reaches beyond its storage")
    strides = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape=tuple(size), strides=strides, writeable=False)


class _Storage:
    """The name of a kind of storage."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Unpickler(pickle.Unpickler):
    """Reads tensors and the containers around them; whatever else a pickle asks for is refused."""

    def __init__(self, file: io.BytesIO, stored: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self.stored = stored

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        if module == "torch" and name in _STORAGES:
            return _Storage(name)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", kind, key, where it was, elements)."""
        _, kind, key, _, _ = pid
        return np.frombuffer(self.stored(str(key)), dtype=_STORAGES[kind.name])
