"""Explanations: the time of the estimate, from terms that add up to it."""

from __future__ import annotations

import pytest

from meshcast.estimate.explanation import Explanation
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.roofline import Roofline
from meshcast.lower import Kernel, KernelKind
from tests.estimate.conformance import gemm, pass_over
from tests.estimate.gpu.test_models import EVERY_KIND, H200


def terms(explanation: Explanation) -> dict[str, float]:
    return {term.symbol.partition(" =")[0]: term.value for term in explanation.terms}


@pytest.mark.parametrize("sample", EVERY_KIND, ids=lambda k: k.kind.value)
def test_every_kind_is_explained_as_it_is_estimated(sample: Kernel) -> None:
    estimator = GpuAnalytical()
    found = estimator.explain(sample, H200)
    assert found.time == estimator.estimate([sample], H200).time[0]
    assert found.formula.startswith("t = ")
    assert found.limited_by in ("compute", "memory", "latency")
    named = terms(found)
    assert named["t"] == estimator.work(sample, H200).time
    assert all(term.name and term.symbol and term.value >= 0 for term in found.terms)
    # Every name in the formula is among the terms.
    for word in ("launch", "start", "issue", "mem", "compute", "fetch", "prologue", "atomics"):
        first = found.formula.partition(";")[0].replace("(", " ").replace(",", " ").replace("|", " ").split()
        assert word not in first or word in named


def test_terms_are_named_only_on_request() -> None:
    assert all(not GpuAnalytical().work(sample, H200).terms for sample in EVERY_KIND)


def test_a_pass_over_memory_adds_up() -> None:
    found = terms(GpuAnalytical().explain(pass_over(2**30, 2**30), H200))
    assert found["mem"] == pytest.approx(found["B"] / found["W"] + found["B2"] / found["W2"])
    longest = max(found["mem"], found["start"], found["issue"])
    joined = longest * sum((found[n] / longest) ** found["p"] for n in ("mem", "start", "issue")) ** (1 / found["p"])
    assert found["t"] == pytest.approx(found["launch"] + joined)


def test_a_products_arithmetic_adds_up() -> None:
    found = terms(GpuAnalytical().explain(gemm(4096, 4096, 4096), H200))
    cycles = found["w"] * found["k"] * found["c"] + (found["w"] - 1) * found["b"]
    assert found["compute"] == pytest.approx(cycles / found["f"])
    assert found["n"] <= found["w"] * H200.cores


def test_the_speed_of_light_explains_itself() -> None:
    found = Roofline().explain(gemm(4096, 4096, 4096), H200)
    named = terms(found)
    assert named["compute"] == pytest.approx(named["F"] / named["P"])
    assert found.time == max(named["compute"], named["mem"])
    assert Roofline().explain(Kernel(name="empty", kind=KernelKind.LOOP_FUSION, dtype="f32"), H200).time == 0
