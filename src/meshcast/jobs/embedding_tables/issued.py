"""A recommender's step on one GPU as eager PyTorch issues it: every launch with its seconds and what the host does before it.

The dense part's launches are those of `dense_calls`, timed as any program's kernels; tables' own launches stand between them.
Host and device go side by side (`simulate/issued_calls.py`), so that a step is as long as the slower of both, launch by launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from meshcast.jobs import launch_seconds
from meshcast.jobs.embedding_tables.dense_calls import written_layers, written_step
from meshcast.programs import eager_kernels, eager_program
from meshcast.simulate import CallCosts, issued_step
from meshcast.zoo import DenseLayers

# Between two launches of a queue that PyTorch fills, in launch latencies beside the pause that any launch outside of a graph has:
# steps with the host ahead take 1.15 us a launch longer than their kernels on an H200 (`profile.jsonl.gz` and `host.jsonl.gz` of
# data/measured/h200-embeddings, the half that may be looked at), of which 0.5 us are that pause.
EAGER_GAP = 0.55

Work = tuple[int, ...]  # counts of `base.HOST_WORK`


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A launch: the part of the step that it belongs to, the device's seconds, the host's work before it, and its name."""

    part: str
    seconds: float
    work: Work = (0,) * 8
    name: str = "tables"


def work(
    *, views: int = 0, calls: int = 0, modules: int = 0, compiled: int = 0, library: int = 0, parameters: int = 0,
    waits: int = 0,
) -> Work:  # fmt: skip
    """Counts of what the host does before a launch."""
    return (views, calls, modules, 0, compiled, library, parameters, waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerDense:
    """The launches of a dense part, in order; the bytes that it holds at its worst moment, and what it computes and moves.

    `profiled`: its times come from measured kernels.
    """

    launches: tuple[Issued, ...]
    memory_bytes: float
    flops: float = 0.0
    hbm_bytes: float = 0.0
    profiled: bool = False

    def seconds(self, part: str) -> float:
        """The device's seconds of one part."""
        return sum(each.seconds for each in self.launches if each.part == part)

    def with_tables(self, tables: Sequence[Issued]) -> list[Issued]:
        """All launches of a step: those of tables before the dense part's own of the same part, as both are ordered."""
        found: list[Issued] = []
        own = {part: list(each) for part, each in groupby(self.launches, key=lambda launch: launch.part)}
        for part in PARTS:
            found += [each for each in tables if each.part == part and part in BEFORE]
            found += own.get(part, [])
            found += [each for each in tables if each.part == part and part not in BEFORE]
        return found


PARTS = ("input", "look_up", "bottom", "above", "loss", "backward", "bottom_backward", "update", "optimizer")
BEFORE = ("look_up",)  # parts that tables begin


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerStep:
    """A step among steps back to back; the device's seconds of all launches, and the host's."""

    step_s: float
    device_s: float
    host_s: float


def eager_dense(
    layers: DenseLayers, on: str, batch: int, precision: str, *, stacked: bool = False, lists: bool = True
) -> EagerDense:
    """The dense part's launches on a device with `batch` samples; see `written_step` for the rest."""
    written = written_step(layers, batch, precision, stacked=stacked, lists=lists)
    kernels = eager_kernels(written.recording)
    run = eager_program(written.recording).on(on, stack="pytorch-eager")
    step = run.lowered.workload.step
    assert step is not None
    found = zip(kernels, launch_seconds(run, step), step.host, strict=True)
    gap = EAGER_GAP * run.device.launch_latency_s
    launches = tuple(
        Issued(part=written.part_of(kernel.op), seconds=seconds + gap, work=each, name=kernel.name)
        for kernel, seconds, each in found
    )
    moved = sum(count * (each.read_bytes + each.written_bytes) for each, count in run.lowered.schedule.walk())
    return EagerDense(
        launches=launches, memory_bytes=float(run.memory.peak), flops=run.lowered.workload.totals.flops, hbm_bytes=moved,
        profiled=run.fidelity == "profiled",
    )  # fmt: skip


def layers_host_s(widths: Sequence[int], batch: int, on: str, costs: CallCosts) -> float:
    """Seconds of a host with such costs for a training step of dense layers alone."""
    step = eager_program(written_layers(widths, batch)).on(on, stack="pytorch-eager").lowered.workload.step
    assert step is not None
    return issued_step([0.0] * len(step.host), step.host, costs)


def eager_step(launches: Sequence[Issued], costs: CallCosts) -> EagerStep:
    """The step of all launches, in order, on a host with such costs."""
    seconds, works = [each.seconds for each in launches], [each.work for each in launches]
    nothing = [0.0] * len(launches)
    return EagerStep(
        step_s=issued_step(seconds, works, costs), device_s=sum(seconds), host_s=issued_step(nothing, works, costs)
    )
