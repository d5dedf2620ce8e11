"""Every fitted parameter does something: one that no model reads would be shipped, fitted and documented for nothing."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import meshcast.estimate
from meshcast.estimate.gpu.parameters import GpuParameters
from meshcast.estimate.gpu.solvers import Costs
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.estimate.tpu.parameters import TpuParameters

MODELS = Path(meshcast.estimate.__file__).parent


@pytest.mark.parametrize("parameters", [GpuParameters, TpuParameters, Costs, SmParameters])
def test_every_fitted_parameter_is_read_by_a_model(parameters: type) -> None:
    read = {
        node.attr
        for path in MODELS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert {field.name for field in fields(parameters)} <= read
