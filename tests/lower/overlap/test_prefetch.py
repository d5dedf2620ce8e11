"""Loops shifted by a turn: FSDP's gathers ahead and its reductions behind, by hand and in a whole model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast import Options, prepare
from meshcast.lower import Kernel, LoopStep, Schedule
from meshcast.lower.overlap.prefetch import with_late_reductions, with_prefetching
from meshcast.lower.value_types import ValueTypes
from meshcast.simulate.memory.liveness import peak_memory
from meshcast.workload.graph import Tensor
from tests.simulate.schedules import KB, exchange, kernel, loop, program, run, schedule

SCALAR = Tensor((), "i32")
COUNTER, X, WEIGHTS, STORE = 10, 11, 12, 13  # carried values of the body
NEXT, SLICE, GATHERED, GRADIENT, REDUCED = 20, 21, 22, 23, 24


def values() -> ValueTypes:
    return ValueTypes([SCALAR if v in (1, COUNTER, NEXT) else KB for v in range(64)])


def layer(gather: float, compute: float, reduce: float | None = None) -> Schedule:
    """A layer: its weights are sliced and gathered, multiplied, and what comes out is reduced and stored."""
    steps = [
        kernel([COUNTER], [NEXT], 0),
        kernel([WEIGHTS, COUNTER], [SLICE], 0),
        exchange([SLICE], [GATHERED], gather, kind="all_gather"),
        kernel([X, GATHERED], [30], compute),
    ]
    inputs, outputs = [COUNTER, X, WEIGHTS], [NEXT, 30, WEIGHTS]
    if reduce is not None:
        steps += [
            kernel([30], [GRADIENT], 0),
            exchange([GRADIENT], [REDUCED], reduce, kind="reduce_scatter"),
            kernel([STORE, REDUCED, COUNTER], [31], 0),
        ]
        inputs.append(STORE)
        outputs.append(31)
    return schedule(steps, inputs, outputs)


def layers(body: Schedule, trips: int) -> Schedule:
    count = len(body.inputs)
    return schedule([loop(body, trips, list(range(1, 1 + count)), list(range(40, 40 + count)))], range(1, 1 + count))


def shifted(body: Schedule, trips: int) -> Schedule:
    return with_prefetching(layers(body, trips), values())


@pytest.mark.parametrize(("gather", "compute"), [(2, 5), (5, 2), (3, 3)])
def test_a_steady_turn_takes_the_longer_of_compute_and_gather(gather: int, compute: int) -> None:
    """N (g + c) becomes g + (n - 1) max(g, c) + c."""
    body = layer(gather, compute)
    assert run(layers(body, 8)).duration == 8 * (gather + compute)
    timeline = run(shifted(body, 8))
    assert timeline.duration == gather + 7 * max(gather, compute) + compute
    assert timeline.breakdown.total == pytest.approx(timeline.duration)
    assert timeline.communication_busy == 8 * gather


def test_gradients_of_the_turn_before_are_reduced_beside_this_one() -> None:
    """On one channel: the gather and the reduction of 2 s each hide behind 5 s of compute.

    H_0, [M_0 H_1], six turns of [M H T], [M_7 T_6], T_7: all M, and H_0 and T_7 alone.
    """
    body = layer(2, 5, 2)
    assert run(layers(body, 8)).duration == 8 * (2 + 5 + 2)
    assert run(shifted(body, 8)).duration == 2 + 8 * 5 + 2


def test_where_communication_is_longer_it_sets_the_turn() -> None:
    """3 + 4 s of communication a turn beside 5 of compute: six of them take 7 each."""
    steady = [step for step in shifted(layer(3, 5, 4), 8).steps if isinstance(step, LoopStep)]
    assert [step.trips for step in steady] == [6]
    assert run(steady[0].body).duration == 7


def counts(body: Schedule) -> dict[str, int]:
    found: dict[str, int] = {}
    for each, times in body.walk():
        what = each.collective.kind if each.collective else f"{each.read_bytes}"
        found[what] = found.get(what, 0) + times
    return found


def test_every_turn_is_still_run_once() -> None:
    body = layer(2, 5, 3)
    assert counts(shifted(body, 8)) == counts(layers(body, 8))


def test_values_are_written_before_they_are_read_and_once() -> None:
    def check(block: Schedule, outside: set[int]) -> None:
        known = set(block.inputs) | outside
        for step in block.steps:
            assert known.issuperset(step.reads)
            if isinstance(step, LoopStep):
                assert len(step.body.inputs) == len(step.body.outputs) == len(step.writes) <= len(step.reads)
                check(step.body, known)
            assert known.isdisjoint(step.writes)
            known.update(step.writes)
        assert known.issuperset(block.outputs)

    for body in (layer(2, 5), layer(2, 5, 3)):
        made = shifted(body, 8)
        check(replace(made, outputs=tuple(range(40, 40 + len(body.inputs)))), set())


def test_a_gather_of_what_the_turn_computes_stays() -> None:
    steps = [exchange([X], [GATHERED], 2, kind="all_gather"), kernel([GATHERED], [30], 3)]
    moving = schedule(steps, [X], [30])
    assert shifted(moving, 4) == layers(moving, 4)


def test_a_reduction_that_the_next_turn_reads_stays() -> None:
    steps = [kernel([X], [30], 3), exchange([30], [31], 2)]
    needed = schedule(steps, [X], [31])
    assert shifted(needed, 4) == layers(needed, 4)


def test_gradients_that_no_array_of_the_loop_holds_are_reduced_beside_the_next_turn() -> None:
    """Layers that are arrays of their own: nothing but the optimizer reads what a bucket gives."""
    steps = [kernel([X], [30], 5), kernel([30], [GRADIENT], 0), exchange([GRADIENT], [REDUCED], 3, kind="all_reduce")]
    before = layers(schedule(steps, [X], [30]), 8)
    assert run(before).duration == 8 * (5 + 3)
    assert with_prefetching(before, values()) == before
    assert run(with_late_reductions(before, values())).duration == 8 * 5 + 3


def test_a_single_turn_stays() -> None:
    assert shifted(layer(2, 5), 1) == layers(layer(2, 5), 1)


def test_what_is_gathered_ahead_takes_memory() -> None:
    """One more gathered buffer of 1 MB than before."""
    large = {v: Tensor((1_000_000,), "i8") for v in (GATHERED,)}
    made = ValueTypes([large.get(v, t) for v, t in enumerate(values().tensors)])
    before = layers(layer(2, 5), 8)
    after = with_prefetching(before, made)
    lowered = replace(program(before), tensors=tuple(made.tensors))
    rewritten = replace(lowered, schedule=after)
    assert peak_memory(rewritten).temporaries - peak_memory(lowered).temporaries == pytest.approx(1e6, rel=0.02)


def test_a_model_gains_from_it() -> None:
    """Llama's layers: all of their gathers ahead, and its exposed communication shrinks."""
    settings = {"batch": "16", "seq": "512"}
    options = Options(on="dgx-h100", mesh={"fsdp": 16}, settings=settings, contention="off", host="off")
    plain = prepare("llama3-tiny", options)
    ahead = prepare("llama3-tiny", options.having(overlap="prefetch"))
    assert counts_by_kind(ahead.lowered.schedule) == counts_by_kind(plain.lowered.schedule)
    assert ahead.timeline.breakdown.exposed_communication < plain.timeline.breakdown.exposed_communication
    assert ahead.timeline.duration < plain.timeline.duration


def counts_by_kind(block: Schedule) -> dict[str, int]:
    found: dict[str, int] = {}
    for each, times in block.walk():
        if isinstance(each, Kernel) and each.collective is not None:
            found[each.collective.kind] = found.get(each.collective.kind, 0) + times
    return found
