"""Loops shifted so that communication of neighbouring turns runs beside this turn's compute (software pipelining).

Turn i of a loop is H_i M_i T_i: a head H of all-gathers and what they need, which read nothing but values that stay the
same from turn to turn and the loop's counter (weights of a layer, gathered as in FSDP); the main part M; and a tail T of
reductions and what reads them, which no main part reads (gradients, reduced and stored). Of `n` turns becomes

    H_0, [M_0 H_1], ..., [M_i H_(i+1) T_(i-1)], ..., [M_(n-1) T_(n-2)], T_(n-1)

In brackets nothing waits for another part, so a steady turn takes the longest of its streams. What H and T exchange with M
is carried by the loop and takes a second buffer. After Lam, "Software pipelining" (1988); FSDP's prefetching after Zhao
et al., "PyTorch FSDP" (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.lower.schedule.step_dependencies import closure, dependencies, on_values
from meshcast.lower.value_types import ValueTypes

REDUCTIONS = ("all_reduce", "reduce_scatter")


def with_prefetching(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with its loops shifted, the inner ones first."""

    def shifted(loop: LoopStep) -> Iterator[Step]:
        for step in shift_heads(loop, values):
            yield from shift_tails(step, values) if isinstance(step, LoopStep) else (step,)

    return _with_loops(schedule, shifted)


def with_late_reductions(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with the tails of its loops shifted alone, those too whose results no array of the loop holds.

    PyTorch's DistributedDataParallel reduces a layer's bucket beside the backward pass of the layers before it (Li 2020, section
    3.2.3); where layers are arrays of their own (`lower.frameworks.separate_layers`) a reduction's result is read by the
    optimizer alone.
    """
    return _with_loops(schedule, lambda loop: shift_tails(loop, values, stored=False))


def _with_loops(schedule: Schedule, shifted: Callable[[LoopStep], Iterable[Step]]) -> Schedule:
    """The schedule with what each loop becomes in its place, the inner ones first; those in branches, too."""
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            steps += shifted(replace(step, body=_with_loops(step.body, shifted)))
        elif isinstance(step, BranchStep):
            steps.append(replace(step, bodies=tuple([_with_loops(body, shifted) for body in step.bodies])))
        else:
            steps.append(step)
    return replace(schedule, steps=tuple(steps))


def shift_heads(loop: LoopStep, values: ValueTypes) -> list[Step]:
    """H_0, then n - 1 turns of [H_(i+1) M_i], then M_(n-1); the loop alone where it has no head."""
    body = loop.body
    head, turning = _head(body, values)
    if not head or loop.trips < 2 or not _plain(body):
        return [loop]
    first = [step for index, step in enumerate(body.steps) if index in head]
    turn = [
        step for index, step in enumerate(body.steps) if index in turning
    ]  # also where the head has them: both need it
    rest = [step for index, step in enumerate(body.steps) if index not in head and index not in turning]
    main = [*turn, *rest]
    ahead_only = _written(first) - _written(main)
    if not ahead_only.isdisjoint(body.outputs):
        return [loop]
    carried = sorted(ahead_only & _read(main))
    same = {value.before for value in loop.carried if value.unchanged}
    initial = dict(zip(body.inputs, loop.reads, strict=False))
    # H_0 reads what the loop starts with; H_(i+1) the counter that turn i leaves.
    before = _fresh(_written(first), values)
    ahead = _fresh(_written(first), values)
    counted = {value.before: value.after for value in loop.carried if not value.unchanged}
    middle = _fresh(set(loop.writes), values)
    shifted = replace(
        loop,
        body=Schedule(
            inputs=(*body.inputs, *carried),
            outputs=(*body.outputs, *(ahead[value] for value in carried)),
            steps=(*turn, *(on_values(step, ahead | counted) for step in first), *rest),
        ),
        trips=loop.trips - 1,
        reads=(
            *loop.reads[: len(loop.writes)],
            *(before[value] for value in carried),
            *loop.reads[len(loop.writes) :],
        ),
        writes=(
            *(w if i in same else middle[w] for w, i in zip(loop.writes, body.inputs, strict=True)),
            *_fresh_list(carried, values),
        ),
    )
    gathered = dict(zip(carried, shifted.writes[len(loop.writes) :], strict=True))
    left = {i: w for i, w in zip(body.inputs, shifted.writes, strict=False)}
    results = _results(body, loop.writes, values, _written(main))
    return [
        *(on_values(step, before | initial) for step in first),
        shifted,
        *(on_values(step, left | gathered | results) for step in main),
    ]


def shift_tails(loop: LoopStep, values: ValueTypes, *, stored: bool = True) -> list[Step]:
    """M_0, then n - 1 turns of [T_(i-1) M_i], then T_(n-1); the loop alone where it has no tail."""
    body = loop.body
    tail = tail_steps(body, stored=stored)
    if not tail or loop.trips < 2 or not _plain(body):
        return [loop]
    last = [step for index, step in enumerate(body.steps) if index in tail]
    main = [step for index, step in enumerate(body.steps) if index not in tail]
    own = {i for i, o in zip(body.inputs, body.outputs, strict=True) if o in _written(last)}
    same = {value.before for value in loop.carried if value.unchanged}
    needed = sorted((_read(last) & (_written(main) | set(body.inputs))) - own - same)
    initial = dict(zip(body.inputs, loop.reads, strict=False))
    peeled = _fresh(_written(main), values)
    held = _fresh(set(needed), values)
    middle = _fresh(set(loop.writes), values)
    after_first = initial | peeled
    starts = [
        read if i in own or i in same else peeled.get(o, read)
        for i, o, read in zip(body.inputs, body.outputs, loop.reads, strict=False)
    ]
    shifted = replace(
        loop,
        body=Schedule(
            inputs=(*body.inputs, *(held[value] for value in needed)),
            outputs=(*body.outputs, *needed),
            steps=(*(on_values(step, held) for step in last), *main),
        ),
        trips=loop.trips - 1,
        reads=(*starts, *(after_first[value] for value in needed), *loop.reads[len(loop.writes) :]),
        writes=(
            *(middle[w] if i in own else w for w, i in zip(loop.writes, body.inputs, strict=True)),
            *_fresh_list(needed, values),
        ),
    )
    kept = dict(zip(needed, shifted.writes[len(loop.writes) :], strict=True))
    stores = {i: w for i, w in zip(body.inputs, shifted.writes, strict=False) if i in own}
    results = _results(body, loop.writes, values, _written(last))
    return [
        *(on_values(step, after_first) for step in main),
        shifted,
        *(on_values(step, kept | stores | results) for step in last),
    ]


def _head(body: Schedule, values: ValueTypes) -> tuple[set[int], set[int]]:
    """All-gathers that can be made a turn ahead and the steps they need; and the steps that count the turns for them."""
    before = dependencies(body.steps)
    pairs = list(zip(body.inputs, body.outputs, strict=True))
    writer = {value: index for index, step in enumerate(body.steps) for value in step.writes}
    counting: dict[int, set[int]] = {}  # a counter -> the steps that make its next value
    for value, following in pairs:
        if value != following and following in writer:
            chain = closure([writer[following]], before)
            if all(_counts(body.steps[index], values) for index in chain):
                counting[value] = chain
    moving = {i for i, o in pairs if i != o} - set(counting)
    early: list[bool] = []  # steps that could run a turn ahead
    for step, waits in zip(body.steps, before, strict=True):
        alone = isinstance(step, Kernel) and not step.updates and moving.isdisjoint(step.reads)
        gathers = isinstance(step, Kernel) and (step.collective is None or step.collective.kind == "all_gather")
        early.append(alone and gathers and all(early[earlier] for earlier in waits))
    gathered = [i for i, s in enumerate(body.steps) if early[i] and isinstance(s, Kernel) and s.collective is not None]
    head = closure(gathered, before)
    read = _read(body.steps[index] for index in head)
    turning = {index for value, chain in counting.items() if value in read for index in chain}
    return head, turning


def tail_steps(body: Schedule, *, stored: bool = True) -> set[int]:
    """The tail of a loop's body: reductions that only go where nothing else reads, and the steps that put them there.

    Args:
        body: Of the loop.
        stored: Whether only those count whose results the loop hands on; else also those that nothing of the loop reads.
    """
    before = dependencies(body.steps)
    after: list[set[int]] = [set() for _ in before]
    for index, waits in enumerate(before):
        for earlier in waits:
            after[earlier].add(index)
    position = {value: j for j, value in enumerate(body.outputs)}
    tail: set[int] = set()
    for index, step in enumerate(body.steps):
        if not (isinstance(step, Kernel) and step.collective is not None and step.collective.kind in REDUCTIONS):
            continue
        followers = closure([index], after)
        steps = [body.steps[i] for i in followers]
        stores = {body.inputs[position[v]] for v in _written(steps) if v in position}
        others = [s for i, s in enumerate(body.steps) if i not in followers]
        if not stores and stored:
            continue
        if stores.isdisjoint(_read(others)) and stores.isdisjoint(set(body.outputs)):
            tail |= followers
    return tail


def _counts(step: Step, values: ValueTypes) -> bool:
    """Whether a step only turns a few numbers into a few others, such as a loop's counter into the next."""
    return (
        isinstance(step, Kernel)
        and step.collective is None
        and all(values.tensors[value].bytes <= SCALAR_BYTES for value in (*step.reads, *step.writes))
    )


def _plain(body: Schedule) -> bool:
    """Whether every output is one step's result, or the value that came in."""
    written = [v for step in body.steps for v in step.writes]
    moved = [o for i, o in zip(body.inputs, body.outputs, strict=True) if i != o]
    return len(set(moved)) == len(moved) and set(moved) <= set(written)


def _results(body: Schedule, writes: Sequence[int], values: ValueTypes, written: set[int]) -> dict[int, int]:
    """Names for what the last turn writes: the loop's own results, and new ones for what stays inside."""
    names = _fresh(written, values)
    for before, after, result in zip(body.inputs, body.outputs, writes, strict=True):
        if before != after and after in names:
            names[after] = result
    return names


def _read(steps: Iterable[Step]) -> set[int]:
    return {value for step in steps for value in step.reads}


def _written(steps: Iterable[Step]) -> set[int]:
    return {value for step in steps for value in step.writes}


def _fresh(old: set[int], values: ValueTypes) -> dict[int, int]:
    """New values of the same types."""
    return {value: values.new(values.tensors[value].shape, values.tensors[value].dtype) for value in sorted(old)}


def _fresh_list(old: Sequence[int], values: ValueTypes) -> list[int]:
    return list(_fresh(set(old), values).values()) if old else []
