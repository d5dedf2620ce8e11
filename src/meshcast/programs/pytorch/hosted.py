"""What the host does before each launch, as counts of `workload.HOST_WORK`; free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.programs.pytorch.launched import Launch
from meshcast.programs.pytorch.recorded import Recording

Work = tuple[int, ...]  # views, calls, modules, casts, compiled kernels, library calls, parameters, waits
_NONE: Work = (0,) * 8


def eager_host(recording: Recording, launches: Sequence[Launch]) -> list[Work]:
    """Of calls one by one: those that launch nothing are done before the next one that does."""
    first: dict[int, int] = {}
    for i, launch in enumerate(launches):
        first.setdefault(launch.op, i)
    work = [_NONE] * len(launches)
    views = modules = waits = 0
    parameters = _parameters(recording)
    for number, op in enumerate(recording.ops):
        modules, waits = modules + op.modules, waits + op.waits
        if number not in first:
            views += 1
            continue
        updated = 0
        if op.phase == "optimizer":
            updated, parameters = parameters, 0
        work[first[number]] = (views, 1, modules, int(op.cast), 0, 0, updated, waits)
        views = modules = waits = 0
    return work


def compiled_host(recording: Recording, launches: Sequence[Launch]) -> list[Work]:
    """Of a compiled step: a call from Inductor's wrapper for each of its kernels and library calls; the optimizer is eager."""
    work: list[Work] = []
    before = None
    parameters = _parameters(recording)
    for launch in launches:
        fused = launch.name.startswith("triton")
        again = launch.op == before and not fused
        updated = 0
        if eager := recording.ops[launch.op].phase == "optimizer":
            updated, parameters = parameters, 0
        work.append(
            (0, int(eager and not again), 0, 0, int(fused), int(not fused and not eager and not again), updated, 0)
        )
        before = launch.op
    return work


def _parameters(recording: Recording) -> int:
    return sum(role == "parameter" for role in recording.held.values())
