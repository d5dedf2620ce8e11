"""No bound is above what is bounded: by hand, and beside predictions of small models under plans of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from meshcast.estimate import is_product
from meshcast.explore.bounding import LEVELS, Bounder, work_key
from meshcast.explore.bounds import Passes, staged_time
from meshcast.explore.evaluating import cluster_of, evaluate, options_of
from meshcast.explore.measures import Known
from meshcast.explore.shape import builder_of
from meshcast.explore.space import Space
from meshcast.explore.work import done
from meshcast.jobs import LayersCost, ProgramJob, Run, resolve_job
from meshcast.jobs.layers import TURNS, _part
from meshcast.lower import LoopStep, Schedule
from meshcast.lower.products.swapped_products import swapped_sides
from meshcast.workload import Gemm
from meshcast.zoo import Plan


def test_a_pipeline_fills_works_and_drains() -> None:
    """Four stages, eight microbatches of 1 + 2 seconds: (8 + 3) x 3 (Narayanan 2021)."""
    passes = Passes(forward_s=1.0, backward_s=2.0)
    assert staged_time(Plan(pp=4), 8, passes, None) == 33.0
    # Two parts a stage, each half as long: the fill is half as long.
    half = Passes(forward_s=0.5, backward_s=1.0)
    assert staged_time(Plan(pp=4, vp=2), 8, half, None) == 8 * 3 + 3 * 1.5
    assert staged_time(Plan(), 8, passes, None) == 24.0


def test_what_ends_the_model_is_in_the_last_stage_and_a_middle_part_counts_where_it_is() -> None:
    least, middle = Passes(forward_s=1.0, backward_s=1.0), Passes(forward_s=2.0, backward_s=2.0)
    assert staged_time(Plan(pp=2), 4, least, None, last_s=3.0) == 4 * 5 + 2
    # Of three stages the second is known to take 4 for each microbatch, behind one that takes 2 at least.
    assert staged_time(Plan(pp=3), 4, least, middle) == 4 * 4 + 2


def test_the_last_part_counts_with_all_that_ends_the_model_in_it() -> None:
    """Three stages: the last one's five for each microbatch behind two that take one forward and one backward each."""
    least, last = Passes(forward_s=1.0, backward_s=1.0), Passes(forward_s=2.0, backward_s=3.0)
    assert staged_time(Plan(pp=3), 4, least, None, last_s=7.0, last=last) == 2 + 4 * 5 + 2
    # Of two parts a stage the last stage has one of each kind.
    assert staged_time(Plan(pp=3, vp=2), 4, least, None, last=last) == 2 + 4 * (2 + 5) + 2


def test_a_split_backward_pass_is_no_drain() -> None:
    passes = Passes(forward_s=1.0, backward_s=1.0, weight_s=1.0)
    assert staged_time(Plan(pp=4, schedule="zb-h1"), 8, passes, None) == 3 + 8 * 3


CASES = {
    "gpt2-tiny": ({"batch": "8", "seq": "64", "layers": "8"}, (
        "dp=4", "dp=4,zero=1,remat=full", "fsdp=4,remat=selective", "tp=2,sp=1,dp=2", "pp=4,remat=full",
        "pp=2,vp=2,dp=2,zero=1", "pp=2,tp=2,sp=1,remat=selective", "pp=4,schedule=zb-h1", "pp=2,dp=2,schedule=gpipe,mbs=2",
    )),
    "llama3-tiny": ({"batch": "8", "seq": "64", "layers": "4"}, (
        "cp=2,fsdp=2,remat=full", "cp=2,pp=2", "fsdp=2,dp=2,mbs=2", "pp=2,dp=2,gradients=bf16", "precision=fp8,dp=4",
    )),
    "mixtral-tiny": ({"batch": "8", "seq": "64", "layers": "4"}, ("ep=2,dp=2", "ep=2,pp=2,remat=full")),
    "gemma2-tiny": ({"batch": "8", "seq": "64"}, ("fsdp=4", "pp=2,dp=2")),
    "deepseek-tiny": ({"batch": "8", "seq": "64"}, ("dp=4", "ep=2,dp=2")),
}  # fmt: skip


@pytest.mark.parametrize("model", CASES)
def test_no_prediction_falls_below_its_bounds_and_bounds_grow_with_their_level(model: str) -> None:
    settings, plans = CASES[model]
    space = Space(
        model=model, asked={"on": "dgx-h100", "devices": 4, "settings": settings, "fidelity": "analytical"}, plans={}
    )
    (combination,) = space.walk()
    found: dict[str, LayersCost | None] = {}
    known = Known(devices=4, units=1, capacity_bytes=80 * 2**30)
    bounder = Bounder(combination=combination, known=known, found=found)
    for text in plans:
        plan = Plan.parse(text)
        outcome = evaluate(combination.point(0, plan))
        assert outcome.step_time_s is not None, (text, outcome.error)
        assert outcome.memory_bytes is not None
        time_s = memory = 0.0
        for level in range(LEVELS):
            work = bounder.wanted(plan, level)
            if work is not None and work_key(work) not in found:
                found[work_key(work)] = done(work)  # type: ignore[assignment]
            bound = bounder.bound(plan, level)
            assert time_s <= bound.time_s <= outcome.step_time_s, (text, level)
            assert memory <= bound.memory_bytes <= outcome.memory_bytes, (text, level)
            time_s, memory = bound.time_s, bound.memory_bytes
        assert time_s > 0, text


def _loops(schedule: Schedule, trips: int) -> Iterator[Schedule]:
    """The bodies of all loops of so many turns, wherever they are."""
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            if step.trips == trips:
                yield step.body
            else:
                yield from _loops(step.body, trips)


def _one_way_round(geometry: object) -> object:
    """A product with its shorter side first: `transpose(dot(a, b)) = dot(b, a)` takes as long (`estimate/gpu/test_models.py`)."""
    if not isinstance(geometry, Gemm) or geometry.m <= geometry.n:
        return geometry
    return swapped_sides(geometry)


def _products(runs: list[Run], trips: int) -> Counter[object]:
    return Counter(
        (kernel.kind, kernel.dtype, _one_way_round(kernel.geometry))
        for run in runs
        for body in _loops(run.lowered.schedule, trips)
        for kernel, count in body.walk()
        for _ in range(count)
        if is_product(kernel)
    )


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama3-tiny", "mixtral-tiny"])
def test_layers_have_the_same_products_in_a_step_as_in_a_part_however_weights_are_spread(model: str) -> None:
    """What the bound of a step without stages stands on: no gather, sum or fusion around a layer changes its products."""
    settings, plans = CASES[model]
    settings = settings | {"layers": "6"}  # as many as no other loop has turns
    space = Space(
        model=model, asked={"on": "dgx-h100", "devices": 4, "settings": settings, "fidelity": "analytical"}, plans={}
    )
    (combination,) = space.walk()
    bounder = Bounder(combination=combination, known=Known(devices=4, units=1, capacity_bytes=1), found={})
    tried = 0
    for plan in map(Plan.parse, plans):
        work = bounder.wanted(plan, 1)
        if not plan.one_program or work is None:
            continue
        options = options_of(work.point.asked)
        part = _part(builder_of(model), options, cluster_of(options), first=work.first, layers=TURNS * work.period)
        asked = options_of(combination.point(0, plan).asked)
        job = resolve_job(model, asked, cluster=cluster_of(asked))
        assert isinstance(job, ProgramJob)
        whole = _products([job.run], combination.shape.layers // work.period)
        assert whole == _products([each.run for each in part.programs.values()], TURNS), str(plan)
        tried += 1
    assert tried
