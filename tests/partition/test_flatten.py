"""Programs on one device are made flat: calls gone, equal work merged; XLA's own fusions stay as they are."""

from __future__ import annotations

from unittest.mock import patch

from meshcast.partition import inline
from meshcast.programs import Program, from_bytes


def program(mark: str = "") -> Program:
    """(x + x) * (x + x), where both sums are calls of one function."""
    call = f"func.call @twice(%x) {mark} : (tensor<4xf32>) -> tensor<4xf32>"
    text = f"""module {{
      func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %a = {call}
        %b = {call}
        %c = stablehlo.multiply %a, %b : tensor<4xf32>
        return %c : tensor<4xf32>
      }}
      func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %a = stablehlo.add %x, %x : tensor<4xf32>
        return %a : tensor<4xf32>
      }}
    }}"""
    return from_bytes(text.encode(), name="fixture", where="fixture.mlir")


def names(given: Program) -> list[str]:
    return [op.name for op, _ in given.workload().body.walk()]


def test_what_two_calls_compute_alike_is_computed_once() -> None:
    assert names(program().partition()) == ["stablehlo.add", "stablehlo.multiply"]


def test_fusions_of_a_compiler_are_left_alone() -> None:
    given = program('{meshcast.fusion = "kLoop"}')
    assert given.partition().module is given.module


def test_every_op_of_the_text_is_looked_at_once() -> None:
    """Two functions with four and two ops: nothing is walked again for every call, and no walk looks for fusions alone."""
    with patch.object(inline._Inliner, "flatten", autospec=True, side_effect=inline._Inliner.flatten) as walked:
        program().partition()
    assert walked.call_count == 2
