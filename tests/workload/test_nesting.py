"""Regions and calls in each other: read once, counted as often as they run, refused where nobody could go on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import meshcast as mc
from benchmarks.programs_by_size import calls, nested_branches, nested_loops
from meshcast.base.errors import UnsupportedError
from meshcast.partition import partition
from meshcast.programs.files import from_bytes
from meshcast.programs.program import Program
from meshcast.workload import read_workload
from meshcast.workload.graph import Block

ELEMENTS = 64 * 64
LIMIT = 400  # calls in each other


def program(text: str) -> Program:
    return from_bytes(text.encode(), name="program", where="test")


def test_the_costlier_branch_is_found_in_one_visit_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    weight = Block.weight.func  # type: ignore[attr-defined]

    def counting(block: Block) -> float:
        nonlocal asked
        asked += 1
        return float(weight(block))

    monkeypatch.setattr(Block.weight, "func", counting)
    for depth in (8, 16):
        asked = 0
        workload = read_workload(program(nested_branches(depth)))
        assert workload.totals.transcendentals == ELEMENTS
        assert asked == 2 * depth


@pytest.mark.parametrize("text", [nested_loops, nested_branches])
def test_more_in_each_other_than_the_interpreter_lets_calls_be_are_answered(text: Callable[[int], str]) -> None:
    """In every walk of a prediction; the limit is set to less than the usual thousand, which takes seconds to walk through."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(LIMIT)
    try:
        found = mc.predict(program(text(LIMIT)), on="h200")
    finally:
        sys.setrecursionlimit(before)
    assert found.step_time_s is not None
    assert found.step_time_s > 0


def test_a_thousand_in_each_other_are_read() -> None:
    block, depth = read_workload(program(nested_loops(1000))).body, 0
    while inner := [op.blocks[-1] for op in block.ops if op.blocks]:
        (block,) = inner
        depth += 1
    assert depth == 1000


def test_two_thousand_and_one_are_refused_before_the_parser_aborts() -> None:
    with pytest.raises(UnsupportedError, match="nested 6,001 deep"):
        program(nested_loops(6000))


def test_loops_that_run_longer_than_numbers_go_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"2\^1,001 times"):
        mc.predict(program(nested_loops(1001)), on="h200")


@pytest.mark.parametrize("depth", [4, 40])
def test_calls_count_as_often_as_they_run(depth: int) -> None:
    """Functions that call each other twice: 2^depth additions, of 4,096 elements each, whether inlined or counted."""
    run = mc.prepare(program(calls(depth)), mc.Options(on="h200"))
    assert run.predict().flops == 2**depth * ELEMENTS
    assert len(run.workload.body.ops) < 40_000
    counted = any("counted as often as they run" in warning for warning in run.workload.warnings)
    assert counted == (depth > 15)


def test_a_function_that_calls_itself_is_named() -> None:
    kind = "(tensor<f32>) -> tensor<f32>"
    text = f"""func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
      %y = call @f(%x) : {kind}
      return %y : tensor<f32> }}
    func.func private @f(%x: tensor<f32>) -> tensor<f32> {{
      %y = call @f(%x) : {kind}
      return %y : tensor<f32> }}"""
    with pytest.raises(UnsupportedError, match="@f -> @f"):
        read_workload(program(text))


def test_an_entry_function_that_calls_itself_is_named() -> None:
    """It is the only function there is, which partitioning does not look through for calls of others."""
    text = """func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %y = call @main(%x) : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32> }"""
    with pytest.raises(UnsupportedError, match="@main -> @main"):
        read_workload(partition(program(text)))


def test_the_limit_on_recursion_is_the_callers_again(tmp_path: Path) -> None:
    """A prediction of what it has lowered before needs the room again, though nothing is read."""
    path = tmp_path / "nested.mlir"
    path.write_text(nested_loops(300))
    loaded, before = program(path.read_text()), sys.getrecursionlimit()
    sys.setrecursionlimit(1500)
    try:
        times = {mc.predict(path, on="h200").step_time_s, mc.predict(loaded, on="h200").step_time_s}
        assert sys.getrecursionlimit() == 1500
    finally:
        sys.setrecursionlimit(before)
    assert len(times) == 1
