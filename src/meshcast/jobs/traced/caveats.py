"""What a prediction from traces is to be taken with: whose durations they are, what was assumed, how far off it may be.

How far off is what `benchmarks/retiming.py` found (`bounds.py`).
"""

from __future__ import annotations

from meshcast.base import format_time, with_article
from meshcast.chakra import DEVICE_KIND, RECORDED_ON
from meshcast.hardware import Device
from meshcast.jobs.traced.bounds import FROM_TPU, bound_of
from meshcast.jobs.traced.heeded import without_effect
from meshcast.jobs.traced.home import home_of
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.timing import Timing
from meshcast.options import Options


def caveats(job: TracedRanks, timing: Timing, options: Options, device: Device, *, too_much: bool) -> tuple[str, ...]:
    """Warnings.

    Args:
        job: The job.
        timing: Its seconds.
        options: What was asked for.
        device: What it runs on.
        too_much: Whether its nodes name more than the device's memory holds.
    """
    said = list(timing.estimated.warnings)
    recorded, called = home_of(job.metadata), job.metadata.get(RECORDED_ON)
    if timing.replayed and recorded is not None and recorded != device.name:
        said.append(
            f"durations are those of the trace, of {recorded!s}: --on {device.name} does not change them, and has its memory "
            "and network"
        )
    working = [step for steps in job.steps for step in steps if step.does == "compute" and not step.waits]
    if timing.replayed and recorded is None and working:
        estimated = any(step.says_work for step in working)
        said.append(_of_no_device(device, str(called) if called else None, can_be_estimated=estimated))
    if skipped := sum(step.invalid for steps in job.steps for step in steps):
        said.append(f"nodes without a type (type 0, INVALID_NODE) are passed over, as ASTRA-sim does: {skipped}")
    if timing.replayed and not timing.modelled_s and (unheeded := ", ".join(without_effect(options))):
        said.append(f"durations are those of the trace, and {unheeded} changes none: --durations estimated heeds it")
    if too_much and timing.replayed and at_home(job, device.name):
        said.append("what the trace's nodes name does not fit at once into the memory of the device that it has run on")
    if not timing.replayed:
        said += _retimed(job, timing, device)
    if timing.guessed_dtype:
        said.append("the trace does not say in which type it computes: bf16 is assumed")
    if job.alone and job.ranks > 1:
        others = "the other one is" if job.ranks == 2 else f"the other {job.ranks - 1:,} are"
        said.append(f"the trace is of one rank: {others} taken to be like it")
    if any(peak is None for peak in job.peaks):
        said.append("the trace does not say what its nodes read and write: memory is not known")
    if any(step.seconds and not step.says_work for step in working):
        silent = sum(step.seconds or 0.0 for step in working if not step.says_work)
        said.append(
            f"nodes of {format_time(silent)} say neither operations nor bytes (num_ops, tensor_size): they take the time "
            "that was recorded, which counts as compute"
        )
    return tuple(said)


def _of_no_device(device: Device, called: str | None, *, can_be_estimated: bool) -> str:
    """That compute is the same on all devices, and what would change it."""
    said = (
        f"the trace is of {called!r}, which the catalogue has not" if called else "the trace does not name its device"
    )
    said += f": compute takes the time that was recorded, and --on {device.name} does not change it"
    if can_be_estimated:
        return f"{said}; --durations estimated works it out"
    return f"{said}; its nodes say neither operations nor bytes, from which it could be worked out"


def at_home(job: TracedRanks, device: str) -> bool:
    """Whether a trace is of a device, or does not say of which."""
    return (home_of(job.metadata) or device) == device


def _retimed(job: TracedRanks, timing: Timing, device: Device) -> list[str]:
    """How compute was worked out again, and how far that may be from a prediction of the program."""
    shaped = plain = 0.0
    for steps, seconds in zip(job.steps, timing.seconds, strict=True):
        for step, one in zip(steps, seconds, strict=True):
            if step.does == "compute" and not step.waits and step.says_work:
                shaped, plain = (shaped + one, plain) if step.kernel else (shaped, plain + one)
    kind = str(job.metadata.get(DEVICE_KIND, device.kind))
    bound = bound_of(shaped=bool(shaped), recorded=kind, device=device.kind)
    said = []
    if timing.scaled_from:
        said.append(
            f"compute takes what was recorded on {timing.scaled_from}, times what the models say that {device.name} takes of "
            f"it; the host takes as long as it took there"
        )
    elif not shaped:
        said.append(
            "compute is worked out from the operations and bytes of the trace's nodes, not from shapes: steps came out "
            f"{bound.words} a prediction of the program"
        )
    elif kind != device.kind:
        why = ", as such a trace knows nothing of a host that launches kernels" if bound == FROM_TPU else ""
        said.append(
            f"the trace's kernels were fused for {with_article(kind)}, and {with_article(device.kind)}'s compiler makes others: "
            "steps came out "
            f"{bound.words} a prediction of the program{why}"
        )
    else:
        said.append(f"the trace's kernels are timed again: steps came out {bound.words} a prediction of the program")
    if shaped and plain > 0.01 * (shaped + plain):
        said.append(
            f"{plain / (shaped + plain):.0%} of the computing time is worked out from operations and bytes alone, as nodes "
            "were changed or have no shapes"
        )
    if (lowest := min(timing.clocks)) < 1:
        said.append(
            f"the {device.tdp_watts:.0f} W power cap lowers the clock to {lowest * device.clock_hz / 1e6:.0f} of "
            f"{device.clock_hz / 1e6:.0f} MHz"
        )
    return said
