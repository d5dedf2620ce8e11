"""What the host does before each launch, as counts of `base.HOST_WORK`; free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshcast.base import HOST_WORK
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.recording.calls import Recording

Work = tuple[int, ...]
_BACKWARD_GRAPH = (
    2  # entries of a graph as the forward pass has that the backward pass's takes: autograd's node and its own checks
)
_PLACES = {name: i for i, name in enumerate(HOST_WORK)}


def work_of(**counts: int) -> Work:
    """Counts by name in the order of `HOST_WORK`; what is left out at the end is not done."""
    done = {_PLACES[name]: count for name, count in counts.items() if count}
    return tuple(done.get(i, 0) for i in range(1 + max(done, default=-1)))


def eager_host(recording: Recording, launches: Sequence[Launch]) -> list[Work]:
    """Of calls one by one: those that launch nothing are done before the next one that does.

    Calls of a step that is trained make autograd's nodes in the forward pass; in the backward pass autograd's own thread calls,
    without Python, and adds each gradient to its parameter.
    """
    first: dict[int, int] = {}
    for i, launch in enumerate(launches):
        first.setdefault(launch.op, i)
    work = [work_of()] * len(launches)
    trained = any(op.phase == "backward" for op in recording.ops)
    counts: Counter[str] = Counter()
    parameters = gradients = _parameters(recording)
    for number, op in enumerate(recording.ops):
        counts["module"] += op.modules
        counts["wait"] += op.waits
        kind = "returned" if op.phase == "backward" else "call" if trained else "plain"
        if number not in first:
            counts["view" if kind == "call" else f"{kind}_view"] += 1
            continue
        counts[kind] += 1
        counts["cast"] += op.cast
        if op.phase == "backward":
            counts["accumulated"], gradients = gradients, 0
        if op.phase == "optimizer":
            counts["parameter"], parameters = parameters, 0
        work[first[number]] = work_of(**counts)
        counts.clear()
    return work


def compiled_host(recording: Recording, launches: Sequence[Launch]) -> list[Work]:
    """Of a compiled step: a call from Inductor's wrapper for each of its kernels and library calls; the optimizer is eager.

    Gradients reach their parameters when the backward graph is done, before the optimizer begins. Where the model reads a
    value (whether a layer is dropped: `if torch.rand([]) < ...` in the training of BART, Whisper and their like) Dynamo ends a
    graph, and what follows is another one with its own guards and its own node of autograd, entered forward and backward.
    """
    work: list[Work] = []
    before: int | None = None
    entered = {"optimizer"}  # the passes that have begun
    parameters = _parameters(recording)
    gradients = guards = parameters
    graphs = 1 + sum(op.waits for op in recording.ops if op.phase == "forward")
    trained = any(op.phase == "backward" for op in recording.ops)
    plans = _plans(launches)
    for launch in launches:
        phase = recording.ops[launch.op].phase
        fused = launch.name.startswith("triton")
        again = launch.op == before and not fused
        counts: Counter[str] = Counter()
        if phase not in entered:
            entered.add(phase)
            counts["graph"] = graphs * (1 if phase == "forward" else _BACKWARD_GRAPH)
            counts["tracked"] = guards if trained else 0
            counts["guarded"], guards = guards, 0
        if fused:
            counts["compiled"] = 1
        elif phase == "optimizer":
            counts["call"] = int(not again)
            counts["gradient"], gradients = gradients, 0
            counts["parameter"], parameters = parameters, 0
        elif not again:
            counts["convolution"] = plans[launch.op]
            counts["library"] = int(not plans[launch.op])
        work.append(work_of(**counts))
        before = launch.op
    return work


def _plans(launches: Sequence[Launch]) -> Counter[int]:
    """By call, the convolutions that a library runs for it: its passes, however many kernels groups of channels are."""
    return Counter(op for op, _ in {(launch.op, launch.name) for launch in launches if launch.form == "convolution"})


def _parameters(recording: Recording) -> int:
    return sum(role == "parameter" for role in recording.held.values())
