"""Sorts of programs that were compiled without a GPU: CUB's where a GPU would have made them so."""

from __future__ import annotations

import pytest

from meshcast.lower import Kernel
from meshcast.lower.compiled.scheduled_hlo import lower_scheduled
from meshcast.programs import from_bytes
from meshcast.workload import SortGeometry, read_workload

HLO = """HloModule m, is_scheduled=true

%less (a: u32[], b: u32[], c: s32[], d: s32[], e: s32[], f: s32[]) -> pred[] {
  %a = u32[] parameter(0)
  %b = u32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  %e = s32[] parameter(4)
  %f = s32[] parameter(5)
  %sooner = pred[] compare(%e, %f), direction=LT
  %more = pred[] compare(%b, %a), direction=LT
  %fewer = pred[] compare(%a, %b), direction=LT
  %same = pred[] compare(%fewer, %more), direction=EQ
  ROOT %first = pred[] select(%same, %sooner, %fewer)
}

%sorted (keys: u32[LENGTH], values: s32[LENGTH]) -> (u32[LENGTH], s32[LENGTH], s32[LENGTH]) {
  %keys = u32[LENGTH]{0} parameter(0)
  %values = s32[LENGTH]{0} parameter(1)
  %places = s32[LENGTH]{0} iota(), iota_dimension=0
  ROOT %s = (u32[LENGTH]{0}, s32[LENGTH]{0}, s32[LENGTH]{0}) sort(%keys, %values, %places), dimensions={0}, to_apply=%less
}

ENTRY %main {
  %p0 = u32[LENGTH]{0} parameter(0)
  %p1 = s32[LENGTH]{0} parameter(1)
  %fusion = (u32[LENGTH]{0}, s32[LENGTH]{0}, s32[LENGTH]{0}) fusion(%p0, %p1), kind=kCustom, calls=%sorted
  ROOT %out = s32[LENGTH]{0} get-tuple-element(%fusion), index=READ
}
"""


def sort(*, length: int, read: int = 1, tuned: bool = False) -> SortGeometry:
    text = HLO.replace("LENGTH", str(length)).replace("READ", str(read))
    workload = read_workload(from_bytes(text.encode(), name="m", where="m"))
    kernels: list[Kernel] = [kernel for kernel, _ in lower_scheduled(workload, tuned=tuned).schedule.walk()]
    assert [kernel.name for kernel in kernels] == ["fusion"]
    shape = kernels[0].geometry
    assert isinstance(shape, SortGeometry)
    return shape


def test_places_that_only_keep_the_order_are_not_needed_by_cub() -> None:
    shape = sort(length=1 << 20)
    assert (shape.operands, shape.radix) == (2, True)


@pytest.mark.parametrize("told", [{"length": 4096}, {"length": 1 << 20, "read": 2}, {"length": 1 << 20, "tuned": True}])
def test_other_sorts_are_as_the_program_has_them(told: dict[str, int]) -> None:
    """Rows that XLA sorts itself, places that are read, and programs that were compiled on a GPU."""
    shape = sort(**told)  # type: ignore[arg-type]
    assert (shape.operands, shape.radix) == (3, None)
