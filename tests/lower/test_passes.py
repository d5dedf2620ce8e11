"""The tables of passes: the page has the same ones, a pass that does not apply is not run, and bodies are lowered by all."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from benchmarks.programs_by_size import chain
from meshcast.lower import BranchStep, LoopStep, lower
from meshcast.lower import pass_tables as tables
from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.passes import LoweringPass, PassTable
from meshcast.programs import from_bytes
from meshcast.workload import OpKind, read_workload

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lowering.md"
LOWER = ROOT / "src" / "meshcast" / "lower"
COLUMNS = {2: tables.XLA_GPU, 3: tables.EAGER_GPU, 4: tables.XLA_TPU, 5: tables.UNFUSED}
# A loop, and a branch in it.
NESTED = """
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<8xf32> cond {
    %four = stablehlo.constant dense<4> : tensor<i32>
    %c = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %b = "stablehlo.case"(%n) ({
      %e = stablehlo.exponential %a : tensor<8xf32>
      stablehlo.return %e : tensor<8xf32>
    }, {
      %t = stablehlo.tanh %a : tensor<8xf32>
      stablehlo.return %t : tensor<8xf32>
    }) : (tensor<i32>) -> tensor<8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<8xf32>
  }
  return %r#1 : tensor<8xf32>
}
"""


def _rows() -> list[list[str]]:
    """The page's table, a list of cells a pass."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == 8 and row[0] in ("ops", "steps", "program")]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_page_has_the_passes_of_every_backend_in_order(column: int) -> None:
    table = COLUMNS[column]
    for stage in ("ops", "steps", "program"):
        told = [row[1] for row in _rows() if row[0] == stage and row[column] == "x"]
        assert told == [each.name for each in getattr(table, stage)]


def _called(run: Callable[..., None]) -> Iterator[str]:
    """Modules below `lower` whose functions and classes a pass names, its own helpers and what all passes work on aside."""
    assert isinstance(run, FunctionType)
    codes: list[CodeType] = [run.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        for name in code.co_names:
            made: Any = run.__globals__.get(name)
            home = getattr(made, "__module__", "") if callable(made) else ""
            if home.startswith("meshcast.lower.") and home.rpartition(".")[2] not in ("draft", "kernel", "passes"):
                yield home.removeprefix("meshcast.lower.")


def test_the_page_tells_where_each_pass_is_done() -> None:
    """In the modules whose functions it calls; of a pass that calls none in its own."""
    places: dict[tuple[str, str], set[str]] = {}
    for table in COLUMNS.values():
        for stage in ("ops", "steps", "program"):
            for each in getattr(table, stage):
                homes = set(_called(each.run)) or {each.run.__module__.removeprefix("meshcast.lower.")}
                places.setdefault((stage, each.name), set()).update(homes)
    told = {(row[0], row[1]): {name.strip(" `") for name in row[7].split(",")} for row in _rows()}
    assert told == {key: {f"{home.replace('.', '/')}.py" for home in homes} for key, homes in places.items()}
    assert places["ops", "vector products"] == {"layouts.orders_of_sums", "products.vector_products"}
    assert places["ops", "buffers"] == {"block_passes"}


def test_the_page_has_every_room_with_its_job() -> None:
    jobs = {
        f"`lower/{path.parent.name}/`": ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        for path in LOWER.glob("*/__init__.py")
    }
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    assert {row[0]: row[1] for row in rows if len(row) == 2 and row[0].startswith("`lower/")} == jobs
    assert len(jobs) > 10


def test_modules_on_the_page_are_there() -> None:
    """Told from `lower/` on, or from a package on."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 50
    assert {name for name in named if not any((home / name).exists() for home in (LOWER, LOWER.parent, ROOT))} == set()


def test_names_are_each_one_pass_of_a_table_and_say_what_they_do() -> None:
    for table in COLUMNS.values():
        assert len(set(table.names)) == len(table.names)
        assert all(each.does for each in (*table.ops, *table.steps))
        assert all(each.does for each in table.program)


def test_the_driver_runs_the_passes_that_apply_on_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, bool]] = []
    passes = replace(
        tables.UNFUSED,
        ops=(
            *tables.UNFUSED.ops,
            LoweringPass[BlockDraft]("any", "", lambda draft: ran.append(("ops", draft.looped))),
            LoweringPass[BlockDraft]("never", "", lambda _: ran.append(("never", True)), lambda _: False),
        ),
        steps=(LoweringPass[BlockDraft]("any", "", lambda draft: ran.append(("steps", draft.looped))),),
        program=(LoweringPass[ProgramDraft]("whole", "", lambda draft: ran.append(("program", False))),),
    )
    monkeypatch.setitem(tables.TABLES, "none", {"compiler": passes, "eager": passes})
    lowered = lower(read_workload(from_bytes(NESTED.encode(), name="nested", where="nested")), backend="none")
    (loop,) = lowered.schedule.steps
    assert isinstance(loop, LoopStep)
    assert any(isinstance(step, BranchStep) for step in loop.body.steps)
    inner = [("ops", True), ("steps", True)]  # of a branch: as the loop around it says
    assert ran == [("ops", False), ("ops", True), *inner, *inner, ("steps", True), ("steps", False), ("program", False)]


def test_what_is_asked_for_decides_which_passes_apply() -> None:
    workload = read_workload(from_bytes(NESTED.encode(), name="nested", where="nested"))
    asked = ProgramDraft(workload=workload, fusion="eager", attention="cudnn", layers="scanned", ragged="grouped")

    def idle(table: PassTable, draft: ProgramDraft) -> set[str]:
        return {each.name for each in table.program if not each.applies(draft)}

    assert idle(tables.XLA_GPU, asked) == {
        "separate layers",
        "layerwise weights",
        "answers",
        "updated slices",
        "loop copies",
        "fused copies",
    }  # nothing is lowered yet
    assert idle(tables.XLA_GPU, replace(asked, layers="separate")) == {
        "answers",
        "updated slices",
        "donated copies",
        "loop copies",
        "fused copies",
    }
    assert idle(tables.XLA_TPU, asked) == {
        "returned copies",  # an eager framework returns the very tensor
        "laid-out images",  # it has no convolutions
        "halves",
    }
    assert idle(tables.XLA_TPU, replace(asked, fusion="compiler")) == {
        "laid-out images",
        "halves",  # it has no f16
    }


def test_passes_that_nothing_concerns_are_not_run() -> None:
    """A chain of products and additions: no views, groups, vectors, transposes, loops, scatters, reductions, updates."""
    workload = read_workload(from_bytes(chain(20).encode(), name="chain", where="chain"))
    program = ProgramDraft(workload=workload, fusion="compiler", attention="cudnn", layers="scanned", ragged="masked")
    draft = BlockDraft(program=program, block=workload.body, writable=frozenset(), looped=False)
    ran = []
    for each in tables.XLA_GPU.ops:
        if each.applies(draft):
            ran.append(each.name)
            each.run(draft)
    assert ran == ["dead code", "empty arrays", "stored weights", "merged products", "buffers", "fusion"]


def test_a_block_knows_the_costs_of_the_ops_that_it_has_now() -> None:
    workload = read_workload(from_bytes(NESTED.encode(), name="nested", where="nested"))
    program = ProgramDraft(workload=workload, fusion="compiler", attention="cudnn", layers="scanned", ragged="masked")
    draft = BlockDraft(program=program, block=workload.body, writable=frozenset(), looped=False)
    draft.ops = workload.body.ops
    assert draft.kinds == {OpKind.GENERATE, OpKind.LOOP}
    draft.ops = [op for op in workload.body.ops if not op.blocks]
    assert draft.kinds == {OpKind.GENERATE}
    assert {id(cost) for cost in draft.costs} == {id(op.cost) for op in draft.ops}
