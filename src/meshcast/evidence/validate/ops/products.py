"""Programs of products: matrix products as they were measured (alone, in a chain, with what is fused behind), convolutions.

`M` rows, `N` columns, `K` summed over. In cocossim's chain (`probes/g_sweep.py`) a step adds the row sums of `x w` to `x`,
so that every element of the product counts and none can be left out; chains whose notes say `chain N wall` feed the
product itself back (`c1v2_chained.py`, `c5_vmem_cliff.py`).
"""

from __future__ import annotations

import re

from meshcast.base import InputError
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.evidence.validate.ops.stablehlo_text import ModuleText, Value, tensor_type

_CLASS = re.compile(r"\(class (\w+)")
_FEEDBACK = 1e-3


def matmul_text(row: OpRow) -> str:
    """One product."""
    rows, columns, depth = (row.number(name) for name in "MNK")
    m = ModuleText("matmul")
    x, w = m.argument((rows, depth), row.element), m.argument((depth, columns), row.element)
    if row.trips > 1:
        return m.finish(*m.loop(row.trips, [x], lambda carried: [_fed_back(m, row, carried[0], w)]))
    y = m.dot(x, w)
    return m.finish(_epilogue(m, row, y))


def _fed_back(m: ModuleText, row: OpRow, x: Value, w: Value) -> Value:
    y = m.dot(x, w)
    if "wall" in row.notes and y.shape == x.shape:
        return m.convert(y, x.dtype)
    sums = m.reduce("add", m.convert(y, "f32"), [1])
    small = m.convert(m.by_constant("multiply", sums, _FEEDBACK), x.dtype)
    return m.binary("add", x, m.broadcast(small, x.shape, [0]))


def _epilogue(m: ModuleText, row: OpRow, y: Value) -> Value:
    """What XLA fuses behind a projection in a transformer: the residual behind `o` and `down`, silu behind the gate."""
    found = _CLASS.search(row.notes) if "epilogues fused" in row.notes else None
    if found and found[1] in ("o", "down"):
        return m.binary("add", y, m.argument(y.shape, y.dtype))
    if found and found[1] == "gate_up":
        return m.binary("multiply", y, m.unary("logistic", y))
    return y


def mlp_text(row: OpRow) -> str:
    """`(silu(x w1) * up) w2`: one projection up and the one down in a single fusion."""
    rows, model, hidden = (row.number(name) for name in "MDF")
    m = ModuleText("mlp")
    x, up = m.argument((rows, model), row.element), m.argument((rows, hidden), row.element)
    first, second = m.argument((model, hidden), row.element), m.argument((hidden, model), row.element)
    gate = m.dot(x, first)
    gated = m.binary("multiply", m.binary("multiply", gate, m.unary("logistic", gate)), up)
    return m.finish(m.dot(gated, second))


def dot_text(row: OpRow) -> str:
    """The scalar product of two vectors."""
    m = ModuleText("dot")
    x, y = (m.argument((row.number("elements", "K"),), row.element) for _ in range(2))
    return m.finish(m.dot(x, y, contracting=(0, 0)))


def convolution_text(row: OpRow) -> str:
    """A convolution without padding, `[N, C, H, W]` by `[K, C, R, S]`, as SCALE-Sim-validation calls it."""
    batch, channels, height, width, filters, high, wide = (row.number(name) for name in "NCHWKRS")
    stride = row.number("stride") if "stride" in row.shape else 1
    out = (batch, filters, (height - high) // stride + 1, (width - wide) // stride + 1)
    if min(out) < 1:
        raise InputError(f"a filter of {high}x{wide} does not fit into {height}x{width}", where=row.id)
    m = ModuleText("convolution")
    x = m.argument((batch, channels, height, width), row.element)
    w = m.argument((filters, channels, high, wide), row.element)
    text = (
        f"stablehlo.convolution({x.name}, {w.name}) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = "
        f"{{stride = [{stride}, {stride}]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : "
        f"({x.type}, {w.type}) -> {tensor_type(out, x.dtype)}"
    )
    return m.finish(m.op(text, out, x.dtype))
