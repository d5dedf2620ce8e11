"""Exchanges of experts beside another microbatch's layers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.hardware import load_device
from meshcast.jobs.pipeline.paired import paired_seconds
from meshcast.options.options import Options

DEVICE = load_device("h100-sxm")  # of 132 cores an exchange keeps 20
TAKEN = 20 / 132
SETTINGS = {"batch": "32", "seq": "64", "layers": "4"}


@pytest.mark.parametrize(
    ("computing", "exchanging", "seconds"),
    [(10.0, 0.0, 10.0), (10.0, 4.0, 10 + 4 * TAKEN), (4.0, 10.0, 10.0), (10.0, 10.0, 10 + 10 * TAKEN)],
)
def test_the_longer_of_the_two(computing: float, exchanging: float, seconds: float) -> None:
    assert paired_seconds(computing, exchanging, DEVICE) == pytest.approx(seconds)


@given(st.floats(0, 100), st.floats(0, 100))
def test_hiding_is_bounded(computing: float, exchanging: float) -> None:
    """Never shorter than either, never longer than compute and exchange behind each other."""
    seconds = paired_seconds(computing, exchanging, DEVICE)
    assert max(computing, exchanging) <= seconds <= computing + exchanging + 1e-9


def test_pairs_hide_exchanges_of_interleaved_stages_alone() -> None:
    options = Options(on="dgx-h100", settings=SETTINGS)
    for plan, hides in (("ep=4,pp=2,vp=2,mbs=1", True), ("ep=4,pp=2,mbs=1", False), ("pp=2,vp=2,mbs=1", False)):
        alone, paired = (
            predict("mixtral-tiny", options.having(plan=plan, overlap=overlap)) for overlap in ("", "paired-passes")
        )
        assert alone.step_time_s is not None
        assert paired.step_time_s is not None
        assert paired.breakdown is not None
        assert (paired.step_time_s < alone.step_time_s) == hides
        assert any("paired-passes changes nothing" in said for said in paired.warnings) != hides
        assert paired.breakdown.total == pytest.approx(paired.step_time_s)
        assert paired.communication is not None
        exposed = sum(group.exposed_s for group in paired.communication.groups)
        assert exposed == pytest.approx(paired.breakdown.exposed_communication)


def test_without_stages_nothing_pairs_and_that_is_told() -> None:
    said = predict(
        "mixtral-tiny", Options(on="dgx-h100", settings=SETTINGS, plan="ep=4", overlap="paired-passes")
    ).warnings
    assert sum("paired-passes changes nothing" in warning for warning in said) == 1


def test_pairs_on_one_channel_are_refused() -> None:
    """All communication in turns needs to know when each of it is ready, which the time of a pair does not say."""
    options = Options(
        on="dgx-h100", settings=SETTINGS, plan="ep=4,pp=2,vp=2,mbs=1", overlap="paired-passes", channels=1
    )
    with pytest.raises(UnsupportedError, match="take turns on one channel"):
        predict("mixtral-tiny", options)
    unpaired = options.having(plan="ep=4,pp=2,mbs=1")
    assert predict("mixtral-tiny", unpaired).step_time_s == predict("mixtral-tiny", unpaired, overlap="").step_time_s
