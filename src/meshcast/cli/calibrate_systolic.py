"""`meshcast calibrate --systolic`: fits lines from a systolic array's cycles to latency, and prints how good they are."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path

import typer

from meshcast.base import UsageError, file_name


def fit_lines(
    table: Path, on: str | None, array: str | None, grades: list[str], output: Path | None, json: bool
) -> None:
    """Fits, writes the file, and prints the error on rows left out first."""
    from meshcast.cli.app import emit_json
    from meshcast.estimate import FittedLines
    from meshcast.evidence import fitted_lines, read_measured_products
    from meshcast.hardware import resolve

    if on is None:
        raise UsageError(
            "--systolic needs a device", where="--on", fix="name the device that was measured: --on tpu-v4"
        )
    device = resolve(on).device
    rows, columns = _sides(array)
    if array is None:
        if device.tensor_cores is None:
            raise UsageError(
                f"{device.name} has no systolic array", where="--on", fix="name a TPU, or give --array ROWSxCOLUMNS"
            )
        rows, columns = device.tensor_cores.array_rows, device.tensor_cores.array_columns
    found = fitted_lines(read_measured_products(table, device, grades), rows, columns, where=str(table))
    path = output or Path(f"{file_name(device.name)}.systolic.toml")
    error = found.left_out.mean_error
    FittedLines(device=device.name, source=table.name, products=found.lines, error=error).save(path)
    if json:
        lines = [
            {"below": below if math.isfinite(below) else None, "slope_us": line.slope, "start_us": line.start}
            for below, line in found.lines.lines
        ]
        few = found.lines.thin
        thin = None if few is None else {"below": few[0], "slope_us": few[1].slope, "start_us": few[1].start}
        qualities = {"left_out": asdict(found.left_out), "in_sample": asdict(found.in_sample)}
        emit_json(
            {
                "schema": "meshcast.calibration/1",
                "file": str(path),
                "device": device.name,
                "lines": lines,
                "thin": thin,
                **qualities,
            }
        )
        return
    for name, each in (("shapes left out", found.left_out), ("in sample", found.in_sample)):
        typer.echo(
            f"{name:16} {each.rows} products  R^2 {each.r_squared:.4f}  median error {each.median_error:.1%}  "
            f"mean error {each.mean_error:.1%}"
        )
    for below, line in found.lines.lines:
        sides = f"sides below {below:.0f}" if math.isfinite(below) else "larger ones"
        typer.echo(f"{sides:16} {line.slope:.4g} us a cycle + {line.start:.4g} us")
    if found.lines.thin is not None:
        below, line = found.lines.thin
        typer.echo(f"{f'm or n below {below}':16} {line.slope:.4g} us a word moved + {line.start:.4g} us")
    typer.echo(f"{path}: lines of {device.name} on {rows} x {columns} cells from {table.name}; use them by")
    typer.echo(
        f"  meshcast predict TARGET --on {device.name} --fidelity simulated --simulator scalesim-tpu --profile {path}"
    )


def _sides(array: str | None) -> tuple[int, int]:
    if array is None:
        return 0, 0
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", array)
    if found is None:
        raise UsageError(f"{array!r} is no array", where="--array", fix="rows x columns, such as 128x128")
    return int(found[1]), int(found[2])
