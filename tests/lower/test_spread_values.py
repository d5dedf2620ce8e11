"""What is spread has an order of its own; what is converted has not."""

from __future__ import annotations

import pytest

from meshcast.lower.spread_values import spread_from
from meshcast.workload import Cost, Op, OpKind, Tensor

ROW, WHOLE, WIDE, SUM = range(4)
TENSORS = (Tensor((64,), "bf16"), Tensor((128, 64), "bf16"), Tensor((128, 64), "f32"), Tensor((64,), "f32"))
REDUCE = Op(name="stablehlo.reduce", cost=Cost(kind=OpKind.REDUCE), operands=(WIDE,), results=(SUM,))


def _op(kind: OpKind, read: int, made: int) -> Op:
    cost = Cost(kind=kind, operand_bytes=(TENSORS[read].bytes,), written_bytes=TENSORS[made].bytes)
    return Op(name="stablehlo.op", cost=cost, operands=(read,), results=(made,))


@pytest.mark.parametrize(
    ("ops", "elements"),
    [
        ((_op(OpKind.ELEMENTWISE, WHOLE, WIDE), REDUCE), 128 * 64),
        ((_op(OpKind.BROADCAST, ROW, WIDE), REDUCE), 64),
        ((_op(OpKind.BROADCAST, ROW, WHOLE), _op(OpKind.ELEMENTWISE, WHOLE, WIDE), REDUCE), 64),
    ],
)
def test_elements_that_a_value_is_made_of(ops: tuple[Op, ...], elements: int) -> None:
    producers = range(len(ops) - 1)
    assert spread_from(ops, [op.operands for op in ops], producers, TENSORS)(WIDE) == elements
