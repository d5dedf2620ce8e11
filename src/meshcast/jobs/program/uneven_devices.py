"""Devices of several kinds or speeds in one job: how fast each runs a program whose work is shared out equally.

Every rank of an SPMD program has the same kernels, so a device of another kind is one that takes another time for them:
its speed is the seconds that the kernels take on the cluster's device over those on its own, both by the same chain of
estimators. Which kernels gain more and which less is lost in that one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from meshcast.base import UsageError, with_article
from meshcast.estimate import EstimatedKernels, estimate_kernels
from meshcast.hardware import Device, load_device

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

MOST_NAMED = 4  # devices in one sentence


def speeds_of_kinds(run: Run) -> Mapping[int, float]:
    """The speed of every device of another kind, by its number.

    Raises:
        UsageError: A kind's kernels are not this program's.
    """
    kinds = run.options.network.conditions.kinds
    own = _seconds(run, run.full_clock) if kinds else 0.0
    if not own:  # nothing computes, so no kind is faster
        return dict.fromkeys(kinds, 1.0)
    found = {name: own / _seconds(run, _estimated(run, load_device(name))) for name in sorted(set(kinds.values()))}
    return {device: found[name] for device, name in kinds.items()}


def check_kinds(run: Run) -> None:
    """Refuses kinds of devices whose kernels are not this program's, without a time.

    Raises:
        UsageError: One is none, or not of the same kind.
    """
    for name in sorted(set(run.options.network.conditions.kinds.values())):
        _check_kind(run, load_device(name))


def _estimated(run: Run, device: Device) -> EstimatedKernels:
    _check_kind(run, device)
    return estimate_kernels(run.lowered, device, run.estimators).holding(run.options.estimate.data)


def _check_kind(run: Run, device: Device) -> None:
    if device.kind != run.device.kind or run.lowered.lowering == "compiled":
        why = (
            f"is {with_article(device.kind)}"
            if device.kind != run.device.kind
            else f"has kernels of its own on {device.name}"
        )
        raise UsageError(
            f"the program is lowered for {run.device.name}, and {why}", where="--slow",
            fix=f"name another {run.device.kind}, and use --lowering modelled",
        )  # fmt: skip


def _seconds(run: Run, kernels: EstimatedKernels) -> float:
    counted = ((kernel, count) for kernel, count in run.lowered.schedule.walk() if kernel.collective is None)
    return sum(count * (kernels[kernel].time + kernels.gap) for kernel, count in counted)


def speeds_without_effect(run: Run) -> tuple[str, ...]:
    """A sentence where speeds of devices change nothing about the step, with the reason."""
    given = run.setting.conditions.speed
    if not given:
        return ()
    placement = run.setting.placement
    used = set(range(run.devices) if placement is None else placement.devices)
    said = []
    full = sorted(device for device, speed in given.items() if speed == 1)
    idle = sorted(device for device, speed in given.items() if speed != 1 and device not in used)
    slow = sorted(device for device, speed in given.items() if speed != 1 and device in used)
    if full:
        said.append(f"{_speeds(given, full)}: it is what a healthy device has")
    if idle:
        said.append(f"{_speeds(given, idle)}: no rank of the job runs there")
    if slow and run.speeds is not None and run.speeds.min() > 1:
        said.append(
            f"{_speeds(given, slow)}: all devices are faster than {run.device.name}, whose step is given; name the "
            "faster device with --on"
        )
    elif slow and not run.delay:
        faster = all(given[device] > 1 for device in slow)
        why = "the others are no faster" if faster else "no rank waits for what is slower: other work takes longer"
        said.append(f"{_speeds(given, slow)}: {why}")
    elif slow and run.host >= run.timeline.duration:
        said.append(
            f"{_speeds(given, slow)}: the host needs longer to issue the step than the slowest device to run it"
        )
    return tuple(said)


def _speeds(given: Mapping[int, float], devices: Sequence[int]) -> str:
    speeds = sorted({given[device] for device in devices})
    what = f"speed {speeds[0]:g}" if len(speeds) == 1 else f"speeds {speeds[0]:g} to {speeds[-1]:g}"
    some = ", ".join(map(str, devices[:MOST_NAMED])) + (", ..." if len(devices) > MOST_NAMED else "")
    plural = "s" if len(devices) > 1 else ""
    return f"{what} of device{plural} {some} {'have' if len(speeds) > 1 else 'has'} no effect"
