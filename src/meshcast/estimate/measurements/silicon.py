"""Tables of kernels measured on real GPUs: `aiconfigurator-core`, the extra `silicon`.

The package holds one folder per system, op family, framework and version (`h200_sxm/gemm/trtllm/1.3.0rc20`), with one
Parquet file per op. Its collectors write the same tables as CSV, which are read too. Latencies are in milliseconds and
NCCL's message sizes in elements; everything here is in seconds and bytes. Nothing of the package is imported.

How they were measured (the collectors of https://github.com/ai-dynamo/aiconfigurator, August 2026): calls are captured
into a CUDA graph; after three warm-up replays six more run between two events without a pause. A latency therefore holds
a kernel and the gap to the next one, no host time, and the clock of a run that lasts a few dozen calls: short kernels on a
cool card, long ones under the power cap. Of the three frameworks,

- `trtllm` is taken for products. Its bf16 layer is cuBLAS behind `torch.nn.functional.linear`, as it is in `vllm` and
  `sglang`; medians agree within 5 %. But `vllm` leaves its weights uninitialised, which costs less power (12 to 20 %
  faster from 10 TFLOP up), and `sglang` gives every copy its own activations. Up to five copies of the weights take turns
  so that they do not stay in L2, while the activations may: `trtllm` makes `ceil(L2 / weights)` of them, the others six.
- Its fp8 rows are a product after two kernels that quantise the activations, which are measured on their own in
  `computescale_perf` (their absolute maximum) and `scale_matrix_perf` (the conversion). `products` takes both away, and
  leaves out rows of which they are more than a quarter: small ones.
- `sglang` is taken for attention: FlashAttention 3 on Hopper and FlashInfer or TensorRT-LLM's kernels elsewhere, and the
  least around them; still some 10 us of every call are not attention but the writing of keys and values into a cache,
  page tables and schedules.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError, UnsupportedError, how_to_install, nearest

DISTRIBUTION = "aiconfigurator-core"
FOLDER = "aiconfigurator_core/systems/data"
EXTRA = "silicon"

# The catalogue's devices, and what the package calls them; in the order that pages list them in.
SYSTEMS: Mapping[str, str] = {
    "h200": "h200_sxm",
    "h100-sxm": "h100_sxm",
    "a100-sxm-80gb": "a100_sxm",
    "b200": "b200_sxm",
    "l40s": "l40s",
    "gb200": "gb200",
    "gb300": "gb300",
}

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Texts = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconTable:
    """One file as columns, text and numbers as they are written, and where it lies."""

    columns: Mapping[str, npt.NDArray[Any]]
    path: Path
    framework: str
    version: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def texts(self, name: str) -> Texts:
        """A column of texts."""
        return self._column(name).astype(np.str_)

    def integers(self, name: str, default: int | None = None) -> Integers:
        """A column of whole numbers; `default` stands in for a column that older files lack."""
        if default is not None and name not in self.columns:
            return np.full(len(self), default, dtype=np.int64)
        return self._numbers(name).astype(np.int64)

    def seconds(self) -> Floats:
        """Latencies, which files hold in milliseconds."""
        return self._numbers("latency") * 1e-3

    def _numbers(self, name: str) -> Floats:
        try:
            return self._column(name).astype(np.float64)
        except ValueError as error:
            raise InputError(f"column {name!r} is not numeric: {error}", where=str(self.path)) from error

    def _column(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            raise InputError(
                f"no column {name!r} among {', '.join(self.columns)}",
                where=str(self.path),
                fix=f"this reader was written for {DISTRIBUTION} 0.12",
            )
        return self.columns[name]


def installed() -> bool:
    """Whether the tables are there."""
    try:
        metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return False
    return True


def package_folder() -> Path:
    """The folder of all systems.

    Raises:
        UnsupportedError: the extra is not installed.
    """
    try:
        return Path(str(metadata.distribution(DISTRIBUTION).locate_file(FOLDER)))
    except metadata.PackageNotFoundError:
        raise UnsupportedError(
            f"the silicon tables are not installed: no package {DISTRIBUTION}", fix=how_to_install(EXTRA)
        ) from None


def system_folder(device: str, root: Path | None = None) -> Path:
    """The folder of a device of the catalogue.

    Args:
        device: Its name.
        root: The folder of all systems; the installed package's by default.

    Raises:
        UnsupportedError: there are no tables of this device, or none at all.
    """
    if device not in SYSTEMS:
        raise UnsupportedError(f"no silicon tables of {device!r}", fix=nearest(device, SYSTEMS))
    folder = (root or package_folder()) / SYSTEMS[device]
    if not folder.is_dir():
        raise UnsupportedError(f"no silicon tables of {device!r}: no folder {folder}", fix=how_to_install(EXTRA))
    return folder


def table(device: str, family: str, name: str, framework: str, root: Path | None = None) -> SiliconTable | None:
    """The newest version's table of one op, or None where the framework has none on this device.

    Args:
        device: A device of the catalogue.
        family: The op family, a folder: `gemm`, `attention`, `comm`, `quantize`.
        name: The file without its ending, e.g. `gemm_perf`.
        framework: `trtllm`, `vllm`, `sglang`; `nccl` for `comm`.
        root: The folder of all systems; the installed package's by default.

    Raises:
        UnsupportedError: there are no tables of this device, or none at all.
        InputError: the file cannot be read.
    """
    folder = system_folder(device, root) / family / framework
    versions = sorted((p for p in folder.glob("*") if p.is_dir()), key=lambda p: _version(p.name), reverse=True)
    for version in versions:  # one that repeats an older one's table has a note instead of the file
        for ending in (".parquet", ".csv", ".txt"):
            path = version / f"{name}{ending}"
            if path.is_file():
                return SiliconTable(columns=_read(path), path=path, framework=framework, version=version.name)
    return None


@functools.lru_cache(maxsize=32)
def _read(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def _read_parquet(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    try:
        pyarrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ImportError as error:
        raise UnsupportedError(
            f"Parquet tables need pyarrow, which {DISTRIBUTION} brings along: {error}", fix=how_to_install(EXTRA)
        ) from error
    try:
        read = parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"cannot be read as Parquet: {error}", where=str(path)) from error
    return {name: read[name].to_numpy() for name in read.column_names}


def _read_csv(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as CSV: {error}", where=str(path)) from error
    uneven = next((number for number, row in enumerate(rows, start=2) if len(row) != len(header)), None)
    if uneven is not None:
        raise InputError(f"not as many fields as the {len(header)} of the first line", where=f"{path}:{uneven}")
    columns: Sequence[Sequence[str]] = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    return {name: np.array(column, dtype=np.str_) for name, column in zip(header, columns, strict=True)}


def _version(name: str) -> tuple[tuple[int, int], ...]:
    """Sorts 0.5.14 after 0.5.6.post2, and 1.3.0 after 1.3.0rc20."""
    parts = re.findall(r"\d+|rc|dev", name)
    end = (0, 0)  # above a release candidate, below a further number
    return (*((-1, 0) if part in ("rc", "dev") else (1, int(part)) for part in parts), end)
