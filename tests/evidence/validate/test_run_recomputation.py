"""What a run recomputes where its source does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.evidence.validate.runs import planned
from meshcast.evidence.validate.runs.planned import predict_fitting
from meshcast.jobs.stated.recomputation import MORE
from meshcast.jobs.stated.target import RunTarget
from meshcast.options.options import Options
from tests.evidence.validate.test_run_targets import target

GIGABYTE = 10**9


class _Predicted:
    """Of a prediction what is looked at."""

    def __init__(self, peak: int) -> None:
        self.memory = self
        self.peak = peak


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        ((50, 40, 30, 20), "none"),
        ((90, 70, 30, 20), "products"),
        ((90, 88, 87, 20), "full"),
        ((900, 850, 840, 200), "none"),  # nothing fits: the stack's habit stands
    ],
)
def test_the_least_that_fits(monkeypatch: pytest.MonkeyPatch, needs: tuple[int, ...], word: str) -> None:
    by_word: dict[str, int] = dict(zip(MORE, needs, strict=True))

    def predicted(run: RunTarget, options: Options, *, over_memory: bool) -> _Predicted:
        return _Predicted(by_word[str(run.plan["remat"])] * GIGABYTE)

    monkeypatch.setattr(planned, "predict_run", predicted)
    run = replace(target(recompute=""), plan={"remat": "none"})
    found, prediction = predict_fitting(run, Options(on="dgx-h100"))
    assert found.plan["remat"] == word
    assert prediction.memory.peak == by_word[word] * GIGABYTE
    assert any(f"recomputation {word}" in said or f"remat={word}" in said for said in found.assumptions)


def test_what_a_source_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "predict_run", lambda *_, **__: _Predicted(900 * GIGABYTE))
    run = target(recompute="none")
    assert predict_fitting(run, Options(on="dgx-h100"))[0] == run


def test_what_does_not_fit_otherwise_waits_at_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where recipes of the stack do so, and only where the device's link is known."""

    def predicted(run: RunTarget, options: Options, *, over_memory: bool) -> _Predicted:
        return _Predicted((10 if run.plan.get("offload") == "activations" else 900) * GIGABYTE)

    monkeypatch.setattr(planned, "predict_run", predicted)
    for device, offload in (("tpu-v6e", "activations"), ("tpu-v3", None)):
        run = replace(target(recompute="", device=device, framework="maxtext"), plan={"remat": "full"})
        assert predict_fitting(run, Options())[0].plan.get("offload") == offload


@pytest.mark.parametrize(("framework", "overlap"), [("maxtext", ""), ("torchtitan", "prefetch")])
def test_a_compiler_gathers_less_ahead_where_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, framework: str, overlap: str
) -> None:
    def predicted(run: RunTarget, options: Options, *, over_memory: bool) -> _Predicted:
        return _Predicted((900 if "prefetch" in run.overlap else 10) * GIGABYTE)

    monkeypatch.setattr(planned, "predict_run", predicted)
    run = replace(target(recompute="full", framework=framework), overlap="prefetch")
    found, _ = predict_fitting(run, Options(on="dgx-h100"))
    assert found.overlap == overlap
    assert any("gathered ahead" in said for said in found.assumptions) is (framework == "maxtext")
