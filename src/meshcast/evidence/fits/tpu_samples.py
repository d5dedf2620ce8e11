"""Products as the TPU compiler made and timed them: what the parameters of the arrays are fitted on.

A file of JSON lines, packed: a header with the version of the compiler by device, then one object per product with its program,
the device it was compiled for, the compiler's cycles and the kernel. Kernels of a program that are equal are kept once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import LARGEST_TEXT, InputError, MeshcastError, unpacked, write_whole
from meshcast.estimate import kernel_from_json, kernel_to_json
from meshcast.lower import Kernel, lower_hlo
from meshcast.workload import ReadOptions

SCHEMA = "meshcast.tpu-cycles/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSample:
    """A product of a compiled program, with the cycles that the compiler expects of it."""

    program: str
    device: str
    kernel: Kernel
    cycles: float


def products(text: str, *, program: str, device: str) -> Iterator[ProductSample]:
    """The different products of optimised, scheduled HLO that the compiler gave cycles."""
    lowered = lower_hlo(text, name=program, backend="xla-tpu", options=ReadOptions(approximate=True))
    seen = set()
    for kernel, _ in lowered.schedule.walk():
        if kernel.matrix_flops and kernel.cycles and kernel.cost_key not in seen:
            seen.add(kernel.cost_key)
            yield ProductSample(program=program, device=device, kernel=kernel, cycles=kernel.cycles)


def collect(folder: Path, device: str) -> tuple[list[ProductSample], list[str]]:
    """The products of every `ID.hlo[.gz]` of a folder, and what could not be read, with the reason."""
    found: list[ProductSample] = []
    refused: list[str] = []
    for path in sorted(folder.glob("*.hlo*")):
        name = path.name.partition(".hlo")[0]
        try:
            text = unpacked(path.read_bytes(), where=str(path), largest=LARGEST_TEXT).decode()
            found.extend(products(text, program=name, device=device))
        except MeshcastError as error:
            refused.append(f"{name}: {error.message}")
        except UnicodeDecodeError as error:
            refused.append(f"{name}: no text: {error}")
    return found, refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTable:
    """Samples, and which compiler made them: its name and version by device."""

    samples: tuple[ProductSample, ...]
    compilers: Mapping[str, str]

    def with_device(self, device: str, samples: Iterable[ProductSample], compiler: str) -> SampleTable:
        """The table with a device's samples in place of those it had."""
        kept = (sample for sample in self.samples if sample.device != device)
        return SampleTable(samples=(*kept, *samples), compilers={**self.compilers, device: compiler})


def write_table(path: Path, table: SampleTable) -> None:
    """Writes the file; the same table always gives the same bytes."""
    lines = [json.dumps({"schema": SCHEMA, "compilers": dict(sorted(table.compilers.items()))})]
    for sample in table.samples:
        kernel = kernel_to_json(sample.kernel)
        for name in ("ops", "name", "location", "cycles", "shape"):  # of which the models ask nothing
            kernel.pop(name, None)
        row = {"program": sample.program, "device": sample.device, "cycles": sample.cycles, "kernel": kernel}
        lines.append(json.dumps(row, separators=(",", ":")))
    write_whole(path, gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))


def read_table(path: Path) -> SampleTable:
    """The samples that `write_table` wrote.

    Raises:
        InputError: It cannot be read, is something else, or does not say which compiler some of it comes from.
    """
    try:
        lines = unpacked(path.read_bytes(), where=str(path), largest=LARGEST_TEXT).decode().splitlines()
        header, *rows = map(json.loads, lines)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    schema = header.get("schema") if isinstance(header, dict) else None
    if schema != SCHEMA:
        raise InputError(f"schema is {schema!r}, not {SCHEMA!r}", where=str(path))
    compilers: dict[str, str] = header.get("compilers", {})
    if unknown := sorted({row["device"] for row in rows} - {device for device, name in compilers.items() if name}):
        raise InputError(
            f"no compiler is named for the products of {', '.join(unknown)}",
            where=str(path),
            fix="collect them again: python -m meshcast.evidence.fits.tpu TABLE --collect DIR --on DEVICE",
        )
    return SampleTable(
        samples=tuple(
            ProductSample(
                program=row["program"],
                device=row["device"],
                cycles=row["cycles"],
                kernel=kernel_from_json(row["kernel"]),
            )
            for row in rows
        ),
        compilers=compilers,
    )
