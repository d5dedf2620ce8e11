"""A number of TPUs as the compiler wants it: a slice of a pod, by its shape in chips, and what a device is.

JAX shows a chip's two TensorCores as one device (megacore) on v4 and v5p, and as two on v3 and TPU7x. Slices are
meshes or tori of chips, two-dimensional on v3, v5e and v6e; what is larger than a pod is several slices over the
data-centre network. (Cloud TPU documentation, "TPU architecture" and the page of each generation.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.hardware import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuGeneration:
    """A TPU generation under the names that the compiler knows it by."""

    pod: tuple[int, ...]  # the largest slice, in chips
    cores: int  # TensorCores of a device
    devices_per_chip: int = 1
    chip_config: str | None = None


GENERATIONS = {
    "v3": TpuGeneration(pod=(32, 32), cores=1, devices_per_chip=2),
    "v4": TpuGeneration(pod=(16, 16, 16), cores=2, chip_config="megacore"),
    "v5e": TpuGeneration(pod=(16, 16), cores=1),
    "v5p": TpuGeneration(pod=(16, 20, 28), cores=2),
    "v6e": TpuGeneration(pod=(16, 16), cores=1),
    "tpu7x": TpuGeneration(pod=(16, 24, 24), cores=1, devices_per_chip=2),
}


def missing_facts(device: Device) -> str | None:
    """Why the compiler cannot target a device; None when it can be asked."""
    if device.kind != "tpu":
        return f"the TPU compiler does not compile for {device.name} ({device.vendor} {device.kind})"
    if device.tensor_cores is None:
        return f"the file of {device.name} has no [tensor_cores] table, which names the compiler's target"
    target = device.tensor_cores.target
    if target not in GENERATIONS:
        return f"the TPU compiler's targets are {', '.join(GENERATIONS)}, not {target!r}"
    if device.cores != GENERATIONS[target].cores:
        one = "one TensorCore" if GENERATIONS[target].cores == 1 else "both TensorCores of a chip"
        shown = "; that is tpu-v7-core" if target == "tpu7x" else ""
        return f"a program's device is {one} on {target}, and {device.name} has {device.cores}{shown}"
    return None


def topology(device: Device, devices: int) -> tuple[str, dict[str, Any]]:
    """(name, options) of the slice, or slices, with so many devices.

    Raises:
        UnsupportedError: The compiler does not know the device, or they are no whole number of chips.
    """
    why = missing_facts(device)
    if why is not None:
        raise UnsupportedError(why, where=device.name, fix="choose another TPU, or use --fidelity analytical")
    assert device.tensor_cores is not None
    target = device.tensor_cores.target
    generation = GENERATIONS[target]
    chips = max(1, devices // generation.devices_per_chip)
    if devices > 1 and devices % generation.devices_per_chip:
        raise UnsupportedError(
            f"{devices} devices are no whole number of {target} chips, which have {generation.devices_per_chip} each",
            where=device.name,
            fix=f"use {devices + 1} devices, or one",
        )
    slices, shape = _slices(chips, generation.pod)
    options: dict[str, Any] = {}
    if any(side % bound for side, bound in zip(shape, (2, 2, 1), strict=False)):
        options["chips_per_host_bounds"] = [1, 1, 1]  # not made of whole hosts of 2 x 2
    if generation.chip_config is not None:
        options["chip_config_name"] = generation.chip_config
    if slices > 1:
        options["num_slices"] = slices
    return f"{target}:{'x'.join(map(str, shape))}", options


def _slices(chips: int, pod: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """As few slices as hold so many chips, all alike, and the shape of one; single chips always do."""
    for count in range(1, chips + 1):
        shape = slice_shape(chips // count, pod) if chips % count == 0 else None
        if shape is not None:
            return count, shape
    raise AssertionError("a slice of one chip fits every pod")


def slice_shape(chips: int, pod: tuple[int, ...]) -> tuple[int, ...] | None:
    """The most cubic arrangement of so many chips within a pod, whole hosts where it can be; None where there is none."""
    found = [shape for shape in _shapes(chips, pod) if all(side <= most for side, most in zip(shape, pod, strict=True))]
    return min(found, key=lambda shape: (_broken_hosts(shape), sum(shape)), default=None)


def _shapes(chips: int, pod: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of sides, growing from the first to the last but for sides of 1."""
    divisors = [side for side in range(1, max(pod) + 1) if chips % side == 0]
    for sides in itertools.combinations_with_replacement(divisors, len(pod)):
        if math.prod(sides) == chips:
            yield (*(side for side in sides if side > 1), *(side for side in sides if side == 1))


def _broken_hosts(shape: tuple[int, ...]) -> bool:
    return any(side % 2 for side in shape[:2])
