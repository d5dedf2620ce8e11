"""What every fidelity says of square products and of published training steps, cell by cell, and why where it says nothing.

Cells are kept in `published.json`: a fidelity that is not asked for again, as its compiler is not at hand, say, stays as it was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
from kept import COMPILE_LIMIT_S

from meshcast import Options, capture, compare
from meshcast.base import MeshcastError
from meshcast.evidence import Ask, Cell
from meshcast.evidence.comparison.cell import predicted_cell, refused_cell
from meshcast.evidence.validate.runs.planned import predict_fitting, row_target
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import Device
from meshcast.lower.compiled.xla_gpu.installation import found_gpu_compiler
from meshcast.lower.compiled.xla_tpu.compiler import installed_version

FIDELITIES = ("roofline", "analytical", "simulated", "profiled", "compiled")
SIDES = tuple(2**power for power in range(5, 14))
DEVICES = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "h200", "b200", "tpu-v3-core", "tpu-v4", "tpu-v6e")
NO_UNIT = "no unit for bf16: the models time the product in f16, XLA compiles it to f32 arithmetic on plain cores"
SCHEMA = "meshcast.example-cells/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One cell: what a fidelity says of a target somewhere; `reason` is empty where there is a time.

    Attributes:
        own: Whether most of the time is the fidelity's own, not another's that stood in.
        note: What keeps it from being compared with other fidelities' times of the same; mostly empty.
    """

    target: str
    on: str
    fidelity: str
    status: str
    step_time_s: float | None
    interval_s: Sequence[float] | None
    own: bool
    reason: str
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What was asked."""
        return self.target, self.on, self.fidelity


def said(cell: Cell) -> Said:
    """A comparison's cell without its prediction; a reason without the place, which the cell is."""
    reason = cell.reason if cell.error is None else str(cell.error["message"])
    return Said(
        target=cell.ask.target, on=cell.ask.on, fidelity=cell.ask.fidelity, status=cell.status, step_time_s=cell.step_time_s,
        interval_s=cell.interval_s, own=cell.own, reason=reason,
    )  # fmt: skip


def product_cells(fidelities: Sequence[str]) -> list[Said]:
    """Square bf16 products from 32 to 8192 on every device."""
    programs = []
    for side in SIDES:
        square = jax.ShapeDtypeStruct((side, side), jnp.bfloat16)
        programs.append(capture(lambda x, w: x @ w, square, square, name=f"{side}"))
    found = compare(programs, on=DEVICES, fidelities=fidelities, compile_limit=COMPILE_LIMIT_S)
    return [said(cell) for cell in found.cells]


def noted(cell: Said) -> Said:
    """A product's cell, with a note on devices without units for bf16, where fidelities time different work."""
    return replace(cell, note="" if "bf16" in Device.load(cell.on).matrix_flops else NO_UNIT)


def run_cells(rows: Sequence[RunRow], fidelities: Sequence[str]) -> Iterator[Said]:
    """Published steps, each as soon as it is known."""
    for row in rows:
        for fidelity in fidelities:
            yield said(_run_cell(row, fidelity))


def _run_cell(row: RunRow, fidelity: str) -> Cell:
    ask = Ask(target=row.id, on=place(row), fidelity=fidelity)
    options = Options(fidelity=fidelity, compile_limit=COMPILE_LIMIT_S)
    try:
        target = row_target(by_cores(row) if fidelity == "compiled" else row)
        _, prediction = predict_fitting(target, options, over_memory=True)
    except MeshcastError as error:
        return refused_cell(ask, error)
    return predicted_cell(ask, prediction, own=not prediction.feasible or prediction.fidelity == fidelity)


def place(row: RunRow) -> str:
    """Where a step ran: `4 h200`."""
    return f"{row.run.devices} {row.run.device}"


def by_cores(row: RunRow) -> RunRow:
    """A run on TPU v3 as JAX shows it and libtpu compiles it: each of a chip's two cores is a device; others as they are."""
    run = row.run
    if run.device != "tpu-v3":
        return row
    cores = replace(
        run,
        device="tpu-v3-core",
        devices=2 * run.devices,
        devices_per_host=None if run.devices_per_host is None else 2 * run.devices_per_host,
        degrees={**run.degrees, "fsdp": 2 * run.degree("fsdp")},
        mbs=None if run.mbs is None else run.mbs / 2,
    )
    return replace(row, run=cores)


def unpublished(rows: Sequence[RunRow]) -> list[RunRow]:
    """The largest language model on TPU v3, which nobody published: chips of the others there, sizes of the GPUs' rows."""
    known = {(row.run.model, row.run.device): row for row in rows}
    there, sizes = known.get(("llama3-2b", "tpu-v3")), known.get(("llama3-3b", "a100-sxm-40gb"))
    if there is None or sizes is None:
        return []
    counts = {**sizes.run.counts, "gbs": there.run.counts["gbs"]}
    run = replace(there.run, model=sizes.run.model, counts=counts)
    return [replace(there, id="not-published", run=run, step_time_s=None, grade="C", assumed="", published="")]


def kept_cells(path: Path, but: Collection[str]) -> tuple[dict[str, list[Said]], dict[str, str]]:
    """Cells of an earlier run by section, and who made them, but those of some fidelities; none where there was no such run."""
    if not path.exists():
        return {}, {}
    found = json.loads(path.read_text(encoding="utf-8"))
    cells = {
        section: [cell for cell in (Said(**line) for line in lines) if cell.fidelity not in but]
        for section, lines in found["cells"].items()
    }
    return cells, {fidelity: maker for fidelity, maker in found["made_by"].items() if fidelity not in but}


def made_by(fidelities: Collection[str]) -> dict[str, str]:
    """Packages besides this one that fidelities stand on, with their releases: compilers, and kernels that others measured."""
    tables = metadata_or_none("aiconfigurator-core")
    gpus = found_gpu_compiler()
    compilers = [None if isinstance(gpus, str) else gpus.release, installed_version()]
    known = {
        "profiled": [tables and f"aiconfigurator-core {tables}"],
        "compiled": [*compilers, f"jaxlib {metadata_or_none('jaxlib')}"],
    }
    return {fidelity: ", ".join(filter(None, known.get(fidelity, []))) for fidelity in fidelities if fidelity in known}


def metadata_or_none(package: str) -> str | None:
    """The release of a package that is installed; None where it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write_cells(path: Path, sections: Mapping[str, Sequence[Said]], makers: Mapping[str, str]) -> None:
    """All cells, one a line."""
    lines = {section: [json.dumps(asdict(cell)) for cell in cells] for section, cells in sections.items()}
    body = ",\n".join(f'  "{section}": [\n    ' + ",\n    ".join(found) + "\n  ]" for section, found in lines.items())
    text = f'{{"schema": "{SCHEMA}", "made_by": {json.dumps(makers)},\n"cells": {{\n{body}\n}}}}\n'
    path.write_text(text, encoding="utf-8")
