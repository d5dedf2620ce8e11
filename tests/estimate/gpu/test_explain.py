"""Explanations: the time of the estimate, from terms that add up to it."""

from __future__ import annotations

import pytest

from meshcast.estimate.explanation import Explanation
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.roofline import Roofline
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Reduction
from meshcast.workload.shapes import SortGeometry, Transform
from tests.estimate.conformance import gemm, pass_over
from tests.estimate.formulas import by_formula, definitions
from tests.estimate.gpu.test_models import EVERY_KIND, H200, kernel
from tests.estimate.test_solvers import call as solver_call

SAMPLES = (
    *EVERY_KIND,
    gemm(64, 64, 2**16),  # parts of K, added up
    kernel(KernelKind.REDUCTION, 2**22, 4096, Reduction(shape=(1024, 1024), dims=(1,)), dtype="f32"),
    kernel(KernelKind.SORT, 2**26, 2**26, SortGeometry(length=2**24, batch=1, operands=1), dtype="f32"),
    kernel(KernelKind.SORT, 2**18, 2**18, SortGeometry(length=2**14, batch=4, operands=1), dtype="f32"),
    kernel(KernelKind.SORT, 2**24, 2**24, SortGeometry(length=2**16, batch=64, operands=1), dtype="f32"),
    kernel(KernelKind.SORT, 2**24, 2**10, SortGeometry(length=2**16, batch=64, operands=1, top=8), dtype="f32"),
    kernel(KernelKind.OTHER, 2**24, 2**24, Transform(kind="IFFT", lengths=(1024, 1024), batch=2), dtype="complex<f32>"),
    kernel(KernelKind.OTHER, 2**24, 2**24, Transform(kind="RFFT", lengths=(4099,), batch=64), dtype="f32"),
    gemm(8, 8, 8, batch=4096),
    gemm(4, 4, 1, batch=4096),
    gemm(64, 1, 64),
    kernel(KernelKind.CUSTOM, 2**20, 2**20, None, matrix_flops=1e12),
    *(solver_call(routine, 512, batch=batch) for routine in ("lu", "svd", "triangular") for batch in (1, 4, 1024)),
    solver_call("eigh", 16),
)


def terms(explanation: Explanation) -> dict[str, float]:
    return {term.symbol.partition(" =")[0]: term.value for term in explanation.terms}


def test_every_kind_has_a_sample() -> None:
    assert {sample.kind for sample in SAMPLES} == set(KernelKind) - {KernelKind.COLLECTIVE}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda k: k.name)
def test_every_kind_is_explained_as_it_is_estimated(sample: Kernel) -> None:
    estimator = GpuAnalytical()
    found = estimator.explain(sample, H200)
    assert found.time == estimator.estimate([sample], H200).time[0]
    assert found.formula.startswith("t = ")
    assert found.limited_by in ("compute", "memory", "latency")
    named = terms(found)
    assert named["t"] == estimator.work(sample, H200).time
    assert all(term.name and term.symbol and term.value >= 0 for term in found.terms)
    assert by_formula(found) == pytest.approx(named["t"])
    for printed, made in definitions(found):
        assert made == pytest.approx(printed)


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
