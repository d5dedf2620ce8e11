"""The catalogue's device behind the name that a driver has for it: `Tesla V100-SXM2-32GB` is `v100-sxm2-32gb`.

Drivers name the model, and of models that come in several forms the form and the memory: `NVIDIA A100-SXM4-40GB`,
`NVIDIA A100 80GB PCIe`, `NVIDIA H100 80GB HBM3` (which is the module; cards say PCIe), `AMD Instinct MI300X`. So a device is
found by its model first, then by whether it is a card, then by the memory that is nearest to what is said, within a tenth.
"""

from __future__ import annotations

import re

from meshcast.hardware.device import Device
from meshcast.hardware.registry import device_names, load_device

_WORDS = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"(\d+)gb")
_CARD = "pcie"
_GIGABYTE = 2**30
_NEAR = 0.1


def device_of_driver(name: str) -> Device | None:
    """The device that a driver calls so; None where the catalogue has none like it."""
    words = _WORDS.findall(name.lower())
    alike = [each for each in device_names() if _WORDS.findall(each)[0] in words]
    alike = [each for each in alike if (_CARD in words) == (_CARD in _WORDS.findall(each))]
    devices = [load_device(each) for each in sorted(alike, key=len)]  # variants of a device have longer names
    said = next((int(found[1]) for word in words if (found := _MEMORY.fullmatch(word))), None)
    if said is None:
        return devices[0] if len({device.memory_bytes for device in devices}) == 1 else None
    off = [abs(device.memory_bytes / (said * _GIGABYTE) - 1) for device in devices]
    best = min(range(len(off)), key=off.__getitem__, default=None)
    return devices[best] if best is not None and off[best] <= _NEAR else None
