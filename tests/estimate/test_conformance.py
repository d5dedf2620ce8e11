"""Every registered estimator keeps the contract; the sample plug-in registers like any other."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast import Options, predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.estimate import Estimates, Origin, Support, estimate_kernels, estimator_names, load_estimator, registry
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import load_device
from meshcast.lower import Kernel
from meshcast.workload import OpKind
from tests.estimate.conformance import check_conformance
from tests.lower.programs import lower_function, spec

PLUGIN = Path(__file__).parents[1] / "plugin_package" / "src" / "meshcast_constant" / "__init__.py"
DEVICES = ("h100-sxm", "mi300x", "tpu-v5e", "v100-sxm2-32gb")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", estimator_names())
def test_every_registered_estimator_conforms(name: str, device: str) -> None:
    check_conformance(load_estimator(name), load_device(device))


@pytest.mark.skipif("constant" not in estimator_names(), reason="pip install tests/plugin_package")
def test_the_installed_plug_in_predicts() -> None:
    from meshcast.programs import capture

    program = capture(lambda x: x @ x, spec(64, 64), name="square")
    assert predict(program, Options(on="h100-sxm", fidelity="constant")).step_time_s == pytest.approx(1e-6)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The sample plug-in from its files, registered as if it were installed."""
    loader = importlib.util.spec_from_file_location("meshcast_constant", PLUGIN)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    monkeypatch.setitem(sys.modules, "meshcast_constant", module)
    loader.loader.exec_module(module)
    _register(monkeypatch, EntryPoint("constant", "meshcast_constant:Constant", registry.GROUP))
    yield module
    registry._entries.cache_clear()


def _register(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    known = [EntryPoint("roofline", "meshcast.estimate.roofline:Roofline", registry.GROUP), *entries]
    monkeypatch.setattr(registry, "entry_points", lambda group: known)
    registry._entries.cache_clear()


def test_the_sample_plug_in_is_found_and_conforms(plugin: Any) -> None:
    assert "constant" in estimator_names()
    estimator = load_estimator("constant")
    assert isinstance(estimator, plugin.Constant)
    check_conformance(estimator, load_device("h100-sxm"))


def test_two_packages_may_not_claim_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, EntryPoint("roofline", "elsewhere:Roofline", registry.GROUP))
    with pytest.raises(UsageError, match="two packages register"):
        estimator_names()
    registry._entries.cache_clear()


def test_a_plug_in_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, EntryPoint("broken", "no_such_package:Broken", registry.GROUP))
    with pytest.raises(UsageError, match="cannot be imported"):
        load_estimator("broken")
    registry._entries.cache_clear()


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="roofline"):
        load_estimator("rooflin")


class _Wrong:
    name = fidelity = "wrong"

    def __init__(self, time: float, high: float) -> None:
        self._time, self._high = time, high

    def supports(self, kernel: Kernel, device: object) -> Support:
        return Support(level="yes")

    def estimate(self, kernels: Any, device: object) -> Estimates:
        def column(value: float) -> Any:
            return np.full(len(kernels), value)

        none = column(0.0)
        return Estimates(
            time=column(self._time), low=none, high=column(self._high), compute_time=none, memory_time=none,
            overhead=none, energy=none, origin=(Origin.ANALYTICAL,) * len(kernels),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("time", "high", "message"), [(float("nan"), 1.0, "finite"), (-1.0, 1.0, "finite"), (2.0, 1.0, "interval")]
)
def test_an_estimator_that_returns_nonsense_is_refused(time: float, high: float, message: str) -> None:
    lowered = lower_function(lambda x: x + 1, spec(8, 8))
    with pytest.raises(UnsupportedError, match=message):
        estimate_kernels(lowered, load_device("h100-sxm"), [_Wrong(time, high)])


class _Raising(_Wrong):
    """A plug-in that fails for products alone."""

    def __init__(self, at: str) -> None:
        super().__init__(1.0, 1.0)
        self._at = at

    def supports(self, kernel: Kernel, device: object) -> Support:
        if self._at == "supports" and kernel.kind == OpKind.GEMM:
            raise KeyError("tile")
        return Support(level="yes")

    def estimate(self, kernels: Any, device: object) -> Any:
        if self._at == "estimate" and any(kernel.kind == OpKind.GEMM for kernel in kernels):
            raise ZeroDivisionError("no tiles")
        if self._at == "kind":
            return [1.0] * len(kernels)
        if self._at == "lists":
            return replace(super().estimate(kernels, device), time=[1.0] * len(kernels))  # type: ignore[arg-type]
        return super().estimate(kernels, device)


@pytest.mark.parametrize(
    ("at", "cause", "said"),
    [
        ("supports", KeyError, r"plug-in 'wrong' \(.*_Raising\) raised KeyError: 'tile', asked about the kernel gemm"),
        ("estimate", ZeroDivisionError, "raised ZeroDivisionError: no tiles, asked about the kernel gemm:dot_general"),
        ("kind", type(None), "gave list from estimate, not Estimates"),
        ("lists", type(None), "times that are no arrays of numbers"),
    ],
)
def test_a_plug_in_that_goes_wrong_is_named_with_the_kernel(at: str, cause: type, said: str) -> None:
    lowered = lower_function(lambda x: (x + 1) @ x, spec(64, 64))
    with pytest.raises(UnsupportedError, match=said) as caught:
        estimate_kernels(lowered, load_device("h100-sxm"), [_Raising(at)])
    assert isinstance(caught.value.__cause__, cause)
    assert caught.value.exit_code == 4
    if caught.value.__cause__ is not None:
        assert str(caught.value.where).startswith(__file__)  # and the line that raised


def test_a_bug_of_our_own_estimators_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, kernels: Any, device: object) -> Estimates:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Roofline, "estimate", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        estimate_kernels(lower_function(lambda x: x + 1, spec(8, 8)), load_device("h100-sxm"), [Roofline()])


def test_a_plug_in_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, plugin: Any) -> None:
    def broken(self: object) -> None:
        raise RuntimeError("no licence")

    monkeypatch.setattr(plugin.Constant, "__init__", broken)
    with pytest.raises(UnsupportedError, match=r"'constant' .*raised RuntimeError: no licence") as caught:
        load_estimator("constant")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_origins_are_taken_by_their_texts() -> None:
    none = np.zeros(2)
    columns = dict.fromkeys(("time", "low", "high", "compute_time", "memory_time", "overhead", "energy"), none)
    texts: Any = ["analytical", Origin.GUESSED]
    made = Estimates(origin=texts, **columns)  # type: ignore[arg-type]
    assert made.origin == (Origin.ANALYTICAL, Origin.GUESSED)
    assert all(type(each) is Origin for each in made.origin)
    for wrong in (("analytical", "invented"), ("analytical", 3), "analytical", None):
        with pytest.raises(UsageError, match="origin") as caught:
            Estimates(origin=wrong, **columns)  # type: ignore[arg-type]
        assert "extrapolated" in str(caught.value.fix)


def test_a_level_of_support_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no level of support 'maybe'"):
        Support(level="maybe")  # type: ignore[arg-type]
