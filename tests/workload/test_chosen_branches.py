"""Branches that a constant chooses are the ops of the branch that runs, wherever the constant was handed through."""

from __future__ import annotations

import pytest

from meshcast.workload import Op, OpKind, Workload
from tests.lower.programs import read_text

T = "tensor<8xf32>"
INT = "tensor<i32>"
PLATFORM = f"""
  %zero = stablehlo.constant dense<0> : {INT}
  %one = stablehlo.constant dense<1> : {INT}
  %p = "stablehlo.case"(%one) ({{
    stablehlo.return %zero : {INT}
  }}, {{
    %c = stablehlo.constant dense<1> : {INT}
    stablehlo.return %c : {INT}
  }}) : ({INT}) -> {INT}
"""


def case(number: str) -> str:
    return f"""
  %r = "stablehlo.case"({number}) ({{
    %e = stablehlo.exponential %x : {T}
    stablehlo.return %e : {T}
  }}, {{
    %t = stablehlo.tanh %x : {T}
    stablehlo.return %t : {T}
  }}) : ({INT}) -> {T}
"""


def main(body: str, functions: str = "") -> Workload:
    return read_text(f"func.func @main(%x: {T}, %n: {INT}) -> {T} {{{body}  return %r : {T}\n}}\n{functions}")


def names(workload: Workload) -> list[str]:
    ops: list[Op] = [op for op, _ in workload.body.walk() if op.cost.kind is not OpKind.GENERATE]
    return [op.name.partition("#")[0].removeprefix("stablehlo.") for op in ops]


@pytest.mark.parametrize(
    ("number", "runs"),
    [("%zero", "exponential"), ("%one", "tanh"), ("%p", "tanh"), ("%far", "tanh")],
)
def test_only_the_branch_that_a_constant_chooses_is_there(number: str, runs: str) -> None:
    far = f"  %far = stablehlo.constant dense<7> : {INT}\n"  # the last branch is for all other numbers
    workload = main(PLATFORM + far + case(number))
    assert names(workload) == [runs]
    assert not workload.warnings


def test_the_constant_may_be_handed_through_calls_and_loops() -> None:
    handed = f"""
  %q = func.call @same(%one) : ({INT}) -> {INT}
  %z:3 = stablehlo.while(%i = %zero, %k = %q, %x1 = %x) : {INT}, {INT}, {T} cond {{
    %four = stablehlo.constant dense<4> : {INT}
    %go = stablehlo.compare LT, %i, %four : ({INT}, {INT}) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %u = func.call @turn(%k, %x1) : ({INT}, {T}) -> {T}
    %j = stablehlo.add %i, %one : {INT}
    stablehlo.return %j, %k, %u : {INT}, {INT}, {T}
  }}
  %r = stablehlo.negate %z#2 : {T}
"""
    functions = f"""
func.func private @same(%a: {INT}) -> {INT} {{
  return %a : {INT}
}}
func.func private @turn(%k: {INT}, %x: {T}) -> {T} {{{case("%k")}  return %r : {T}
}}
"""
    workload = main(PLATFORM + handed, functions)
    assert names(workload) == ["while", "tanh", "add", "negate"]


def test_a_truth_value_chooses_the_first_region() -> None:
    body = f"""
  %yes = stablehlo.constant dense<true> : tensor<i1>
  %r = "stablehlo.if"(%yes) ({{
    %e = stablehlo.exponential %x : {T}
    stablehlo.return %e : {T}
  }}, {{
    stablehlo.return %x : {T}
  }}) : (tensor<i1>) -> {T}
"""
    assert names(main(body)) == ["exponential"]


def test_data_chooses_between_branches() -> None:
    workload = main(case("%n"))
    assert [op.name for op in workload.body.ops] == ["stablehlo.case"]
