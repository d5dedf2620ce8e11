"""Seconds of a trace's steps: as the trace has them, or worked out again on a device and its network.

A node says how many operations it does and how many bytes it moves, not the shape of its work; so it is estimated as a kernel
of declared cost, like a custom call. Waits take as long as they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.errors import UnsupportedError, UsageError
from meshcast.estimate import EstimatedKernels, Estimator
from meshcast.estimate.chain import estimate_each
from meshcast.hardware import Device
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.mesh import Group, Mesh
from meshcast.network.models import NetworkModel
from meshcast.options import Options
from meshcast.traced.job import TracedJob
from meshcast.traced.steps import BARRIER, Step
from meshcast.workload.graph import DTYPE_BITS, Collective
from meshcast.workload.groups import group_of_ids

DURATIONS = ("auto", "trace", "estimated")
UNKNOWN_DTYPE = "bf16"  # what products of today's models are in, where a trace does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of all steps, by class, and where they come from.

    Attributes:
        seconds: By class and step.
        estimated: Answers for compute, where it was estimated; also used to tell what bounds a kernel.
        replayed: Whether compute is as the trace has it.
        recorded_s: Seconds of all steps that the trace has itself; `modelled_s` of all others.
        guessed_dtype: Whether types of arithmetic had to be assumed.
    """

    seconds: tuple[tuple[float, ...], ...]
    estimated: EstimatedKernels
    replayed: bool
    recorded_s: float
    modelled_s: float
    guessed_dtype: bool


def chosen(durations: str, job: TracedJob, device: Device) -> bool:
    """Whether durations are the trace's own.

    Raises:
        UsageError: There is no such choice.
    """
    if durations not in DURATIONS:
        raise UsageError(
            f"no durations {durations!r}", where="--durations", fix="trace (as recorded), estimated (on --on), or auto"
        )
    if durations != "auto":
        return durations == "trace"
    said = job.metadata.get("device")
    # What says neither how long it takes nor what it does took less than the microsecond that it was rounded to.
    working = [step for steps in job.steps for step in steps if step.does == "compute" and (step.flops or step.bytes)]
    timed = all(step.seconds is not None for step in working)
    return timed and (said is None or said == device.name)


def time_steps(
    job: TracedJob, options: Options, device: Device, estimators: Sequence[Estimator], network: NetworkModel
) -> Timing:
    """The seconds of all steps.

    Raises:
        UnsupportedError: The trace does not say how long a step took, nor what it does.
    """
    replayed = chosen(options.durations, job, device)
    kernels = {
        step: kernel_of(step) for steps in job.steps for step in steps if step.does == "compute" and not step.waits
    }
    estimated = estimate_each(
        kernels.values(),
        device,
        estimators,
        approximate=options.approximate,
        first_named=options.simulator is not None,
    )
    by_class = []
    recorded = modelled = 0.0
    for number, steps in enumerate(job.steps):
        seconds = []
        for step in steps:
            if step.does in ("receive", "nothing"):
                seconds.append(0.0)
            elif step.does in ("collective", "send"):
                known = step.seconds if replayed else None
                seconds.append(_on_network(job, number, step, network) if known is None else known)
                modelled += seconds[-1] if known is None else 0.0
                recorded += known or 0.0
            elif replayed or step.waits or step.does == "host":
                seconds.append(_recorded(step, job, required=replayed and step.does == "compute"))
                recorded += seconds[-1]
            else:
                gap = estimated.gap if step.flops or step.bytes else 0.0
                seconds.append(step.repeat * (estimated[kernels[step]].time + gap))
                modelled += seconds[-1]
        by_class.append(tuple(seconds))
    return Timing(
        seconds=tuple(by_class), estimated=estimated, replayed=replayed, recorded_s=recorded, modelled_s=modelled,
        guessed_dtype=not replayed and any(step.dtype not in DTYPE_BITS for step in kernels),
    )  # fmt: skip


def _recorded(step: Step, job: TracedJob, *, required: bool) -> float:
    if step.seconds is None and required and (step.flops or step.bytes):
        raise UnsupportedError(
            f"node {step.number} {step.name!r} has no duration to replay", where=job.name,
            fix="work them out on a device: --durations estimated",
        )  # fmt: skip
    return step.seconds or 0.0


def kernel_of(step: Step) -> Kernel:
    """One launch of a compute step as a kernel of declared cost."""
    matrix = step.flops if step.matrix_flops is None else step.matrix_flops
    return Kernel(
        name=step.name, kind=KernelKind.CUSTOM, dtype=step.dtype if step.dtype in DTYPE_BITS else UNKNOWN_DTYPE,
        matrix_flops=matrix / step.repeat, vector_flops=max(0.0, step.flops - matrix) / step.repeat,
        read_bytes=step.bytes // step.repeat,
    )  # fmt: skip


def collective_of(job: TracedJob, number: int, step: Step) -> Collective:
    """The collective or message of a step, one launch of it, as a class's lowest rank has it."""
    rank, size = job.classes[number], step.size // step.repeat
    if step.does == "send":
        peer = rank + 1 if job.alone else job.peers_of[rank][step.peer]
        pair = Group(dims=((2, abs(peer - rank)),), first=min(peer, rank))
        return Collective(kind="collective_permute", group=pair, input_bytes=size, output_bytes=size)
    members = job.groups[job.groups_of[rank][int(step.group)]]
    group = group_of_ids(members, Mesh.of({"ranks": job.ranks}))
    if step.kind == BARRIER:  # as libraries make one: the smallest sum that all wait for
        return Collective(kind="all_reduce", group=group, input_bytes=1, output_bytes=1)
    after = {"all_gather": size * len(members), "reduce_scatter": size // len(members)}.get(step.kind, size)
    return Collective(kind=step.kind, group=group, input_bytes=size, output_bytes=after)


def _on_network(job: TracedJob, number: int, step: Step, network: NetworkModel) -> float:
    collective = collective_of(job, number, step)
    return step.repeat * network.seconds(collective) if collective.group.size > 1 else 0.0
