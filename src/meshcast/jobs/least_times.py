"""What a layer's turn, and what ends a model, take at least in any program that has them, told from one program that has them.

The same layer is captured into many programs: a part of a pipeline, a step whose weights are spread over `fsdp`, one that
adds its gradients up over replicas. Gathers of weights, sums of gradients and the fusions around them differ between them. What
does not differ, as long as `tp`, `cp`, `ep` and the microbatch are the same, is what is done with activations: the sides of the
layer's matrix products (with their operands one way round or the other, which takes as long), the kernels and the collectives
between two of them, and which of them need each other's results. Spreading weights and adding replicas split the batch and the
storage of weights, and none of that.

So of a turn these count:

- products, each with the least that its estimator answers for its sides (`estimate.least`);
- kernels *between* products: a product leads to them, in this turn or through what turns hand on, and they lead to
  another. What casts, cuts or gathers weights has no product before it; what adds gradients up has none behind it;
- collectives between products, as long as they take alone.

All other kernels of a turn deal with weights and their gradients, of which a device has the less the more share them, or with
activations: of those a program whose weights are shared by F devices has at least the F-th part, and all of what a forward pass
does with results of its products that it saves.

Kernels run one after the other on the one compute stream of a device. A collective waits for what leads to it and holds up
what it leads to: beside it run at the most the kernels that are neither (`LeastWork` says what that leaves exposed). A chain
of collectives is counted, the longest: they cannot run beside each other.

Of what ends the model its products count, once each: a part of a pipeline may compute some of them again that a step keeps. So do
the kernels between them, of that pass of the part that has more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.estimate import KernelFloor, estimate_each, is_product, least_answers, power_limit
from meshcast.jobs.least_work import Exchanged, LeastWork, PowerLimit, one_after_the_other
from meshcast.lower import CostKey, Kernel, KernelKind, LoopStep, Schedule, Step, swapped_sides
from meshcast.simulate import MOST_CORES
from meshcast.workload import Gemm

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

Floors = Mapping[CostKey, KernelFloor]
STREAMED = 2**31  # bytes: long enough for launches and ends not to count


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTurn:
    """What a turn of a pass takes at least.

    Attributes:
        work: Products and what is between them.
        saved: What keeps results of products that no product of the turn needs: of a forward pass activations, of a backward
            pass gradients of weights.
        cut: What deals with values that no product of the turn leads to: weights, and what a forward pass has left.
        products: Matrix FLOPs of each product of two matrices.
        shortest_s: Seconds of the shortest of them.
        others_s: Seconds of the kernels in `work` and `saved` that are no products, at the most.
        slowed: The share of its work that any product loses beside a collective, whose cores it lacks; and beside one that
            switches carry out (`simulate/contention.py`).
    """

    work: LeastWork
    saved: LeastWork
    cut: LeastWork
    products: tuple[float, ...] = ()
    shortest_s: float = 0.0
    others_s: float = 0.0
    slowed: tuple[float, float] = (0.0, 0.0)


def least_turn(run: Run, trips: int) -> LeastTurn:
    """The least of a turn of each of a run's outermost loops of so many turns, together."""
    if run.options.lowering.rewrites.any:  # which cut products into pieces, and move them between turns
        return LeastTurn(work=LeastWork(), saved=LeastWork(), cut=LeastWork())
    bodies = list(_loops(run, trips))
    floors = _floors(run, [kernel for body in bodies for kernel, _ in body.walk() if kernel.collective is None])
    blocks = [_TurnGraph.of(run, body, floors) for body in bodies]
    plain = [
        (kernel.matrix_flops, floors[kernel.cost_key].seconds)
        for body in bodies
        for kernel in body.steps
        if isinstance(kernel, Kernel)
        and is_product(kernel)
        and isinstance(kernel.geometry, Gemm)
        and kernel.geometry.batch == 1
    ]
    saved = one_after_the_other(each.aside(fed=True) for each in blocks)
    others = one_after_the_other(each.between() for each in blocks).then(saved)
    return LeastTurn(
        work=one_after_the_other(each.least() for each in blocks),
        saved=saved,
        cut=one_after_the_other(each.aside(fed=False) for each in blocks),
        products=tuple(flops for flops, _ in plain),
        shortest_s=min((seconds for _, seconds in plain), default=0.0),
        others_s=others.longest_s,
        slowed=_slowed(run, [kernel for body in bodies for kernel, _ in body.walk() if is_product(kernel)]),
    )


def _slowed(run: Run, products: Sequence[Kernel]) -> tuple[float, float]:
    """What each of some products loses at least beside a collective that takes cores from it."""
    costs = run.device.communication
    if costs is None or run.options.run.contention == "off" or not products:
        return 0.0, 0.0
    answers = [run.full_clock[kernel] for kernel in products]

    def lost(cores: float) -> float:
        left = 1.0 - min(MOST_CORES, cores / run.device.cores)
        shares = []
        for answer in answers:
            busy = max(answer.compute_time, answer.core_time)
            longer = max(busy / left, answer.memory_time) - max(busy, answer.memory_time)
            shares.append(longer / (answer.time + longer) if answer.time else 0.0)
        return min(shares)

    return lost(costs.cores), lost(costs.in_network_cores)


def least_ends(runs: Sequence[Run], trips: int) -> LeastWork:
    """The least of what is around the loops of so many turns of a part's programs: its products, once each."""
    if not runs or any(run.options.lowering.rewrites.any for run in runs):
        return LeastWork()
    most: dict[tuple[KernelKind, str, object], LeastWork] = {}
    between = LeastWork()
    for run in runs:
        here: dict[tuple[KernelKind, str, object], LeastWork] = {}
        outside = Schedule(
            inputs=(),
            outputs=(),
            steps=tuple(
                step
                for step in run.lowered.schedule.steps
                if isinstance(step, Kernel) or (isinstance(step, LoopStep) and step.trips != trips)
            ),
        )
        floors = _floors(run, [kernel for kernel, _ in outside.walk() if kernel.collective is None])
        for kernel, count in outside.walk():
            if is_product(kernel):
                sides = kernel.kind, kernel.dtype, one_way_round(kernel.geometry)
                here[sides] = here.get(sides, LeastWork()).then(_of_floor(floors[kernel.cost_key], run).times(count))
        for sides, work in here.items():
            if sides not in most or work.seconds() > most[sides].seconds():
                most[sides] = work
        joined = _TurnGraph.of(run, outside, floors).between()
        between = joined if joined.seconds() > between.seconds() else between
    return one_after_the_other([*most.values(), between])


def stream_of(run: Run) -> LeastWork:
    """What a byte takes at least that is moved to or from memory by kernels that compute next to nothing with it."""
    size = STREAMED // 2
    kernel = Kernel(
        name="stream", kind=KernelKind.LOOP_FUSION, dtype="f32", vector_flops=float(size // 4), read_bytes=size,
        written_bytes=size, operand_bytes=(size,), elements=size // 4, shape=(size // 4,), ops=("stablehlo.add",),
    )  # fmt: skip
    asked = run.options.estimate
    named = asked.simulator is not None
    own = estimate_each([kernel], run.device, run.estimators, first_named=named).holding(asked.data)
    floors = least_answers([kernel], run.device, run.estimators, own, first_named=named, values=asked.data)
    light = STREAMED / run.device.memory_bandwidth
    floor = floors.get(kernel.cost_key, KernelFloor(seconds=light))
    return LeastWork(fixed_s=max(light, floor.seconds - floor.clocked_s), fixed_j=floor.fixed_j).times(1 / STREAMED)


def limit_of(run: Run) -> PowerLimit | None:
    """What a run's device may draw; None where no model knows."""
    law = run.full_clock.law
    if law is None:
        return None
    watts, window = power_limit(law, run.device, run.options.estimate.clocks)
    return PowerLimit(watts=watts, window_s=window, power=law.frequency_power, variation=law.variation)


def one_way_round(geometry: object) -> object:
    """A product with its shorter side first: `transpose(dot(a, b)) = dot(b, a)` takes as long."""
    return swapped_sides(geometry) if isinstance(geometry, Gemm) and geometry.m > geometry.n else geometry


def _loops(run: Run, trips: int) -> Iterator[Schedule]:
    for step in run.lowered.schedule.steps:
        if isinstance(step, LoopStep) and step.trips == trips:
            yield step.body


def _floors(run: Run, kernels: Sequence[Kernel]) -> Floors:
    asked = run.options.estimate
    return least_answers(
        kernels, run.device, run.estimators, run.full_clock, first_named=asked.simulator is not None, values=asked.data
    )


def _of_floor(floor: KernelFloor, run: Run) -> LeastWork:
    """A kernel, with the gap until its stream runs the next one."""
    return LeastWork(
        fixed_s=floor.seconds - floor.clocked_s + run.full_clock.gap,
        clocked_s=floor.clocked_s,
        fixed_j=floor.fixed_j,
        clocked_j=floor.clocked_j,
    )


@dataclass(frozen=True, kw_only=True)
class _TurnGraph:
    """A loop's body as a graph: sets of steps are the bits of a number.

    Attributes:
        run: The program.
        steps: Its steps.
        before: For each of them, all those that lead to it in the same turn.
        works: Of products, loops with products and kernels, what they take at least; of others None.
        counted: Steps with a product on a way to them and one on a way from them, and products themselves.
        fed: Steps with a product on a way to them.
    """

    run: Run
    steps: tuple[Step, ...]
    before: list[int]
    works: list[LeastWork | None]
    counted: int
    fed: int

    @classmethod
    def of(cls, run: Run, block: Schedule, floors: Floors) -> _TurnGraph:
        """The graph of a body."""
        works = [_own_work(run, step, floors) for step in block.steps]
        products = _bits(
            place
            for place, (step, work) in enumerate(zip(block.steps, works, strict=True))
            if work is not None and (is_product(step) if isinstance(step, Kernel) else True)
        )
        direct = _direct(block)
        before: list[int] = []
        for waits in direct:
            found = 0
            for place in _places(waits):
                found |= 1 << place | before[place]
            before.append(found)
        fed, feeding = _fed(block, direct, products), _feeding(block, direct, products)
        return cls(run=run, steps=block.steps, before=before, works=works, counted=products | (fed & feeding), fed=fed)

    def least(self) -> LeastWork:
        """What a turn takes at least."""
        counted = [
            (place, work) for place, work in enumerate(self.works) if work is not None and self.counted >> place & 1
        ]
        computing = one_after_the_other([work for _, work in counted])
        if self.run.options.scheduling.scheduler == "ideal":  # where nothing waits for anything
            return computing.kernels
        behind = [
            _bits(later for later, waits in enumerate(self.before) if waits >> place & 1) for place in self._chain()
        ]
        groups: list[tuple[float, int]] = []  # seconds of exchanges, and what may run beside them
        computes = _bits(place for place, _ in counted)
        for place, after in zip(self._chain(), behind, strict=True):
            step = self.steps[place]
            assert isinstance(step, Kernel)
            seconds, beside = self.run.network.seconds(step), computes & ~self.before[place] & ~after
            apart = [each for each in groups if not each[1] & beside]
            for other, mask in groups:
                if mask & beside:
                    seconds, beside = seconds + other, beside | mask
            groups = [*apart, (seconds, beside)]
        works = dict(counted)
        exchanges = []
        for seconds, beside in groups:
            hiding = one_after_the_other([works[place] for place in _places(beside)])
            exchanges.append(Exchanged(seconds=seconds, fixed_s=hiding.fixed_s, clocked_s=hiding.clocked_s))
        return computing.then(LeastWork(exchanges=tuple(exchanges)))

    def between(self) -> LeastWork:
        """Kernels between products, without these."""
        found = (
            work
            for place, (step, work) in enumerate(zip(self.steps, self.works, strict=True))
            if work is not None and self.counted >> place & 1 and isinstance(step, Kernel) and not is_product(step)
        )
        return one_after_the_other(found)

    def aside(self, *, fed: bool) -> LeastWork:
        """Kernels that are not between products, of those that a product leads to or of the others."""
        found = (
            work
            for place, (step, work) in enumerate(zip(self.steps, self.works, strict=True))
            if work is not None
            and not self.counted >> place & 1
            and isinstance(step, Kernel)
            and bool(self.fed >> place & 1) == fed
        )
        return one_after_the_other(found)

    def _chain(self) -> list[int]:
        """Collectives between products of which each leads to the next, those that take longest together."""
        best: dict[int, tuple[float, int | None]] = {}
        for place, step in enumerate(self.steps):
            if isinstance(step, Kernel) and step.collective is not None and self.counted >> place & 1:
                leading = [each for each in best if self.before[place] >> each & 1]
                last = max(leading, key=lambda each: best[each][0], default=None)
                best[place] = self.run.network.seconds(step) + (best[last][0] if last is not None else 0.0), last
        chain: list[int] = []
        end = max(best, key=lambda each: best[each][0], default=None)
        while end is not None:
            chain.append(end)
            end = best[end][1]
        return chain[::-1]


def _own_work(run: Run, step: Step, floors: Floors) -> LeastWork | None:
    """Of a kernel that is no collective, or of a loop with products; of branches nothing is claimed."""
    if isinstance(step, Kernel):
        floor = floors.get(step.cost_key) if step.collective is None else None
        return _of_floor(floor, run) if floor is not None else None
    if not isinstance(step, LoopStep) or not any(is_product(kernel) for kernel, _ in step.body.walk()):
        return None
    return _TurnGraph.of(run, step.body, floors).least().times(step.trips)


def _direct(block: Schedule) -> list[int]:
    """For each step, the steps whose results it reads."""
    producer: dict[int, int] = {}
    found: list[int] = []
    for place, step in enumerate(block.steps):
        read = (*step.reads, *step.updates) if isinstance(step, Kernel) else step.reads
        found.append(_bits(producer[value] for value in read if value in producer))
        producer.update(dict.fromkeys(step.writes, place))
    return found


def _fed(block: Schedule, direct: Sequence[int], products: int) -> int:
    """Steps that a product leads to, in the same turn or through what turns hand on."""
    found, given = 0, set[int]()
    while True:
        for place, step in enumerate(block.steps):
            if direct[place] & (found | products) or not given.isdisjoint(step.reads):
                found |= 1 << place
        led = {value for place in _places(found | products) for value in block.steps[place].writes}
        handed = {
            before for before, after in zip(block.inputs, block.outputs, strict=False) if after in led or after in given
        }
        if handed <= given:
            return found
        given |= handed


def _feeding(block: Schedule, direct: Sequence[int], products: int) -> int:
    """Steps that lead to a product, in the same turn or through what turns hand on."""
    found, wanted = 0, set[int]()
    while True:
        for place in reversed(range(len(block.steps))):
            here = found | products
            if here >> place & 1 or not wanted.isdisjoint(block.steps[place].writes):
                found |= direct[place] | (1 << place if not wanted.isdisjoint(block.steps[place].writes) else 0)
        reading = {value for place in _places(found | products) for value in block.steps[place].reads}
        handed = {
            after
            for before, after in zip(block.inputs, block.outputs, strict=False)
            if before in reading or before in wanted
        }
        if handed <= wanted:
            return found
        wanted |= handed


def _bits(places: Iterator[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _places(bits: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
