"""Host time of a step: what XLA:GPU's runtime spends issuing it, which bounds programs of many tiny kernels.

Runs are issued back to back and the device works behind the host, so a step takes the longer of the two:
`t = max(device, host)`, with

    host = run + argument * arguments + output * outputs
         + sum over kernels:  convolution for each cuDNN call, launch for each kernel launched alone,
                              graph_kernel for each kernel of a CUDA graph, graph for each graph
         + iteration for each turn of a loop,

and `again` of `launch` and `convolution` in turns behind the first, which launch what was launched just before.

A graph is written anew for the buffers of a run, which differ from run to run: that is what `graph_kernel` and a part of `graph`
are. A loop's later turns find the graph as the turn before left it, since what a loop carries stays where it lies, and only
launch it again: `relaunch` (XLA's command_buffer_thunk.cc updates a graph where an allocation has moved, and not otherwise).
On an H200, steps of games (gymnax: 32 turns of six and seven kernels) take 257 to 314 us with their call, of which 57 us are
issued outside of the loop: at most 5.5 us a turn, where writing the graph anew would have taken 10.

A loop that ends on data waits for the host before every turn: the answer of its condition is copied to the host, and the device
idles, `predicate` seconds, until what comes next is launched (`simulate.data_loops`). On an H200 the wall time of conjugate
gradients (lineax) exceeds the busy time by 15 us for each of 51 such questions, some 4 us of them the pauses of loose launches,
and that of a tree search (mctx) by 12 us for each of 184.

A product for each of a device's experts is one kernel of a schedule (a batch, or groups). Transformer Engine's `GroupedLinear`
makes a call of cuBLAS for each (`nvte_multi_tensor_gemm` goes through them), and rounds what each reads by a launch of its own:
with `each_expert` such a kernel is as many launches as it has experts, where no graph holds them, `expert_calls` times:
experts' weights are tensors of their own, and beside its products and casts Python fetches each one's rounded copy and
quantisers and saves them, backward restores them, makes an empty gradient of each and calls its hook
(`module/grouped_linear.py`). Its gate and up are one product where ours are two, so that 9 of ours stand for 6 products and 4
casts. `unfused` is how many launches a framework makes for one kernel of a schedule that is fused as by a compiler, where its
own modules are fused and what joins them is not. A layer of 16 experts a device takes 9 to 11 ms of the host, on B200 and
H100 alike, in Megatron-Bridge's published runs without graphs, one of 32 experts 23 ms.

Frameworks that run op by op have no graphs (`graphs` is False): every kernel is a launch, and every launch is `loose`. With
PyTorch the host runs ahead across steps, so that `max(device, host)` holds there too: ResNet-50 of batch 64 trains in 28.8 ms
where the device is busy for 27.5 ms and the same launches take 25 ms at batch 1 (`data/measured/h200-torch`).

XLA makes a CUDA graph of every run of at least `MIN_GRAPH` neighbouring commands; cuDNN convolutions, Fourier transforms, dense
solvers and loops end such a run (`--xla_gpu_graph_min_graph_size`, `--xla_gpu_enable_command_buffer`): on an H200 the profiler
names their launches, and those of the few kernels between two of them, in programs whose other launches are a graph's.
The costs were measured on a server with an H200, jax 0.11.2, by `benchmarks/host_overhead.py` and host profiles of small
models; what a loop's turn takes, on two others
(`data/measured/h200-host` says which). Turns of 2, 3 and 4 launches take 8.9, 9.8 and 13.6 us on a host that does nothing else,
and 9.2 us (2 launches; Newton's method) on one of another day: `iteration`, and 2.4 us a launch, half of what one takes outside
of loops. A convolution in a turn takes 16 us there, and 15 in a recurrent network of convolutions: `again` is both. A turn of 5
launches is a graph, and takes 5.3 us, which the device needs. Hosts differ: on the last one launches and convolutions outside of
loops take 2.4 and 8 to 14 us too, and convolutions in programs of public libraries of a third sitting 7 to 22 us.

What a copy on a stream beside the kernels takes (what a scan stacks, `fusion-start` in XLA's text) is not in here: a turn with
one and two launches takes 24 us, one of 5 launches, a graph, 5.6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from meshcast.base import KeptBeside, format_time
from meshcast.lower import BranchStep, Kernel, KernelKind, LoopStep, LoweredProgram, Schedule, Step
from meshcast.workload import Gemm, Transform

MIN_GRAPH = 5
# Fewer launches than this are taken for one op of a larger program, whose device time is asked for: nobody runs them
# alone, and the host's time for them would hide all of it.
WHOLE_PROGRAM_LAUNCHES = 10
# The device's pause before a kernel that is launched on its own, in launch latencies: 0.9 us on the H200, from ResNets,
# whose wall time exceeds their busy time by so much a launch.
LOOSE_GAP = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """Seconds of the host's time, the share of them that a loop's later turns take, and whether CUDA graphs save some of it.

    With `each_expert` a product for several experts is a launch for each, or `expert_calls` of them; a kernel that is
    neither a product nor an exchange is `unfused` launches.
    """

    run: float = 30e-6
    argument: float = 0.9e-6
    output: float = 1.5e-6
    launch: float = 5e-6
    convolution: float = 27e-6
    graph: float = 5e-6
    graph_kernel: float = 0.5e-6
    relaunch: float = 3.5e-6
    iteration: float = 3.7e-6
    predicate: float = 10e-6
    again: float = (
        0.5  # of a launch or convolution, in a loop's later turns; frameworks that run op by op have no such loops
    )
    graphs: bool = True
    each_expert: bool = False
    expert_calls: float = 1.0
    unfused: float = 1.0


Experts = frozenset[tuple[int, int, int]]
"""Weights of which a device has several: how many, and the two sides of each."""


def host_seconds(
    lowered: LoweredProgram,
    costs: HostCosts | None = None,
    *,
    without: Collection[str] = (),
    experts: Experts = frozenset(),
) -> float:
    """What the host needs to issue one run of a program.

    Args:
        lowered: The program.
        costs: The host's.
        without: Labels of loops that are left out.
        experts: Weights whose products are a launch for each expert.
    """
    costs = costs or HostCosts()
    issued = issued_seconds(lowered.schedule, costs, without=without, experts=experts)
    return called_seconds(lowered.schedule, costs) + issued


def called_seconds(schedule: Schedule, costs: HostCosts) -> float:
    """What the host needs for a run before it issues anything: the call, with its arguments and outputs."""
    return costs.run + costs.argument * len(schedule.inputs) + costs.output * len(schedule.outputs)


def loose_launches(
    schedule: Schedule, *, graphs: bool = True, without: Collection[str] = (), looped: bool = False
) -> int:
    """Launches of a run that no CUDA graph holds, and a loop's of whole graphs: the device waits longer for what they launch.

    A step's wall time exceeds its busy time by 1 us for every graph that a loop launches (median of 12 programs of Blackjax,
    gymnax and Optax on an H200, which launch 8 to 400; their lead taken out, `simulate.standstill`).

    Args:
        schedule: The schedule of the run.
        graphs: Whether there are any; without them every launch is one.
        without: Labels of loops that are left out.
        looped: Whether the schedule is a loop's body.
    """
    count = 0
    for neighbours in _runs(schedule.steps):
        first = neighbours[0]
        if isinstance(first, LoopStep):
            if first.label not in without:
                count += first.trips * loose_launches(first.body, graphs=graphs, without=without, looped=True)
        elif isinstance(first, BranchStep):
            bodies = (loose_launches(body, graphs=graphs, without=without, looped=looped) for body in first.bodies)
            count += max(bodies, default=0)
        elif not _is_graph(neighbours, graphs):
            count += sum(map(_loose, neighbours))
        elif looped:
            count += 1
    return count


def awaited_launches(
    schedule: Schedule, *, graphs: bool = True, without: Collection[str] = (), looped: bool = False
) -> Iterator[Sequence[Step]]:
    """The kernels of each of these launches, those of a loop once, and those of all bodies of a branch."""
    for neighbours in _runs(schedule.steps):
        first = neighbours[0]
        if isinstance(first, LoopStep):
            if first.label not in without:
                yield from awaited_launches(first.body, graphs=graphs, without=without, looped=True)
        elif isinstance(first, BranchStep):
            for body in first.bodies:
                yield from awaited_launches(body, graphs=graphs, without=without, looped=looped)
        elif not _is_graph(neighbours, graphs):
            yield from ([step] for step in neighbours for _ in range(_loose(step)))
        elif looped:
            yield neighbours


def nothing_launched(lowered: LoweredProgram, host: float) -> tuple[str, ...]:
    """What to say of a program that asks nothing of the device, with the seconds of the host that are counted."""
    if lowered.kernel_count:
        return ()
    counted = (
        f"the step is the host's call of it, {format_time(host)}" if host else "its call by the host is not counted"
    )
    return (f"the program launches nothing: its outputs are donated arguments, or have no elements; {counted}",)


def issued_seconds(
    schedule: Schedule,
    costs: HostCosts,
    *,
    without: Collection[str] = (),
    again: bool = False,
    experts: Experts = frozenset(),
) -> float:
    """What the host needs to issue a schedule, loops that are left out aside.

    Args:
        schedule: The schedule.
        costs: The host's.
        without: Labels of loops that are left out.
        again: Whether it is a turn behind the first, whose graphs are there.
        experts: Weights whose products are a launch for each expert (`HostCosts.each_expert`).
    """
    within = partial(issued_seconds, costs=costs, without=without, experts=experts)
    seconds = 0.0
    share = costs.again if again and costs.graphs else 1.0
    for neighbours in _runs(schedule.steps):
        first = neighbours[0]
        if isinstance(first, LoopStep):
            if first.label not in without:
                written = 0 if again else min(1, first.trips)  # turns that write their graphs
                # What no turn needs is not worked out: in loops in each other every such body doubled the calls.
                writing = written * within(first.body) if written else 0.0
                seconds += first.trips * costs.iteration + writing
                if first.trips > written:
                    seconds += (first.trips - written) * within(first.body, again=True)
        elif isinstance(first, BranchStep):
            bodies = (within(body, again=again) for body in first.bodies)
            seconds += costs.iteration + max(bodies, default=0.0)
        elif first.kind is KernelKind.CONVOLUTION:
            seconds += share * costs.convolution
        elif _is_graph(neighbours, costs.graphs):
            seconds += costs.relaunch if again else _graph_seconds(neighbours, costs)
        else:
            seconds += share * costs.launch * _launches(neighbours, costs, experts)
    return seconds


def _launches(steps: Sequence[Step], costs: HostCosts, experts: Experts) -> float:
    """Launches of some kernels outside of graphs: of products one an expert, of exchanges and other products one, of what joins
    them as many as the framework makes of it.
    """
    counts = [_experts(step, experts) for step in steps] if experts else [0] * len(steps)
    whole = (step for step, count in zip(steps, counts, strict=True) if not count)
    return costs.expert_calls * sum(counts) + sum(
        _loose(s) if _is_call(s) else _loose(s) * costs.unfused for s in whole
    )


def _is_call(step: Step) -> bool:
    """Whether a kernel is a library's: a product, a part of one, or an exchange."""
    return isinstance(step, Kernel) and (step.kind is KernelKind.GEMM or step.collective is not None)


def _experts(step: Step, experts: Experts) -> int:
    """Experts that a product multiplies by their weights, or makes gradients of these for; none for anything else."""
    shape = step.geometry if isinstance(step, Kernel) and step.kind is KernelKind.GEMM else None
    if not isinstance(shape, Gemm) or (count := max(shape.batch, shape.groups, shape.split)) == 1:
        return 0
    sides = {shape.m, shape.n, shape.k}
    return count if any(number == count and {rows, columns} <= sides for number, rows, columns in experts) else 0


def until_first_launch(schedule: Schedule, costs: HostCosts) -> float:
    """What the host needs, of issuing a schedule, until the device has something to do: one launch, or a whole CUDA graph."""
    neighbours = next(iter(_runs(schedule.steps)), [])
    if not neighbours:
        return 0.0
    first = neighbours[0]
    if isinstance(first, LoopStep):
        return costs.iteration + until_first_launch(first.body, costs)
    if isinstance(first, BranchStep):
        return costs.iteration + max((until_first_launch(body, costs) for body in first.bodies), default=0.0)
    if first.kind is KernelKind.CONVOLUTION:
        return costs.convolution
    return _graph_seconds(neighbours, costs) if _is_graph(neighbours, costs.graphs) else costs.launch


def _graph_seconds(neighbours: Sequence[Step], costs: HostCosts) -> float:
    return costs.graph + costs.graph_kernel * len(neighbours)


def _is_graph(neighbours: Sequence[Step], graphs: bool) -> bool:
    return graphs and len(neighbours) >= MIN_GRAPH


_RUNS: KeptBeside[list[list[Step]]] = KeptBeside(of_program=16)  # of each block


def _runs(steps: tuple[Step, ...]) -> list[list[Step]]:
    """Steps in order, those that can share a CUDA graph together."""
    return _RUNS.of(steps, None, lambda: _found_runs(steps))


def is_never_captured(kernel: Kernel) -> bool:
    """Whether no CUDA graph of XLA's holds a kernel: convolutions, Fourier transforms, calls of dense solvers."""
    return kernel.kind in (KernelKind.CONVOLUTION, KernelKind.SOLVER) or isinstance(kernel.geometry, Transform)


def _loose(step: Step) -> int:
    """Launches of a kernel that no graph holds: a Fourier transform has one for each of its dimensions."""
    shape = step.geometry if isinstance(step, Kernel) else None
    return len(shape.lengths) if isinstance(shape, Transform) else 1


def _found_runs(steps: Iterable[Step]) -> list[list[Step]]:
    runs: list[list[Step]] = []
    open_run = False
    for step in steps:
        captured = isinstance(step, Kernel) and not is_never_captured(step)
        if captured and open_run:
            runs[-1].append(step)
        else:
            runs.append([step])
        open_run = captured
    return runs
