"""Devices of several kinds in one job: how fast each runs a program whose work is shared out equally.

Every rank of an SPMD program has the same kernels, so a device of another kind is one that takes another time for them:
its speed is the seconds that the kernels take on the cluster's device over those on its own, both by the same chain of
estimators. Which kernels gain more and which less is lost in that one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from meshcast.errors import UsageError
from meshcast.estimate import EstimatedKernels, estimate_kernels
from meshcast.hardware import Device, load_device

if TYPE_CHECKING:
    from meshcast.run import Run


def speeds_of_kinds(run: Run) -> Mapping[int, float]:
    """The speed of every device of another kind, by its number.

    Raises:
        UsageError: A kind's kernels are not this program's.
    """
    kinds = run.options.conditions.kinds
    own = _seconds(run, run.full_clock) if kinds else 0.0
    found = {name: own / _seconds(run, _estimated(run, load_device(name))) for name in sorted(set(kinds.values()))}
    return {device: found[name] for device, name in kinds.items()}


def _estimated(run: Run, device: Device) -> EstimatedKernels:
    if device.kind != run.device.kind or run.lowered.lowering == "compiled":
        why = f"is a {device.kind}" if device.kind != run.device.kind else f"has kernels of its own on {device.name}"
        raise UsageError(
            f"the program is lowered for {run.device.name}, and {why}", where="--slow",
            fix=f"name another {run.device.kind}, and use --lowering modelled",
        )  # fmt: skip
    return estimate_kernels(run.lowered, device, run.estimators, approximate=run.options.approximate)


def _seconds(run: Run, kernels: EstimatedKernels) -> float:
    counted = ((kernel, count) for kernel, count in run.lowered.schedule.walk() if kernel.collective is None)
    return sum(count * (kernels[kernel].time + kernels.gap) for kernel, count in counted)
