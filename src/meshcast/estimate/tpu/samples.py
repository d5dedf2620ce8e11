"""Products as the TPU compiler made and timed them: what the parameters of the arrays are fitted on.

A file of JSON lines, packed: a header with the compiler's version, then one object per product with its program, the device it
was compiled for, the compiler's cycles and the kernel. Kernels of a program that are equal are kept once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshcast.errors import InputError, MeshcastError
from meshcast.lower import Kernel, lower_hlo
from meshcast.profiles.kernels import kernel_from_json, kernel_to_json
from meshcast.workload import ReadOptions

SCHEMA = "meshcast.tpu-cycles/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A product of a compiled program, with the cycles that the compiler expects of it."""

    program: str
    device: str
    kernel: Kernel
    cycles: float


def products(text: str, *, program: str, device: str) -> Iterator[Sample]:
    """The different products of optimised, scheduled HLO that the compiler gave cycles."""
    lowered = lower_hlo(text, name=program, backend="xla-tpu", options=ReadOptions(approximate=True))
    seen = set()
    for kernel, _ in lowered.schedule.walk():
        if kernel.matrix_flops and kernel.cycles and kernel.cost_key not in seen:
            seen.add(kernel.cost_key)
            yield Sample(program=program, device=device, kernel=kernel, cycles=kernel.cycles)


def collect(folder: Path, device: str) -> tuple[list[Sample], list[str]]:
    """The products of every `ID.hlo[.gz]` of a folder, and what could not be read, with the reason."""
    found: list[Sample] = []
    refused: list[str] = []
    for path in sorted(folder.glob("*.hlo*")):
        name = path.name.partition(".hlo")[0]
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        try:
            found.extend(products(text.decode(), program=name, device=device))
        except MeshcastError as error:
            refused.append(f"{name}: {error.message}")
    return found, refused


def write_samples(path: Path, samples: Iterable[Sample], compiler: str) -> None:
    """Writes the file; the same samples always give the same bytes."""
    lines = [json.dumps({"schema": SCHEMA, "compiler": compiler})]
    for sample in samples:
        kernel = kernel_to_json(sample.kernel)
        for name in ("ops", "name", "location", "cycles", "shape"):  # of which the models ask nothing
            kernel.pop(name, None)
        row = {"program": sample.program, "device": sample.device, "cycles": sample.cycles, "kernel": kernel}
        lines.append(json.dumps(row, separators=(",", ":")))
    path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))


def read_samples(path: Path) -> list[Sample]:
    """What `write_samples` wrote.

    Raises:
        InputError: It cannot be read, or is something else.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        header, *rows = map(json.loads, lines)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    if header.get("schema") != SCHEMA:
        raise InputError(f"schema is {header.get('schema')!r}, not {SCHEMA!r}", where=str(path))
    return [
        Sample(
            program=row["program"], device=row["device"], cycles=row["cycles"], kernel=kernel_from_json(row["kernel"])
        )
        for row in rows
    ]
