"""A run that does not say what it recomputes has an interval that reaches as far as a forward pass more, or less, would."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import meshcast as mc
from meshcast.jobs.stated.unsaid import with_unsaid

THIRD = math.log(4 / 3)
JOB = """\
schema = "meshcast.job/1"
name = "small"
[model]
name = "llama3-tiny"
seq = 64
[plan]
gbs = 8
mbs = 1
fsdp = 4
precision = "bf16"
{said}
[cluster]
device = "h100-sxm"
devices = 4
[software]
framework = "torchtitan"
"""


def ends(prediction: mc.Prediction) -> tuple[float, float]:
    """How far the interval reaches below and above the step, as logarithms."""
    assert prediction.interval_s is not None
    assert prediction.step_time_s is not None
    low, high = prediction.interval_s
    return math.log(prediction.step_time_s / low), math.log(high / prediction.step_time_s)


@pytest.mark.parametrize(
    ("remat", "below", "above"), [("none", False, True), ("selective", True, True), ("full", True, False)]
)
def test_an_interval_reaches_to_what_may_be_recomputed(remat: str, below: bool, above: bool) -> None:
    """With less than everything a third more products may run, with more than nothing a third fewer."""
    said = mc.predict("llama3-tiny", on="dgx-h100", plan="fsdp=4", settings={"batch": "8", "seq": "64"}, levers=False)
    before, after = ends(said), ends(with_unsaid(said, remat))
    for own, found, wider in zip(before, after, (below, above), strict=True):
        assert found == pytest.approx(math.hypot(own, THIRD) if wider else own)


def test_a_file_that_says_it_has_the_interval_of_its_plan(tmp_path: Path) -> None:
    told, untold = tmp_path / "told.toml", tmp_path / "untold.toml"
    told.write_text(JOB.format(said='recompute = "none"'))
    untold.write_text(JOB.format(said=""))
    known, open_ = mc.predict(told, levers=False), mc.predict(untold, levers=False)
    assert open_.step_time_s is not None
    assert ends(open_)[1] == pytest.approx(math.hypot(ends(known)[1], THIRD), rel=1e-6)
    # Whoever asks for a plan expressly has said it.
    asked = mc.predict(untold, plan="fsdp=4,remat=none", levers=False)
    assert ends(asked)[1] < ends(open_)[1]
