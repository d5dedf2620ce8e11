"""What the host does before each launch, as counts of `workload.HOST_WORK`; free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshcast.programs.pytorch.launched import Launch
from meshcast.programs.pytorch.recorded import Recording

# Views, calls, modules, casts, compiled kernels, library calls, parameters, waits, convolutions, gradients, graphs.
Work = tuple[int, ...]
_NONE: Work = (0,) * 8  # what is left out at the end is not done


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
    """Of a compiled step: a call from Inductor's wrapper for each of its kernels and library calls; the optimizer is eager.

    Gradients reach their parameters when the backward graph is done, before the optimizer begins.
    """
    work: list[Work] = []
    before: int | None = None
    entered = {"optimizer"}  # the passes that have begun
    parameters = _parameters(recording)
    plans = _plans(launches)
    for launch in launches:
        phase = recording.ops[launch.op].phase
        fused = launch.name.startswith("triton")
        again = launch.op == before and not fused
        eager = phase == "optimizer"
        updated = 0
        if eager:
            updated, parameters = parameters, 0
        planned = plans[launch.op] if not again and not fused else 0
        library = not fused and not eager and not again and not planned
        graphs = int(phase not in entered)
        entered.add(phase)
        work.append((0, int(eager and not again), 0, 0, int(fused), int(library), updated, 0, planned, updated, graphs))
        before = launch.op
    return work


def _plans(launches: Sequence[Launch]) -> Counter[int]:
    """By call, the convolutions that a library runs for it."""
    return Counter(launch.op for launch in launches if launch.form == "convolution")


def _parameters(recording: Recording) -> int:
    return sum(role == "parameter" for role in recording.held.values())
