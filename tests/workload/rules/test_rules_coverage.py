"""Every op of both dialects, as the installed jaxlib defines them, is costed, handled by the reader, or refused."""

from __future__ import annotations

import inspect

import pytest
from jaxlib.mlir.dialects import _chlo_ops_gen, _stablehlo_ops_gen

from meshcast.programs.quantised import CONVERSIONS
from meshcast.workload.rules import REFUSED, RULES, STRUCTURAL


def _operation_names(module: object) -> set[str]:
    names = (getattr(member, "OPERATION_NAME", None) for _, member in inspect.getmembers(module, inspect.isclass))
    return {name for name in names if isinstance(name, str)}


@pytest.mark.parametrize("module", [_stablehlo_ops_gen, _chlo_ops_gen], ids=["stablehlo", "chlo"])
def test_every_op_of_the_dialect_is_known(module: object) -> None:
    names = _operation_names(module)
    assert len(names) > 40
    written_out = {f"stablehlo.{op}" for op in CONVERSIONS}  # before a text is parsed
    assert names - (RULES.keys() | REFUSED.keys() | STRUCTURAL | written_out) == set()


def test_an_op_is_in_one_place_only() -> None:
    assert not RULES.keys() & STRUCTURAL
    assert not RULES.keys() & REFUSED.keys()
    assert not REFUSED.keys() & STRUCTURAL


def test_no_rule_is_for_an_op_that_does_not_exist() -> None:
    known = _operation_names(_stablehlo_ops_gen) | _operation_names(_chlo_ops_gen)
    assert RULES.keys() - known == set()
    # collective_reduce came after jaxlib 0.10.
    assert STRUCTURAL - known <= {"func.call", "stablehlo.collective_reduce"}


def test_refusals_say_why() -> None:
    assert len(REFUSED) <= 3
    assert all(len(reason) > 20 for reason in REFUSED.values())
