"""Energy of one inference by part, of fully quantised networks on accelerators with arrays of cells.

    python examples/low_bit/energy.py [--json]

The networks of the zoo in integers, at several widths, as `meshcast predict NAME-forward --on aimc-28nm` has them: what inputs,
cells, bit lines, converters, adders, periphery, buffer and memory spend of the energy above idle.
"""

from __future__ import annotations

import argparse
import json

from meshcast import load
from meshcast.estimate import energy_by_part
from meshcast.hardware import Device

DEVICES = ("aimc-28nm", "edge-tpu")
NETWORKS = tuple(f"fqconv-{name}{bits}" for name in ("kws", "resnet20") for bits in ("-w8a8", "-w4a4", "", "-w2a2"))


def parts(network: str, device: str) -> dict[str, float]:
    """Joules of one inference by part."""
    hardware = Device.load(device)
    total: dict[str, float] = {}
    for kernel, count in load(f"{network}-forward").on(device).lowered.schedule.walk():
        for part, joules in energy_by_part(kernel, hardware).items():
            total[part] = total.get(part, 0.0) + count * joules
    return total


def main() -> None:
    """Prints a row for each network and device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one object a row, in joules")
    given = parser.parse_args()
    for number, device in enumerate(DEVICES):
        for network in NETWORKS:
            found = parts(network, device)
            if given.json:
                print(json.dumps({"device": device, "network": network, "joules": found}))
                continue
            if not number and network == NETWORKS[0]:
                print("| device | network | uJ | " + " | ".join(found) + " |\n|---|---|---|" + "---|" * len(found))
            whole = sum(found.values())
            shares = " | ".join(f"{joules / whole:.0%}" for joules in found.values())
            print(f"| `{device}` | `{network}` | {1e6 * whole:.2f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
