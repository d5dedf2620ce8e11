"""Asynchronous tensor parallelism: products cut into parts that run beside the exchange of what they need or make.

An all-gather of `n` shards before a product becomes `n - 1` permutations around a ring: the part of the product on a shard
runs while the next one arrives. A reduce-scatter behind a product likewise: the parts of the sums go around the ring, each
picking up a device's part of the product. After Wang et al., "Overlap Communication with Dependent Computation via
Decomposition in Large Deep Learning Models" (2023); XLA's windowed einsum, PyTorch's asynchronous tensor parallelism.

    t = part + (n - 1) max(part, permutation)        instead of   n part + gather

Cut are plain products of two matrices whose gathered (scattered) side divides by `n`; the gathered operand's own rows are
taken to be what the shards are of, and the result's rows to be what is scattered. Copies of the gathered operand in the other
order, which a later product of one-byte values wants, are made when all shards have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, BranchStep, Kernel, KernelKind, LoopStep, Recency, Schedule, Step
from meshcast.lower.overlap.prefetch import tail_steps
from meshcast.lower.schedule.step_dependencies import closure, dependencies
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Collective, Gemm


def with_partial_products(schedule: Schedule, values: ValueTypes, parameters: Set[int]) -> Schedule:
    """The schedule with exchanges of activations taken apart, wherever products are all that they serve.

    Weights are gathered and gradients scattered too; hiding these is for `lower.overlap.prefetch`. Gathered weights depend on
    nothing but parameters, or on what a loop leaves as it is. Gradients are what a loop only stores (`tail_steps`, or arrays of
    each layer's own that nothing in it reads), or what only meets parameters.

    Args:
        schedule: The program's.
        values: All values.
        parameters: Those that are the model's weights and the optimizer's state.
    """
    return _cut(schedule, values, parameters, frozenset())


def _cut(schedule: Schedule, values: ValueTypes, steady: Set[int], stores: Set[int]) -> Schedule:
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            pairs = zip(step.body.inputs, step.body.outputs, strict=True)
            kept = {i for i, o in pairs if i == o or values.tensors[i].bytes <= SCALAR_BYTES}
            steps.append(replace(step, body=_cut(step.body, values, kept, tail_steps(step.body))))
        elif isinstance(step, BranchStep):
            bodies = tuple(_cut(body, values, frozenset(), frozenset()) for body in step.bodies)
            steps.append(replace(step, bodies=bodies))
        else:
            steps.append(step)
    block = replace(schedule, steps=tuple(steps))
    return replace(block, steps=_Block(block, values, steady, stores).cut())


class _Block:
    def __init__(self, block: Schedule, values: ValueTypes, steady: Set[int], stores: Set[int]) -> None:
        steps = block.steps
        moving = set(block.inputs) - steady
        before = dependencies(steps)
        self._after: list[set[int]] = [set() for _ in steps]
        self._activation: list[bool] = []  # whether a step depends on anything that is no weight
        for index, waits in enumerate(before):
            self._activation.append(
                not moving.isdisjoint(steps[index].reads) or any(self._activation[earlier] for earlier in waits)
            )
            for earlier in waits:
                self._after[earlier].add(index)
        self._steady = steady
        self._stores = stores
        self._steps = steps
        self._values = values
        self._readers: dict[int, list[int]] = {}
        self._writer: dict[int, int] = {}
        for index, step in enumerate(steps):
            for value in set(step.reads):
                self._readers.setdefault(value, []).append(index)
            for value in step.writes:
                self._writer[value] = index
        self._outputs = set(block.outputs)

    def cut(self) -> tuple[Step, ...]:
        shards: dict[int, list[int]] = {}  # a gathered value -> its shards, in the order they arrive
        gone: set[int] = set()  # products that a reduce-scatter takes apart in its own place
        for index, step in enumerate(self._steps):
            product = self._scattered(index)
            if product is not None:
                gone.add(product)
            elif isinstance(step, Kernel) and self._gathered(index, step):
                shards[step.writes[0]] = []
        made: list[Step] = []
        for index, step in enumerate(self._steps):
            if not isinstance(step, Kernel):
                made.append(step)
            elif (product := self._scattered(index)) is not None:
                whole = self._steps[product]
                assert isinstance(whole, Kernel)
                made += self._summed_parts(whole, step)
            elif step.collective is not None and step.writes and step.writes[0] in shards:
                shards[step.writes[0]] = self._rotate(step, made)
            elif index not in gone:
                source = next((value for value in step.reads if value in shards), None)
                made += [step] if source is None else self._served(step, source, shards[source])
        return tuple(made)

    def _gathered(self, index: int, step: Kernel) -> bool:
        """Whether an all-gather serves nothing but products that can be cut, none of them cut already."""
        collective = step.collective
        if collective is None or collective.kind != "all_gather" or len(step.reads) != 1 or len(step.writes) != 1:
            return False
        if not self._activation[index]:
            return False
        value, parts = step.writes[0], collective.group.size
        readers = [self._steps[reader] for reader in self._readers.get(value, ())]
        products = [r for r in readers if not (isinstance(r, Kernel) and _is_copy(r))]
        return (
            bool(products)
            and value not in self._outputs
            and all(_cuttable(r, r.reads.index(value), parts) for r in products if isinstance(r, Kernel))
            and all(isinstance(r, Kernel) and not self._before_scatter(r) for r in products)
            and not any(self._is_gathered(v) for r in products for v in r.reads if v != value)
        )

    def _is_gathered(self, value: int) -> bool:
        """Whether a value is an exchange's of activations: one product is cut for one exchange, gathered weights are whole."""
        index = self._writer.get(value)
        if index is None or not self._activation[index]:
            return False
        writer = self._steps[index]
        return isinstance(writer, Kernel) and writer.collective is not None

    def _before_scatter(self, product: Step) -> bool:
        return any(self._scattered(reader) is not None for v in product.writes for reader in self._readers.get(v, ()))

    def _scattered(self, number: int) -> int | None:
        """The product that a reduce-scatter alone reads, where it can be cut."""
        step = self._steps[number]
        collective = step.collective if isinstance(step, Kernel) else None
        if (
            collective is None
            or number in self._stores
            or self._is_gradient(number)
            or collective.kind != "reduce_scatter"
            or len(step.reads) != 1
            or len(step.writes) != 1
        ):
            return None
        if not self._readers.get(step.writes[0]) and step.writes[0] not in self._outputs:
            return None  # an array of one layer's own: its gradient
        value = step.reads[0]
        index = self._writer.get(value)
        if index is None or value in self._outputs or len(self._readers[value]) != 1:
            return None
        product = self._steps[index]
        return index if isinstance(product, Kernel) and _cuttable(product, 0, collective.group.size) else None

    def _is_gradient(self, index: int) -> bool:
        """Whether what comes of a step meets parameters and no product: an optimizer's update."""
        followers = [self._steps[each] for each in closure([index], self._after) if each != index]
        products = any(not isinstance(step, Kernel) or step.kind is KernelKind.GEMM for step in followers)
        return not products and any(not self._steady.isdisjoint(step.reads) for step in followers)

    def _rotate(self, gather: Kernel, made: list[Step]) -> list[int]:
        """The permutations that bring all shards around, the device's own first."""
        collective = gather.collective
        assert collective is not None
        shard = self._values.tensors[gather.reads[0]]
        arrived = [gather.reads[0]]
        for _ in range(collective.group.size - 1):
            arrived.append(self._values.new(shard.shape, shard.dtype))
            made.append(_permutation(gather, collective.input_bytes, (arrived[-2],), arrived[-1]))
        return arrived

    def _served(self, step: Kernel, source: int, shards: Sequence[int]) -> list[Step]:
        """What reads a gathered value: a product in parts, a copy of all shards as they lie behind each other."""
        if not _is_copy(step):
            return self._parts_on(step, source, shards)
        read = (step.read_bytes // len(shards),) * len(shards)
        return [replace(step, reads=tuple(shards), operand_bytes=read)]

    def _parts_on(self, product: Kernel, source: int, shards: Sequence[int]) -> list[Step]:
        """One part of a product for each shard, all into one result."""
        side = product.reads.index(source)
        whole = self._values.tensors[product.writes[0]]
        made: list[Step] = []
        before: int | None = None
        for number, shard in enumerate(shards):
            last = number == len(shards) - 1
            result = product.writes[0] if last else self._values.new(whole.shape, whole.dtype)
            reads = tuple(shard if value == source else value for value in product.reads)
            part = _part(product, side, len(shards), f"{number + 1}/{len(shards)}")
            updates = () if before is None else (before,)
            made.append(replace(part, reads=reads, writes=(result,), updates=updates))
            before = result
        return made

    def _summed_parts(self, product: Kernel, scatter: Kernel) -> list[Step]:
        """Parts of a product, and the permutations that sum them up on their way."""
        collective = scatter.collective
        assert collective is not None
        count = collective.group.size
        shard = self._values.tensors[scatter.writes[0]]
        made: list[Step] = []
        arrived: tuple[int, ...] = ()
        for number in range(count):
            own = self._values.new(shard.shape, shard.dtype)
            part = _part(product, 0, count, f"{number + 1}/{count}")
            made.append(replace(part, reads=product.reads, writes=(own,)))
            if number < count - 1:
                result = self._values.new(shard.shape, shard.dtype)
                made.append(_permutation(scatter, collective.output_bytes, (own, *arrived), result))
                arrived = (result,)
        made.append(
            Kernel(
                name="loop-fusion:add",
                kind=KernelKind.LOOP_FUSION,
                dtype=shard.dtype,
                vector_flops=float(shard.elements),
                read_bytes=2 * shard.bytes,
                written_bytes=shard.bytes,
                reads=(own, *arrived),
                operand_bytes=(shard.bytes,) * 2,
                writes=scatter.writes,
                elements=shard.elements,
                shape=shard.shape,
                ops=("stablehlo.add",),
                location=scatter.location,
            )
        )
        return made


def _is_copy(kernel: Kernel) -> bool:
    """Whether a kernel only lays one value out anew."""
    return kernel.ops == ("copy",) and len(kernel.reads) == 1


def _cuttable(kernel: Kernel, side: int, parts: int) -> bool:
    """Whether a kernel is one plain product whose rows (`side` 0) or columns (1) divide into so many parts."""
    shape = kernel.geometry
    return (
        isinstance(shape, Gemm)
        and kernel.kind is KernelKind.GEMM
        and parts > 1
        and len(set(kernel.reads)) == len(kernel.reads) == len(kernel.operand_bytes) == 2
        and len(kernel.writes) == 1
        and not kernel.updates
        and shape.batch == 1
        and (shape.m, shape.n)[side] % parts == 0
    )


def _part(product: Kernel, side: int, parts: int, label: str) -> Kernel:
    """One of the parts of a product: the other operand is read whole."""
    shape = product.geometry
    assert isinstance(shape, Gemm)
    read = tuple(size // parts if place == side else size for place, size in enumerate(product.operand_bytes))
    smaller = replace(shape, m=shape.m // parts) if side == 0 else replace(shape, n=shape.n // parts)
    return replace(
        product,
        name=f"{product.name} part {label}",
        geometry=smaller,
        matrix_flops=product.matrix_flops / parts,
        redundant_flops=product.redundant_flops / parts,
        vector_flops=product.vector_flops / parts,
        transcendentals=product.transcendentals / parts,
        operand_bytes=read,
        read_bytes=sum(read),
        written_bytes=product.written_bytes // parts,
        elements=product.elements // parts,
        shape=(smaller.m, smaller.n) if product.shape else (),
        recency=_less(product.recency, sum(read) / max(1, product.read_bytes)),
    )


def _less(recency: Recency | None, share: float) -> Recency | None:
    if recency is None:
        return None
    return replace(recency, reads=tuple((age, round(size * share)) for age, size in recency.reads))


def _permutation(origin: Kernel, size: int, reads: tuple[int, ...], result: int) -> Kernel:
    collective = origin.collective
    assert collective is not None
    return replace(
        origin,
        name="collective:collective_permute",
        geometry=Collective(
            kind="collective_permute", group=collective.group, input_bytes=size, output_bytes=size, reason="async-tp"
        ),
        reads=reads,
        operand_bytes=(size,) * len(reads),
        read_bytes=size,
        written_bytes=size,
        writes=(result,),
        ops=("stablehlo.collective_permute",),
    )
