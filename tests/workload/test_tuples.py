"""Custom calls that yield tuples, and functions that return them, as older exports and converted HLO have them."""

from __future__ import annotations

import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.programs import from_bytes
from meshcast.workload import Workload, read_workload
from meshcast.workload.shapes import SortGeometry

PAIR = "tuple<tensor<8x16xf32>, tensor<8x16xi32>>"
TOP_K = """
func.func public @main(%x: tensor<8x1024xf32>) -> (tensor<8x16xf32> {{jax.result_info = "v"}}, tensor<8x16xi32>) {{
  %0 = stablehlo.custom_call @{target}(%x) {{operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
    result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]}}
    : (tensor<8x1024xf32>) -> {pair}
  %1 = stablehlo.get_tuple_element %0[0] : ({pair}) -> tensor<8x16xf32>
  %2 = stablehlo.get_tuple_element %0[1] : ({pair}) -> tensor<8x16xi32>
  func.return %1, %2 : tensor<8x16xf32>, tensor<8x16xi32>
}}
"""


def read(text: str) -> Workload:
    return read_workload(from_bytes(text.encode(), name="fixture", where="fixture.mlir"))


@pytest.mark.parametrize("target", ["TopK", "__gpu$TopK", "custom_call_topk"])
def test_a_call_that_yields_a_tuple_yields_its_elements(target: str) -> None:
    workload = read(TOP_K.format(target=target, pair=PAIR))
    (op,) = workload.body.ops
    assert isinstance(op.cost.geometry, SortGeometry)
    assert (op.cost.geometry.length, op.cost.geometry.top) == (1024, 16)
    assert [workload.tensors[value].dtype for value in workload.body.outputs] == ["f32", "i32"]


def test_tuples_in_tuples_are_returned_by_their_elements() -> None:
    nested = f"tuple<tensor<8xf32>, {PAIR}>"
    workload = read(
        f"""
        func.func public @main(%x: tensor<8xf32>) -> (tuple<tensor<8xf32>, {nested}> {{jax.result_info = "all"}}) {{
          %0 = stablehlo.custom_call @TopK(%x) : (tensor<8xf32>) -> {nested}
          %1 = stablehlo.get_tuple_element %0[1] : ({nested}) -> {PAIR}
          %2 = stablehlo.get_tuple_element %0[0] : ({nested}) -> tensor<8xf32>
          %3 = stablehlo.tuple %2, %1 : {nested}
          %4 = stablehlo.add %2, %2 : tensor<8xf32>
          %5 = stablehlo.tuple %4, %3 : tuple<tensor<8xf32>, {nested}>
          func.return %5 : tuple<tensor<8xf32>, {nested}>
        }}
        """
    )
    assert [str(workload.tensors[value]) for value in workload.body.outputs] == [
        "f32[8]", "f32[8]", "f32[8,16]", "i32[8,16]"
    ]  # fmt: skip


def test_arguments_that_are_tuples_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="tuple"):
        read(
            """
            func.func public @main(%x: tuple<tensor<8xf32>>) -> tensor<8xf32> {
              %0 = stablehlo.get_tuple_element %x[0] : (tuple<tensor<8xf32>>) -> tensor<8xf32>
              func.return %0 : tensor<8xf32>
            }
            """
        )


HLO = """HloModule topk

%before (a: f32[], b: f32[], i: s32[], j: s32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %i = s32[] parameter(2)
  %j = s32[] parameter(3)
  ROOT %c = pred[] compare(%a, %b), direction=GT
}

ENTRY %main (x: f32[8,1024]) -> (f32[8,16], s32[8,16]) {
  %x = f32[8,1024]{1,0} parameter(0)
  ROOT %custom_call_topk = (f32[8,16], s32[8,16]) custom-call(%x), custom_call_target="TopK", called_computations={%before}
}
"""


def test_hlo_whose_result_is_the_calls_own_tuple_is_read() -> None:
    program = from_bytes(HLO.encode(), name="topk", where="topk.hlo")
    assert predict(program, on="h200").kernels == 1
