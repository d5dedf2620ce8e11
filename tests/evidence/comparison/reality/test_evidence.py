"""A trace of another program is told from one of this: by products that do not agree, and by names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.comparison.reality.asking import compare_measured, predicted_side, refuse_strangers
from meshcast.evidence.comparison.reality.evidence import Evidence, evidence_of
from meshcast.evidence.comparison.reality.matching import matched
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch
from meshcast.evidence.profiler import MeasuredKernel
from meshcast.options.options import Options

PROFILES = Path(__file__).parents[4] / "data" / "measured" / "h200-profiles"
WHOLE = Evidence(covered=1.0, products=1.0, launches=1.0, ratio=1.0, names=None)


@pytest.fixture(scope="module")
def tiny() -> tuple[PredictedLaunch, ...]:
    return predicted_side("gpt2-tiny-forward", Options(on="h200")).launches


def found(predicted: Sequence[PredictedLaunch], kernels: Sequence[MeasuredKernel]) -> Evidence:
    return evidence_of(matched(predicted, kernels).matches, predicted, kernels, covered=1.0)


def run_of(predicted: Sequence[PredictedLaunch], factor: float = 1.0) -> list[MeasuredKernel]:
    """The launches as they were predicted, so many times as long, with names of kernels alone."""
    names = {
        "matmul": "nvjet_gemm",
        "element-wise": "elementwise_kernel",
        "reduction": "reduce_kernel",
        "attention": "flash_fwd_kernel",
    }
    return [
        MeasuredKernel(name=names.get(launch.kind, "copy_kernel"), start=launch.start, duration=factor * launch.seconds)
        for launch in predicted
    ]


def test_the_same_launches_are_the_same_program_on_a_slower_device_too(tiny: tuple[PredictedLaunch, ...]) -> None:
    for factor in (1.0, 1.7):
        evidence = found(tiny, run_of(tiny, factor))
        assert evidence.products == pytest.approx(1.0)
        assert evidence.launches == 1.0
        assert evidence.ratio == pytest.approx(1 / factor)
        assert evidence.verdict == "same"
    assert found(tiny, run_of(tiny, 4.0)).verdict == "doubtful"


def test_fewer_and_other_products_are_another_program(tiny: tuple[PredictedLaunch, ...]) -> None:
    products = [launch for launch in tiny if launch.kind == "matmul"]
    few = [*run_of(products[: len(products) // 8], 1.0), *run_of([x for x in tiny if x.kind != "matmul"])]
    assert found(tiny, few).verdict == "other"
    strange = [
        replace(kernel, duration=kernel.duration * (1 + 3 * (i % 3))) for i, kernel in enumerate(run_of(products))
    ]
    assert found(tiny, strange).agreement < 0.75


def test_names_of_fusions_decide_where_both_sides_have_them(tiny: tuple[PredictedLaunch, ...]) -> None:
    named = [replace(launch, kernel=replace(launch.kernel, name=f"loop_fusion.{i}")) for i, launch in enumerate(tiny)]
    kernels = [replace(kernel, op=f"loop_fusion.{i}") for i, kernel in enumerate(run_of(tiny))]
    assert found(named, kernels).names == 1.0
    assert (
        found(named, [replace(kernel, op=f"loop_fusion.{i + 10_000}") for i, kernel in enumerate(kernels)]).names == 0.0
    )
    assert found(tiny, kernels).names is None  # a prediction without instructions
    assert found(named, run_of(tiny)).names is None
    graphs = [replace(kernel, op="") if i % 3 else kernel for i, kernel in enumerate(kernels)]
    assert found(named, graphs).names is None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "same"),
        ({"covered": 0.3}, "other"),
        ({"covered": 0.3, "names": 0.9}, "same"),
        ({"products": 0.1}, "other"),
        ({"products": 0.6, "launches": 0.5}, "doubtful"),
        ({"products": 0.6}, "same"),
        ({"products": 0.6, "names": 0.1}, "doubtful"),
        ({"names": 0.1}, "same"),
        ({"ratio": 2.5}, "doubtful"),
    ],
)
def test_verdicts(change: dict[str, float], verdict: str) -> None:
    evidence = replace(WHOLE, **change)
    assert evidence.verdict == verdict
    assert evidence.to_json()["verdict"] == verdict


@pytest.mark.parametrize(
    ("program", "trace", "verdict"),
    [
        ("fused-attention.hlo.gz", "fused-attention.xplane.pb.gz", "same"),
        ("torch-llama-forward.mlir.gz", "torch-llama-forward.json.gz", "same"),
        ("dit-forward.hlo.gz", "bert-forward.xplane.pb.gz", "doubtful"),  # twelve layers of 768 both
        ("torch-encoder.mlir.gz", "fused-attention.xplane.pb.gz", "other"),
        ("fused-attention.hlo.gz", "llama-decode.xplane.pb.gz", "other"),
    ],
)
def test_profiled_programs(program: str, trace: str, verdict: str) -> None:
    reality = compare_measured(PROFILES / program, [PROFILES / trace], Options(on="h200", clocks="burst"))
    assert reality.evidence.verdict == verdict
    assert len(reality.shown.search.steps) == 4
    assert any("another program" in note for note in reality.notes) == (verdict == "doubtful")
    if verdict == "other":
        with pytest.raises(InputError, match="trace of another program"):
            refuse_strangers(reality)
    else:
        refuse_strangers(reality)


def test_gaps_that_were_not_predicted_are_told() -> None:
    reality = compare_measured(
        PROFILES / "torch-llama-forward.mlir.gz", [PROFILES / "torch-llama-forward.json.gz"], Options(on="h200")
    )
    assert reality.measured_busy_s < reality.measured_s
    assert any("gaps between kernels" in note for note in reality.notes)
    assert any("--clocks burst" in note for note in reality.notes)
