"""Schedules by hand: kernels with given times on values 0, 1, 2, ..., and a device that keeps to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshcast.base.mesh import Group, Mesh
from meshcast.estimate import EstimatedKernels, KernelEstimate, Origin
from meshcast.lower import BranchStep, Kernel, KernelKind, LoopStep, LoweredProgram, Schedule
from meshcast.programs.program import Argument, Role
from meshcast.simulate import Simulator, Timeline
from meshcast.simulate.contention import Contention, Taken
from meshcast.simulate.scheduling import Scheduling
from meshcast.workload import Workload
from meshcast.workload.graph import Block, Collective, Tensor

KB = Tensor((1000,), "i8")


def kernel(reads: Sequence[int], writes: Sequence[int], seconds: float = 1.0, *, elementwise: bool = False) -> Kernel:
    """A kernel that takes `seconds`: read bytes stand for them."""
    kind = KernelKind.LOOP_FUSION if elementwise else KernelKind.GEMM
    return Kernel(
        name="k", kind=kind, dtype="f32", reads=tuple(reads), writes=tuple(writes), read_bytes=int(seconds * 1000),
        operand_bytes=(0,) * len(reads),
    )  # fmt: skip


def update(target: int, source: int, result: int, seconds: float = 1.0) -> Kernel:
    """An in-place update."""
    return Kernel(
        name="update", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(target, source), writes=(result,),
        updates=(target,), read_bytes=int(seconds * 1000), operand_bytes=(0, 0),
    )  # fmt: skip


def exchange(
    reads: Sequence[int], writes: Sequence[int], seconds: float = 1.0, *, over: str = "", kind: str = "all_reduce"
) -> Kernel:
    """A collective that takes `seconds`: its bytes stand for them; `over` names its group."""
    size = int(seconds * 1000)
    group = Group(dims=((2, 1),), axes=(over,) if over else ())
    geometry = Collective(kind=kind, group=group, input_bytes=size, output_bytes=size)
    return Kernel(
        name="c", kind=KernelKind.COLLECTIVE, dtype="", reads=tuple(reads), writes=tuple(writes), geometry=geometry,
        operand_bytes=(0,) * len(reads),
    )  # fmt: skip


def schedule(
    steps: Sequence[Kernel | LoopStep | BranchStep], inputs: Sequence[int] = (0,), outputs: Sequence[int] = ()
) -> Schedule:
    return Schedule(inputs=tuple(inputs), outputs=tuple(outputs), steps=tuple(steps))


def loop(body: Schedule, trips: int, reads: Sequence[int], writes: Sequence[int]) -> LoopStep:
    return LoopStep(label="loop", body=body, trips=trips, reads=tuple(reads), writes=tuple(writes))


def program(
    body: Schedule, *, sizes: Mapping[int, Tensor] | None = None, donated: Mapping[int, int | None] | None = None
) -> LoweredProgram:
    """A lowered program; `donated` maps positions of arguments to the outputs they are aliased with, or None."""
    tensors = tuple((sizes or {}).get(value, KB) for value in range(64))
    given = donated or {}
    arguments = tuple(
        Argument(name=f"a{i}", role=Role.UNKNOWN, donated=i in given, aliased_output=given.get(i))
        for i in range(len(body.inputs))
    )
    workload = Workload(
        name="hand", tensors=tensors, body=Block(inputs=body.inputs, outputs=body.outputs, ops=()), arguments=arguments,
        mesh=Mesh(), source="hand", sha256="",
    )  # fmt: skip
    return LoweredProgram(workload=workload, backend="none", schedule=body, tensors=tensors)


class Times(EstimatedKernels):
    """Each compute kernel takes its read bytes in milliseconds, over `speed`."""

    def __init__(self, speed: float = 1.0, gap: float = 0.0) -> None:
        object.__setattr__(self, "by_key", {})
        object.__setattr__(self, "warnings", ())
        object.__setattr__(self, "gap", gap)
        object.__setattr__(self, "_speed", speed)

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        time = kernel.read_bytes / 1000 / self.__dict__["_speed"]
        return KernelEstimate(
            time=time, low=time, high=time, compute_time=time, memory_time=0.0, overhead=0.0, energy=2.0,
            origin=Origin.ANALYTICAL, estimator="hand",
        )  # fmt: skip


def run(
    body: Schedule,
    *,
    compute: float = 1.0,
    network: float = 1.0,
    gap: float = 0.0,
    scheduling: Scheduling | None = None,
    shared: bool = False,
    taken: Taken | None = None,
) -> Timeline:
    """A timeline; with `shared` links all collectives share one, with `taken` they take so much of the device."""

    def communication(k: Kernel) -> float:
        assert k.collective is not None
        return k.collective.payload_bytes / 1000 / network

    contention = Takes(taken) if taken is not None else None
    links = OneLink(communication) if shared else communication
    return Simulator(program(body), scheduling, contention).run(Times(compute, gap), links)


class OneLink:
    """A network of one link that collectives under way at once share evenly."""

    def __init__(self, time: Callable[[Kernel], float]) -> None:
        self._time = time

    def seconds(self, kernel: Kernel) -> float:
        return self._time(kernel)

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        return [1 / len(active)] * len(active)


class Takes(Contention):
    """Every collective takes the same shares of a device."""

    def __init__(self, taken: Taken) -> None:
        object.__setattr__(self, "device", taken)

    def taken(self, kernel: Kernel, seconds: float) -> Taken:
        del kernel, seconds
        found: object = self.device
        assert isinstance(found, Taken)
        return found
