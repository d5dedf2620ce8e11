"""Equal kernels on equal devices are asked about once, whatever program they are in; plug-ins are asked every time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from meshcast.estimate import Estimates, estimate_kernels, load_estimator
from meshcast.estimate.analytical import Analytical
from meshcast.estimate.known_answers import _KNOWN, KEPT_DEVICES, forget_answers
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import Device, load_device
from meshcast.lower import Kernel
from tests.lower.programs import lower_function, spec

H100 = load_device("h100-sxm")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many kernels the analytical model is asked about, each time."""
    seen: list[int] = []
    own = Analytical.estimate

    def counting(self: Analytical, kernels: Sequence[Kernel], device: Device) -> Estimates:
        seen.append(len(kernels))
        return own(self, kernels, device)

    forget_answers()
    monkeypatch.setattr(Analytical, "estimate", counting)
    yield seen
    forget_answers()


def test_a_kernel_of_two_programs_is_asked_about_once_on_a_device(asked: list[int]) -> None:
    one = lower_function(lambda x: (x + 1) @ x, spec(64, 64))
    two = lower_function(lambda x: ((x + 1) @ x) * 2, spec(64, 64))
    chain = [load_estimator("analytical"), load_estimator("roofline")]
    found = estimate_kernels(one, H100, chain)
    again = estimate_kernels(one, replace(H100), chain)  # an equal device is the same one
    assert asked == [len(found.by_key)]
    assert (again.by_key, again.gap, again.law) == (found.by_key, found.gap, found.law)
    more = estimate_kernels(two, H100, chain)
    assert asked[1:] == [len(more.by_key.keys() - found.by_key.keys())]
    estimate_kernels(one, replace(H100, memory_bandwidth=1e12), chain)
    assert asked[2:] == [len(found.by_key)]
    # Nothing depends on who has asked before.
    forget_answers()
    alone = estimate_kernels(two, H100, chain)
    assert alone.by_key == more.by_key


def test_estimators_that_are_no_built_ins_are_asked_every_time(asked: list[int]) -> None:
    class Outside(Analytical):
        __module__ = "somebody.else"

    lowered = lower_function(lambda x: x + 1, spec(64, 64))
    for _ in range(2):
        estimate_kernels(lowered, H100, [Outside()])
    assert len(asked) == 2
    assert not _KNOWN


def test_few_devices_are_kept(asked: list[int]) -> None:
    lowered = lower_function(lambda x: x + 1, spec(64, 64))
    chain: list[Any] = [Roofline()]
    for number in range(KEPT_DEVICES + 4):
        estimate_kernels(lowered, replace(H100, memory_bandwidth=1e12 + number), chain)
    assert len(_KNOWN) == KEPT_DEVICES
    assert asked == []
