"""The catalogue's device behind the name that a driver has for it: `Tesla V100-SXM2-32GB` is `v100-sxm2-32gb`.

Drivers name the model, and of models that come in several forms the form and the memory: `NVIDIA A100-SXM4-40GB`,
`NVIDIA A100 80GB PCIe`, `NVIDIA H100 80GB HBM3` (which is the module; cards say PCIe), `AMD Instinct MI300X`. So a device is
found by its model first, then by whether it is a card, a bridged pair or a module of another generation, then by the memory
nearest to what is said, within a tenth. Names that are known as they are need no rule.
"""

from __future__ import annotations

import re

from meshcast.hardware.device import Device
from meshcast.hardware.registry import device_names, load_device

_WORDS = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"(\d+)gb")
_FORMS = {"pcie", "nvl"}  # that drivers name; modules (SXM) are what is left
# Words of the catalogue that say memory, power, form or a part.
_NO_MODEL = re.compile(r"\d+gb|\d+w|pcie|nvl|sxm\d?|core")
_MODULE = re.compile(r"sxm\d")
# Words behind a model's name that make another one of it, or a part of it: `RTX 3090 Ti`, `A100-SXM4-40GB MIG 1g.5gb`.
_OTHER = {"ti", "super", "d", "laptop", "mobile", "max", "mig", "dgxs"}
_GIGABYTE = 2**30
_NEAR = 0.1
# Names that say less, or something else, than the rule reads: TPUs', in JAX's `device_kind`, and the commonest GPUs'.
DRIVER_NAMES = {
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA GH200 480GB": "gh200",  # the CPU's memory
    "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "NVIDIA L40S": "l40s",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI250X": "mi250x",
    "TPU v3": "tpu-v3",
    "TPU v4": "tpu-v4",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5e": "tpu-v5e",
    "TPU v5": "tpu-v5p",
    "TPU v5p": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
    "TPU v6e": "tpu-v6e",
    "TPU7x": "tpu-v7-core",
}


def device_of_driver(name: str) -> Device | None:
    """The device that a driver calls so; None where the catalogue has none like it."""
    if (known := DRIVER_NAMES.get(name)) is not None:
        return load_device(known)
    words = _WORDS.findall(name.lower())
    alike = [each for each in device_names() if _is_model(_WORDS.findall(each), words)]
    devices = [load_device(each) for each in sorted(alike, key=len)]  # variants of a device have longer names
    said = next((int(found[1]) for word in words if (found := _MEMORY.fullmatch(word))), None)
    if said is None:
        return devices[0] if len({device.memory_bytes for device in devices}) == 1 else None
    off = [abs(device.memory_bytes / (said * _GIGABYTE) - 1) for device in devices]
    best = min(range(len(off)), key=off.__getitem__, default=None)
    return devices[best] if best is not None and off[best] <= _NEAR else None


def _is_model(device: list[str], driver: list[str]) -> bool:
    """Whether the words of a device name the model and the form that a driver's words do."""
    model = {word for word in device if not _NO_MODEL.fullmatch(word)}
    ours, theirs = ({word for word in words if _MODULE.fullmatch(word)} for words in (device, driver))
    return (
        model <= set(driver)
        and _OTHER.intersection(driver) <= model
        and _FORMS.intersection(device) == _FORMS.intersection(driver)
        and (not ours or not theirs or ours == theirs)  # of A100s the catalogue says no more than sxm
    )
