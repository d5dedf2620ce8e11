"""Costs of packed elements as fusion weighs them: a byte each; and convolutions that read their operands as they are stored."""

from __future__ import annotations

import pytest

from meshcast.lower import Kernel
from meshcast.lower.fusion.packed_elements import in_bytes
from meshcast.programs.files import from_bytes
from meshcast.workload import Convolution, Cost, Op, OpKind, Tensor


def op(operands: tuple[int, ...], results: tuple[int, ...], read: tuple[int, ...], written: int) -> Op:
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="i4", operand_bytes=read, written_bytes=written)
    return Op(name="stablehlo.add", cost=cost, operands=operands, results=results)


def test_every_packed_element_counts_a_byte() -> None:
    tensors = [Tensor((3, 5), "i4"), Tensor((3, 5), "i2"), Tensor((3, 5), "f32"), Tensor((3, 5), "i2")]
    (made,), types = in_bytes([op((0, 1, 2), (3,), (8, 4, 60), 4)], tensors)
    assert made.cost.operand_bytes == (15, 15, 60)  # 8 and 4 bytes hold 15 elements, the last byte not full
    assert made.cost.written_bytes == 15
    assert [str(each) for each in types] == ["i8[3,5]", "i8[3,5]", "f32[3,5]", "i8[3,5]"]


def test_a_part_of_a_tensor_is_unpacked_in_proportion() -> None:
    tensors = [Tensor((64,), "i4"), Tensor((16,), "i4")]
    (made,), _ = in_bytes([op((0,), (1,), (8,), 8)], tensors)
    assert (made.cost.operand_bytes, made.cost.written_bytes) == ((16,), 16)


def test_nothing_changes_where_nothing_is_packed() -> None:
    ops, tensors = [op((0,), (1,), (64,), 64)], [Tensor((64,), "i8"), Tensor((64,), "i8")]
    assert in_bytes(ops, tensors) == (ops, tensors)
    assert in_bytes(ops, tensors)[0] is ops


def test_a_convolution_reads_the_narrower_operand_as_it_is_stored() -> None:
    text = """
    func.func @main(%x: tensor<8x16x16x32xi4>, %w: tensor<64x3x3x32xi8>) -> tensor<8x14x14x64xi32> {
      %0 = stablehlo.convert %x : (tensor<8x16x16x32xi4>) -> tensor<8x16x16x32xi8>
      %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<8x16x16x32xi8>, tensor<64x3x3x32xi8>) -> tensor<8x14x14x64xi32>
      return %1 : tensor<8x14x14x64xi32>
    }
    """
    lowered = from_bytes(text.encode(), name="convolution", where="convolution.mlir").workload().lower()
    (only,) = (step for step in lowered.schedule.steps if isinstance(step, Kernel))
    assert isinstance(only.geometry, Convolution)
    assert (only.geometry.lhs_dtype, only.geometry.rhs_dtype, only.dtype) == ("i4", "i8", "i8")
    assert only.read_bytes == 8 * 16 * 16 * 32 // 2 + 64 * 9 * 32


@pytest.mark.parametrize(
    ("dtype", "shape", "order", "fills"),
    [
        ("i4", (128, 4096), (1, 0), True),
        ("i4", (64, 4096), (1, 0), False),  # 32 bytes
        ("i4", (4100, 2052), (1, 0), False),  # no whole words
        ("i2", (256, 4096), (1, 0), True),
        ("i2", (128, 4096), (1, 0), False),
        ("i2", (1000, 3000), (1, 0), False),
        ("i2", (1008, 3008), (1, 0), True),
        ("i4", (4, 16, 16, 128), (0, 3, 1, 2), True),  # 256 by 128, images at once
        ("i4", (4, 16, 16, 64), (0, 3, 1, 2), False),
    ],
)
def test_transposes_of_packed_elements_go_through_tiles_that_they_fill(
    dtype: str, shape: tuple[int, ...], order: tuple[int, ...], fills: bool
) -> None:
    given, made = ("x".join(map(str, sizes)) for sizes in (shape, [shape[d] for d in order]))
    text = f"""
    func.func @main(%x: tensor<{given}x{dtype}>) -> tensor<{made}x{dtype}> {{
      %0 = stablehlo.transpose %x, dims = [{", ".join(map(str, order))}] : (tensor<{given}x{dtype}>) -> tensor<{made}x{dtype}>
      return %0 : tensor<{made}x{dtype}>
    }}
    """
    lowered = from_bytes(text.encode(), name="turn", where="turn.mlir").workload().lower()
    (only,) = (step for step in lowered.schedule.steps if isinstance(step, Kernel))
    assert "turned" in only.flags
    assert ("unpacked" not in only.flags) == fills
