"""Every fitted parameter does something: one that no model reads would be shipped, fitted and documented for nothing."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import meshcast.estimate
from meshcast.estimate.gpu.parameters import GpuParameters
from meshcast.estimate.gpu.solvers import Costs
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.estimate.tpu.parameters import TpuParameters
from tests.estimate.reads_by_class import Sources

MODELS = Path(meshcast.estimate.__file__).parent


@cache
def _read_by_models() -> set[tuple[str, str]]:
    return Sources(sorted(MODELS.rglob("*.py"))).reads()


@pytest.mark.parametrize("parameters", [GpuParameters, TpuParameters, Costs, SmParameters])
def test_every_fitted_parameter_is_read_by_a_model(parameters: type) -> None:
    read = {name for owner, name in _read_by_models() if owner == parameters.__name__}
    assert {field.name for field in fields(parameters)} - read == set()


MODULE = """
class One:
    overlap: float
    share: float

class Other:
    overlap: float
    share: float

class Machine:
    one: One
    def other(self) -> Other: ...

class Model:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
    def seconds(self) -> float:
        p, rest = self._machine.one, 1
        return {expression}

def of(machine: Machine | None) -> One: ...
"""


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("p.overlap", {("One", "overlap")}),
        ("self._machine.one.share", {("One", "share")}),
        ("self._machine.other().share", {("Other", "share")}),
        ("of(None).overlap + rest.share", {("One", "overlap")}),
        ("(q := self._machine.other()) and q.overlap", {("Other", "overlap")}),
        ("(lambda p: p.share)(p)", set()),
    ],
)
def test_a_parameter_read_on_another_class_does_not_count(
    expression: str, read: set[tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE.replace("{expression}", expression), encoding="utf-8")
    assert {each for each in Sources([path]).reads() if each[0] in ("One", "Other")} == read
