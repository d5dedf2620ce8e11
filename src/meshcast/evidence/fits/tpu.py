"""Calibrates what products cost: `python -m meshcast.evidence.fits.tpu [TABLE] [--write FILE]`.

The table holds products of many programs with the TPU compiler's own cycles (`samples`; `--collect DIR --on DEVICE` adds
those of a folder of compiled HLO to it). Parameters of the systolic arrays are fitted to one half of the programs (by a hash
of their names) on the devices that are told, one parameter at a time by shrinking factors, to lower the mean
`|log(predicted / compiled)|`; the other half, and devices that were not fitted, are reported. What the compiler's
cycles cannot tell (copies, vector units, fixed costs) is set by hand from published times, in `TpuParameters`.
"""

from __future__ import annotations

import argparse
import datetime
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from meshcast.base import write_whole
from meshcast.estimate import (
    TPU_COMPILER,
    TPU_SCHEMA,
    TpuAnalytical,
    TpuCalibration,
    TpuParameters,
    is_fitted,
    shipped_tpu_calibration,
)
from meshcast.evidence.fits.fitting import geomean_error, quantiles, search, to_toml
from meshcast.evidence.fits.tpu_samples import ProductSample, SampleTable, collect, read_table, write_table
from meshcast.hardware import resolve
from meshcast.lower import installed_version

TABLE = Path("data/tpu/products.jsonl.gz")
FITTED = ("array_loss", "narrow_cycles", "fused_cycles", "depthwise_cycles")
LEAST_CYCLES = 30_000  # shorter products are mostly the compiler's fixed cost, several times that of published times
DEVICES = ("tpu-v5e", "tpu-v5p", "tpu-v6e")
MOST = 1.0  # residuals beyond count as this: choices of the compiler that no model follows


INTERVALS = f"""The compiler's cycles over predicted: 5 % and 95 % quantiles.
`{TPU_COMPILER}` is of the compiler's own times: measured over predicted of published v6e products, 54 rows of
`meshcast validate ops TPU_OPS.csv --fidelity compiled --chip v6e --grade A --op matmul`; a fit keeps it as it is."""


def worth_fitting(table: SampleTable) -> list[ProductSample]:
    """The samples that say something about the arrays: what f16 costs beside them the compiler does not count.

    For a product of 4096 x 4096 x 4096 on v4 it says 645 us in f16 and 568 in bf16; SCALE-Sim-validation measured 967.
    """
    return [sample for sample in table.samples if sample.cycles >= LEAST_CYCLES and sample.kernel.dtype != "f16"]


def residual(sample: ProductSample, estimator: TpuAnalytical) -> float:
    """`log(predicted / compiled)`."""
    device = resolve(sample.device).device
    return math.log(estimator.work(sample.kernel, device).time * device.clock_hz / sample.cycles)


def loss(samples: Sequence[ProductSample], parameters: TpuParameters) -> float:
    """The mean over devices of the mean absolute residual."""
    estimator = TpuAnalytical(TpuCalibration(parameters=parameters, intervals={}))
    by_device: defaultdict[str, list[float]] = defaultdict(list)
    for sample in samples:
        by_device[sample.device].append(min(MOST, abs(residual(sample, estimator))))
    return sum(sum(found) / len(found) for found in by_device.values()) / len(by_device)


def fit(samples: Sequence[ProductSample], devices: Sequence[str], start: TpuParameters) -> TpuParameters:
    """The parameters of the arrays, from the fitted half of some devices' programs."""
    rows = [sample for sample in samples if sample.device in devices and is_fitted(sample.program)]
    return search(start, FITTED, lambda parameters: loss(rows, parameters))


def report(samples: Sequence[ProductSample], devices: Sequence[str], parameters: TpuParameters) -> list[str]:
    """A line per device: the error on the fitted half and on what was not fitted."""
    estimator = TpuAnalytical(TpuCalibration(parameters=parameters, intervals={}))
    halves: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for sample in samples:
        used = sample.device in devices and is_fitted(sample.program)
        halves[sample.device][0 if used else 1].append(residual(sample, estimator))
    return [
        f"{device:12}"
        + "".join(f"  {half} {geomean_error(r):6.1%} ({len(r)})" for half, r in (("fitted", f), ("not fitted", h)) if r)
        for device, (f, h) in sorted(halves.items())
    ]


def main() -> None:
    """Collects, fits, reports and, if asked, writes."""
    parser = argparse.ArgumentParser(prog="python -m meshcast.evidence.fits.tpu", description=__doc__)
    parser.add_argument("table", metavar="TABLE", type=Path, nargs="?", default=TABLE)
    parser.add_argument("--collect", type=Path, help="add the products of this folder's ID.hlo[.gz] to the table")
    parser.add_argument("--on", default="tpu-v6e", help="the device that they were compiled for")
    parser.add_argument("--compiler", help="what compiled them, for the table; the installed libtpu unless told")
    parser.add_argument("--device", action="append", help=f"fit on this device's products; {', '.join(DEVICES)}")
    parser.add_argument("--write", type=Path, help="where to write the parameters, e.g. .../estimate/data/tpu.toml")
    parser.add_argument("--report", action="store_true", help="only report the shipped parameters")
    given = parser.parse_args()
    if given.collect:
        compiler = given.compiler or installed_version()
        if compiler is None:
            parser.error("libtpu is not installed here: say what compiled the folder, --compiler 'libtpu VERSION'")
        table = read_table(given.table) if given.table.exists() else SampleTable(samples=(), compilers={})
        found, refused = collect(given.collect, given.on)
        write_table(given.table, table.with_device(given.on, found, compiler))
        print("\n".join([*refused, f"{len(found)} products of {given.on} by {compiler}"]))
        return
    table = read_table(given.table)
    samples = worth_fitting(table)
    devices = tuple(given.device or DEVICES)
    shipped = shipped_tpu_calibration()
    parameters = shipped.parameters if given.report else fit(samples, devices, TpuParameters())
    lines = report(samples, devices, parameters)
    print("\n".join([*(f"{name} = {getattr(parameters, name):.4g}" for name in FITTED), *lines]))
    if given.write:
        estimator = TpuAnalytical(TpuCalibration(parameters=parameters, intervals={}))
        ratios: defaultdict[str, list[float]] = defaultdict(list)
        for sample in samples:
            ratios[sample.kernel.kind.value].append(math.exp(-residual(sample, estimator)))
        compilers = ", ".join(sorted(set(table.compilers.values())))
        head = f"Fitted to cycles of {compilers} by `python -m meshcast.evidence.fits.tpu` on {datetime.date.today()}."
        text = to_toml(
            parameters,
            quantiles(ratios) | {TPU_COMPILER: shipped.intervals[TPU_COMPILER]},
            schema=TPU_SCHEMA,
            provenance="\n".join([head, *lines]),
            fitted=FITTED,
            heading=INTERVALS,
        )
        write_whole(given.write, text)


if __name__ == "__main__":
    main()
