"""Weights cast and gradients added up layer by layer, where our programs do so for a whole stack.

Our training steps cast all weights before their layers, and add a pass's gradients to the sum behind them: both keep a copy of
the whole model in half precision. Frameworks whose layers are modules of their own have a layer's at most. FSDP casts the share
of a layer that it gathers next (Zhao 2023, section 3.2.2; `fully_shard` of PyTorch 2.5 likewise), and autograd adds each gradient
to the sum as soon as it is made. The same bytes are moved; what changes is when, and so what is alive at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from meshcast.lower.kernel import SCALAR_BYTES, BranchStep, Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.schedule.step_dependencies import on_values
from meshcast.lower.value_types import ValueTypes

_ADDING = frozenset(f"stablehlo.{name}" for name in ("convert", "add", "multiply", "reshape", "transpose"))
# Beside it: a product's scale, and the place of the only layer in its stack.
_PLACING = ("constant", "broadcast_in_dim", "subtract", "dynamic_update_slice", "reduce_precision")
_SUMMING = _ADDING | {f"stablehlo.{name}" for name in _PLACING}


def with_layerwise_weights(schedule: Schedule, values: ValueTypes, *, fused_sums: bool = False) -> Schedule:
    """The schedule, inner blocks first, without copies of a whole stack that only single layers of are needed at a time.

    Args:
        schedule: The schedule of a block without slots (`lower.frameworks.separate_layers`).
        values: Types of all values.
        fused_sums: Whether the products that make gradients add them to the sums (Megatron's fused accumulation).
    """
    within = partial(with_layerwise_weights, values=values, fused_sums=fused_sums)
    inside = tuple([with_inner_blocks(step, within) for step in schedule.steps])
    apart = _with_late_casts(replace(schedule, steps=inside), values)
    return _with_fused_sums(apart, values) if fused_sums else _with_small_sums(apart, values)


def _with_late_casts(schedule: Schedule, values: ValueTypes) -> Schedule:
    """Casts of stacks of which loops only gather slices: the slices are cast."""
    casts = {step.writes[0]: step.reads[0] for step in schedule.steps if _casts(step)}
    late = {
        value: wide
        for value, wide in casts.items()
        if value not in schedule.outputs
        and all(_only_slices(step, value, values) for step in _readers(schedule.steps, value))
    }
    steps = (_slicing(step, late, values) for step in schedule.steps if late.keys().isdisjoint(step.writes))
    return replace(schedule, steps=tuple(steps))


def _casts(step: Step) -> bool:
    return isinstance(step, Kernel) and step.ops == ("stablehlo.convert",) and len(step.reads) == len(step.writes) == 1


def _place(steps: Sequence[Step], step: Step) -> int:
    return next(place for place, each in enumerate(steps) if each is step)


def _readers(steps: Iterable[Step], value: int) -> list[Step]:
    return [step for step in steps if value in step.reads]


def _places(loop: LoopStep, value: int) -> list[int]:
    """Where a loop carries a value through unchanged."""
    return [place for place, each in enumerate(loop.carried) if each.initial == value and each.unchanged]


def _only_slices(step: Step, value: int, values: ValueTypes) -> bool:
    """Whether a step is a loop that carries a stack through and gathers the slice of a turn, nothing else."""
    if not isinstance(step, LoopStep) or step.trips < 2:
        return False
    places = _places(step, value)
    if len(places) != 1 or step.reads.count(value) != 1:
        return False
    stack = step.body.inputs[places[0]]
    sent = {read for inner in step.body.steps if isinstance(inner, Kernel) and inner.collective for read in inner.reads}
    share = values.tensors[value].bytes
    return all(
        isinstance(inner, Kernel)
        and "copy" in inner.flags
        and len(inner.writes) == 1
        and inner.writes[0] in sent
        and values.tensors[inner.writes[0]].bytes * step.trips == share
        for inner in _readers(step.body.steps, stack)
    )


def _slicing(step: Step, late: dict[int, int], values: ValueTypes) -> Step:
    """A loop that is given stacks as they are stored, and casts the slices that it takes of them."""
    if not isinstance(step, LoopStep) or late.keys().isdisjoint(step.reads):
        return step
    body, writes = step.body, list(step.writes)
    names: dict[int, int] = {}
    for value in late.keys() & set(step.reads):
        (place,) = _places(step, value)
        wide = values.tensors[late[value]]
        names[body.inputs[place]] = values.new(wide.shape, wide.dtype)
        writes[place] = values.new(wide.shape, wide.dtype)
    inner = tuple(_wider(each, names, values) for each in body.steps)
    return replace(
        step,
        body=Schedule(inputs=_named(body.inputs, names), outputs=_named(body.outputs, names), steps=inner),
        reads=_named(step.reads, late),
        writes=tuple(writes),
    )


def _wider(step: Step, names: dict[int, int], values: ValueTypes) -> Step:
    """A slice of a stack that is wider than it was: so much more is read."""
    if names.keys().isdisjoint(step.reads):
        return step
    assert isinstance(step, Kernel)
    sizes = tuple(
        size * values.tensors[names[value]].bytes // values.tensors[value].bytes if value in names else size
        for value, size in zip(step.reads, step.operand_bytes, strict=True)
    )
    renamed = on_values(step, names)
    assert isinstance(renamed, Kernel)
    return replace(renamed, operand_bytes=sizes, read_bytes=sum(sizes), ops=(*step.ops, "stablehlo.convert"))


def _with_small_sums(schedule: Schedule, values: ValueTypes) -> Schedule:
    """Stacks of gradients that are only added to a sum: of them a layer's is alive at a time."""
    small: dict[int, int] = {}
    for loop, place, _ in _summed(schedule, values):
        kind = values.tensors[loop.writes[place]]
        small[loop.writes[place]] = values.new((1, *kind.shape[1:]), kind.dtype)
    steps = (
        step
        if isinstance(step, BranchStep)
        else replace(step, reads=_named(step.reads, small), writes=_named(step.writes, small))
        for step in schedule.steps
    )
    return replace(schedule, steps=tuple(steps))


def _with_fused_sums(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with loops that have nothing left to add: they go on with the sum as it was, and give it back."""
    steps = list(schedule.steps)
    for loop, place, adding in _summed(schedule, values):
        index = next(at for at, step in enumerate(steps) if isinstance(step, LoopStep) and step.body is loop.body)
        found, stack = steps[index], loop.writes[place]
        assert isinstance(found, LoopStep)
        (total,) = (value for value in adding.reads if value != stack and _is_sum(value, adding, values))
        reads, writes = list(found.reads), list(found.writes)
        reads[place], writes[place] = total, adding.writes[0]
        steps[index] = replace(found, reads=tuple(reads), writes=tuple(writes))
        steps.remove(adding)
    return replace(schedule, steps=tuple(_with_summing_products(steps, schedule.outputs, values)))


def _with_summing_products(steps: Sequence[Step], outputs: Sequence[int], values: ValueTypes) -> list[Step]:
    """The steps of a part with one layer, which has no loop: a product whose result is only added to a sum reads the sum too."""
    writers = {value: step for step in steps for value in step.writes}
    summing: dict[int, Kernel] = {}  # by the product's result, what adds it
    for step in steps:
        found = _summand(step, writers, steps, outputs, values)
        if found is not None:
            summing[found] = step  # type: ignore[assignment]  # a kernel, see `_summand`
    made: list[Step] = []
    for step in steps:
        adding = summing.get(step.writes[0]) if isinstance(step, Kernel) and len(step.writes) == 1 else None
        if adding is not None and isinstance(step, Kernel):
            (total,) = (value for value in adding.reads if _is_sum(value, adding, values))
            size = values.tensors[total].bytes
            made.append(
                replace(
                    step,
                    reads=(*step.reads, total),
                    operand_bytes=(*step.operand_bytes, size),
                    read_bytes=step.read_bytes + size,
                    writes=adding.writes,
                    written_bytes=adding.written_bytes,
                )
            )
        elif not any(step is each for each in summing.values()):
            made.append(step)
    return made


def _summand(
    step: Step, writers: Mapping[int, Step], steps: Sequence[Step], outputs: Sequence[int], values: ValueTypes
) -> int | None:
    """The product's result that a kernel adds to a sum of the same size, where it does nothing else with anything large."""
    if not isinstance(step, Kernel) or step.kind is not KernelKind.LOOP_FUSION or len(step.writes) != 1:
        return None
    if "stablehlo.add" not in step.ops or not _SUMMING.issuperset(step.ops):
        return None
    large = [value for value in step.reads if values.tensors[value].bytes > SCALAR_BYTES]
    sums = [value for value in large if _is_sum(value, step, values)]
    products = [value for value in large if value not in sums]
    if len(large) != 2 or len(sums) != 1 or products[0] in outputs or len(_readers(steps, products[0])) != 1:
        return None
    product, before = writers.get(products[0]), writers.get(sums[0])
    if product is None or (before is not None and _place(steps, before) > _place(steps, product)):
        return None  # the sum is not there yet when the product runs
    same = values.tensors[products[0]].elements == values.tensors[sums[0]].elements
    is_product = isinstance(product, Kernel) and product.kind is KernelKind.GEMM and len(product.writes) == 1
    return products[0] if same and is_product else None


def _summed(schedule: Schedule, values: ValueTypes) -> list[tuple[LoopStep, int, Kernel]]:
    """Loops with the places of stacks that they only fill, and what adds each of these, and nothing else, to a sum."""
    found = []
    for loop in schedule.steps:
        if not isinstance(loop, LoopStep) or loop.trips < 2:
            continue
        for place, each in enumerate(loop.carried):
            stack = each.result
            if not each.unchanged or stack in schedule.outputs or _readers(loop.body.steps, each.before):
                continue
            readers, kind = _readers(schedule.steps, stack), values.tensors[stack]
            is_stack = bool(kind.shape) and kind.shape[0] == loop.trips
            if is_stack and len(readers) == 1 and (adding := _adding(readers[0], stack, values)) is not None:
                found.append((loop, place, adding))
    return found


def _adding(step: Step, stack: int, values: ValueTypes) -> Kernel | None:
    """The kernel, where it does nothing but add a stack to a sum of the same size."""
    if not isinstance(step, Kernel) or step.kind is not KernelKind.LOOP_FUSION or len(step.writes) != 1:
        return None
    sums = [value for value in step.reads if value != stack and _is_sum(value, step, values)]
    adds = "stablehlo.add" in step.ops and _ADDING.issuperset(step.ops)
    return step if adds and len(sums) == 1 else None


def _is_sum(value: int, adding: Kernel, values: ValueTypes) -> bool:
    return values.tensors[value] == values.tensors[adding.writes[0]]


def _named(found: tuple[int, ...], names: dict[int, int]) -> tuple[int, ...]:
    return tuple(names.get(value, value) for value in found)
