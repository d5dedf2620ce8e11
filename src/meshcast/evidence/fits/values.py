"""What values do to power: `python -m meshcast.evidence.fits.values data/measured/h200-power [--on h200]`.

Reads what `benchmarks/data_power.py` measured: kernels on random numbers, zeros and half zeros, each with time, power and clock.
Above idle a run takes `E = (watts - idle) t` joules, of which products' follow the clock as `E(s) = dynamic s^k`
(`estimate/power.py`) and streams' do not. The shares of random numbers' energy that other values leave are then, as geometric
means over kernels,

    dynamic: (E_values / s_values^k) / (E_random / s_random^k) of products,    static: E_values / E_random of streams.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from meshcast.estimate import Values, ValueShares, idle_watts, shipped_gpu_calibration
from meshcast.hardware import Device, resolve

PRODUCT = "product"  # the first word of a kernel that multiplies matrices; all others stream


def value_shares(
    rows: Iterable[Mapping[str, Any]], device: Device, frequency_power: float
) -> dict[Values, ValueShares]:
    """The shares by kind of values that was measured, those of random numbers left out.

    Args:
        rows: `kernel`, `data`, `us`, `watts` and `clock_mhz` of each measurement.
        device: What they were measured on.
        frequency_power: k above.
    """
    energy: dict[tuple[str, str], float] = {}
    for row in rows:
        joules = (row["watts"] - idle_watts(device)) * row["us"] * 1e-6
        streams = not row["kernel"].startswith(PRODUCT)
        clock = 1.0 if streams else (row["clock_mhz"] * 1e6 / device.clock_hz) ** frequency_power
        energy[row["kernel"], row["data"].replace("_", "-")] = joules / clock
    kernels = sorted({kernel for kernel, _ in energy})

    def share(values: Values, *, streams: bool) -> float:
        asked = [kernel for kernel in kernels if kernel.startswith(PRODUCT) != streams]
        return math.exp(statistics.mean(math.log(energy[k, values] / energy[k, "random"]) for k in asked))

    measured = {data for _, data in energy}
    others = [values for values in get_args(Values) if values != "random" and values in measured]
    return {v: ValueShares(dynamic=share(v, streams=False), static=share(v, streams=True)) for v in others}


def main() -> None:
    """Prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", default="h200")
    asked = parser.parse_args()
    rows = map(json.loads, (asked.folder / "measurements.jsonl").read_text().splitlines())
    power = shipped_gpu_calibration().parameters.frequency_power
    for values, shares in value_shares(rows, resolve(asked.on).device, power).items():
        print(f"{values}: dynamic {shares.dynamic:.2f}, static {shares.static:.2f}")


if __name__ == "__main__":
    main()
