"""What an operator of PyTorch computes and moves, by the shapes of its tensors: what a trace can be timed again from.

Products have 2 M N K operations (an addition more an element where a bias is added), convolutions 2 N K C R S P Q, and as many
for each gradient of one; of everything else the elements that come out are counted, one operation each. Bytes are those of the
tensors that go in and come out, but of look-ups, which read the rows that are looked up and not the whole table: as many elements
as come out, times the indices of each row that comes out where several are summed up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from meshcast.traces.recorded.collectives import tensor_bytes
from meshcast.traces.recorded.operators import Operator

DTYPES = {
    "float": "f32", "double": "f64", "c10::half": "f16", "half": "f16", "c10::bfloat16": "bf16", "bfloat16": "bf16",
    "c10::float8_e4m3fn": "f8E4M3FN", "c10::float8_e5m2": "f8E5M2",
}  # fmt: skip


def _product(shapes: Sequence[Any]) -> float:
    (*batch, rows, depth), columns = shapes[0], shapes[1][-1]
    return float(2 * math.prod(batch) * rows * depth * columns)


def _biased_product(shapes: Sequence[Any]) -> float:
    rows, columns = shapes[1][-2], shapes[2][-1]
    return _product(shapes[1:]) + float(math.prod(shapes[1][:-2]) * rows * columns)


def _convolution(operator: Operator) -> float:
    filters, written = operator.shapes[1], operator.out_shapes[0]
    return float(2 * math.prod(written) * math.prod(filters[1:]))


def _convolution_gradients(operator: Operator) -> float:
    """As many as forward for each of the gradients of what went in and of the filters, by that of what came out."""
    given, filters = operator.shapes[0], operator.shapes[2]
    wanted = sum(bool(_is_shape(shape) and shape) for shape in operator.out_shapes[:2])
    return float(2 * math.prod(given) * math.prod(filters[1:]) * wanted)


PRODUCTS: dict[str, Callable[[Sequence[Any]], float]] = {
    "aten::mm": _product, "aten::bmm": _product, "aten::_scaled_mm": _product, "aten::addmm": _biased_product,
    "aten::baddbmm": _biased_product, "aten::addbmm": _biased_product,
}  # fmt: skip
# Operators that read a part of their largest tensor, by a list of places.
PLAIN_LOOK_UPS = (
    "aten::embedding",
    "aten::index_select",
    "aten::gather",
    "aten::index",
    "aten::take",
    "aten::take_along_dim",
)
SUMMED_LOOK_UPS = ("aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only")
PLACES = ("Tensor(int)", "Tensor(long int)")
FUSED_LOOK_UP = re.compile(
    r"fbgemm::.*lookup.*function"
)  # of many tables, whose rows lie behind each other in one tensor
CONVOLUTIONS = ("aten::cudnn_convolution", "aten::convolution", "aten::_convolution", "aten::miopen_convolution")

CONVOLUTION_GRADIENTS = "aten::convolution_backward"


def work_of(operator: Operator) -> tuple[int, int, int, str]:
    """Operations, those of products among them, bytes, and the type of arithmetic; nothing where shapes do not say."""
    moved = _moved(operator)
    dtype = next((found for kind in operator.types if (found := _dtype(str(kind)))), "")
    try:
        if operator.name in PRODUCTS:
            matrix = PRODUCTS[operator.name](operator.shapes)
        elif operator.name in CONVOLUTIONS:
            matrix = _convolution(operator)
        elif operator.name == CONVOLUTION_GRADIENTS:
            matrix = _convolution_gradients(operator)
        else:
            matrix = 0.0
    except (IndexError, TypeError, ValueError):  # shapes of another form than the operator's own
        matrix = 0.0
    plain = sum(math.prod(shape) for shape in operator.out_shapes if _is_shape(shape))
    return round(matrix) or plain, round(matrix), moved, dtype


def _moved(operator: Operator) -> int:
    """Bytes of what an operator reads and writes."""
    written = tensor_bytes(operator.out_values, operator.out_types)
    if not operator.out_values or (
        operator.name not in (*PLAIN_LOOK_UPS, *SUMMED_LOOK_UPS) and not FUSED_LOOK_UP.fullmatch(operator.name)
    ):
        return tensor_bytes(operator.values, operator.types) + written
    tensors = [
        (tensor_bytes([value], [kind]), str(kind)) for value, kind in zip(operator.values, operator.types, strict=False)
    ]
    places = sum(size for size, kind in tensors if kind in PLACES)
    table = max((size for size, kind in tensors if kind not in PLACES), default=0)
    return places + min(table, round(written * max(1.0, _summed_up(operator)))) + written


def _summed_up(operator: Operator) -> float:
    """Rows that are summed up into one that comes out: of the longest two lists of places, which may be of several types, the one
    has the places and the other where each sum begins, with FBGEMM's tables where the last one ends too.
    """
    if operator.name in PLAIN_LOOK_UPS:
        return 1.0
    lists = sorted(
        value[3]
        for value, kind in zip(operator.values, operator.types, strict=False)
        if str(kind) in PLACES and isinstance(value, list) and len(value) > 3
    )
    sums = (lists[-2] - (FUSED_LOOK_UP.fullmatch(operator.name) is not None)) if len(lists) > 1 else 0
    return lists[-1] / sums if sums > 0 else 1.0


def _dtype(kind: str) -> str:
    return DTYPES.get(kind.removeprefix("Tensor(").removesuffix(")").lower(), "") if kind.startswith("Tensor(") else ""


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(each) is int for each in shape)
