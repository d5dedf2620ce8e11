"""Programs of elementwise ops, normalisations and reads, as their sources wrote them.

The functions are those of SCALE-Sim-validation (`kernel_functions.py`: its sigmoid is `1 / (1 + exp(-x))`, its binary step
gives f32) and of cocossim's probes (`probes/e1_chained.py`, `k1_kv_gather.py`, `c4_stream.py`: in a chain of steps the
carry is the whole result, a read feeds its sum back, and a chained exponential is `exp(-|x|)`, which stays finite).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.evidence.validate.ops.stablehlo_text import ModuleText, Value
from meshcast.workload import DTYPE_BITS

Function = Callable[[ModuleText, Value], Value]
EPSILON = 1e-5
_FEEDBACK = 1e-9  # keeps a sum that is fed back small


def _relu(m: ModuleText, x: Value) -> Value:
    return m.by_constant("maximum", x, 0.0)


def _sigmoid(m: ModuleText, x: Value) -> Value:
    one = m.constant(1.0, x.dtype, x.shape)
    return m.binary("divide", one, m.binary("add", one, m.unary("exponential", m.unary("negate", x))))


def _silu(m: ModuleText, x: Value) -> Value:
    return m.binary("multiply", x, m.unary("logistic", x))


def _gelu(m: ModuleText, x: Value) -> Value:
    cube = m.binary("multiply", x, m.binary("multiply", x, x))
    inner = m.binary("add", x, m.by_constant("multiply", cube, 0.044715))
    curve = m.unary("tanh", m.by_constant("multiply", inner, math.sqrt(2 / math.pi)))
    return m.binary("multiply", x, m.by_constant("multiply", m.by_constant("add", curve, 1.0), 0.5))


def _leaky_relu(m: ModuleText, x: Value) -> Value:
    return m.binary("maximum", m.by_constant("multiply", x, 0.1), x)


def _elu(m: ModuleText, x: Value) -> Value:
    return m.select(m.above(x, 0.0), x, m.by_constant("multiply", _less_one(m, x), 1.0))


def _selu(m: ModuleText, x: Value) -> Value:
    low = m.by_constant("multiply", _less_one(m, x), 1.6732632)
    return m.by_constant("multiply", m.select(m.above(x, 0.0), x, low), 1.050701)


def _less_one(m: ModuleText, x: Value) -> Value:
    return m.by_constant("subtract", m.unary("exponential", x), 1.0)


def _prelu(m: ModuleText, x: Value) -> Value:
    return m.select(m.above(x, 0.0), x, m.by_constant("multiply", x, 0.25))


def _linear(m: ModuleText, x: Value) -> Value:
    return m.by_constant("add", m.by_constant("multiply", x, 1.0), 0.0)


def _binary_step(m: ModuleText, x: Value) -> Value:
    one, zero = m.constant(1.0, "f32", x.shape), m.constant(0.0, "f32", x.shape)
    return m.select(m.above(x, 0.0), one, zero)


def _copy(m: ModuleText, x: Value) -> Value:
    """XLA drops the transpose and copies the argument to its result; the mark tells our own reader so."""
    dims = ", ".join(map(str, range(len(x.shape))))
    text = f"stablehlo.transpose {x.name}, dims = [{dims}] {{meshcast.copy}} : ({x.type}) -> {x.type}"
    return m.op(text, x.shape, x.dtype)


def _softmax(m: ModuleText, x: Value) -> Value:
    last, kept = len(x.shape) - 1, range(len(x.shape) - 1)
    top = m.reduce("maximum", x, [last], -1e4)
    weights = m.unary("exponential", m.binary("subtract", x, m.broadcast(top, x.shape, kept)))
    total = m.convert(m.reduce("add", m.convert(weights, "f32"), [last]), x.dtype)
    return m.binary("divide", weights, m.broadcast(total, x.shape, kept))


def _mean(m: ModuleText, x: Value) -> Value:
    """Over the innermost dimension, summed in f32 and given in the type of `x`, as jnp.mean does."""
    total = m.reduce("add", m.convert(x, "f32"), [len(x.shape) - 1])
    return m.convert(m.by_constant("divide", total, x.shape[-1]), x.dtype)


def _scaled(m: ModuleText, x: Value, scale: Value) -> Value:
    """`x` over `sqrt(scale + eps)`, times f32 ones, plus f32 zeros: the result is f32, as the source's is."""
    spread = range(len(x.shape) - 1)
    deviation = m.unary("sqrt", m.by_constant("add", scale, EPSILON))
    wide = m.convert(m.binary("divide", x, m.broadcast(deviation, x.shape, spread)), "f32")
    return m.by_constant("add", m.by_constant("multiply", wide, 1.0), 0.0)


def _layer_norm(m: ModuleText, x: Value) -> Value:
    spread = range(len(x.shape) - 1)
    wide = m.convert(x, "f32")
    centred = m.binary("subtract", wide, m.broadcast(m.convert(_mean(m, x), "f32"), x.shape, spread))
    variance = m.convert(_mean(m, m.binary("multiply", centred, centred)), x.dtype)
    return _scaled(m, m.binary("subtract", x, m.broadcast(_mean(m, x), x.shape, spread)), variance)


def _rms_norm(m: ModuleText, x: Value) -> Value:
    return _scaled(m, x, _mean(m, m.binary("multiply", x, x)))


FUNCTIONS: Mapping[str, Function] = {
    "relu": _relu, "sigmoid": _sigmoid, "logistic": _sigmoid, "silu": _silu, "swish": _silu, "gelu": _gelu,
    "leaky_relu": _leaky_relu, "elu": _elu, "selu": _selu, "prelu": _prelu, "linear": _linear,
    "binary_step": _binary_step, "copy": _copy, "softmax": _softmax, "layer_norm": _layer_norm, "rms_norm": _rms_norm,
}  # fmt: skip
ALIASES = {"exp": "exponential", "sub": "subtract", "mul": "multiply", "div": "divide", "square_root": "sqrt"}
UNARY = (
    "exponential", "rsqrt", "sqrt", "tanh", "log", "abs", "negate", "sine", "cosine", "exponential_minus_one",
    "log_plus_one", "floor", "ceil", "cbrt", "sign",
)  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or", "xor")
NORMS = ("layer_norm", "rms_norm", "softmax")
REDUCTIONS = ("reduce_read", "reduce", "reduce_sum", "sum", "read_only")


def elementwise_text(row: OpRow) -> str:
    """The program of a function of one or two tensors, in a chain where it was measured in one."""
    op = ALIASES.get(row.op, row.op)
    m = ModuleText(op)
    x = m.argument(_shape(row), row.element)
    if op in BINARY:
        y = m.argument(x.shape, x.dtype)
        return m.finish(*m.loop(row.trips, [x], lambda carried: [m.binary(op, carried[0], y)]))

    def step(value: Value) -> Value:
        if op == "exponential" and row.trips > 1:
            value = m.unary("negate", m.unary("abs", value))
        made = FUNCTIONS[op](m, value) if op in FUNCTIONS else m.unary(op, value)
        return m.convert(made, value.dtype) if row.trips > 1 else made

    return m.finish(*m.loop(row.trips, [x], lambda carried: [step(carried[0])]))


def stream_text(row: OpRow) -> str:
    """`s x` (copy_scale) and `s x + y` (triad)."""
    m = ModuleText(row.op)
    x = m.argument(_shape(row), row.element)
    y = m.argument(x.shape, x.dtype) if row.op == "triad" else None

    def step(value: Value) -> Value:
        scaled = m.by_constant("multiply", value, 1.5)
        return m.binary("add", scaled, y) if y is not None else scaled

    return m.finish(*m.loop(row.trips, [x], lambda carried: [step(carried[0])]))


def reduction_text(row: OpRow) -> str:
    """A sum of everything in f32, of a vector or of a cache of keys and values; in a chain it depends on the last one."""
    m = ModuleText("reduce")
    kv = row.has("B", "S", "kv_heads", "head_dim")
    shape = kv_pages(row) if kv else _shape(row)
    arrays = [m.argument(shape, row.element) for _ in range(2 if kv else 1)]

    def step(total: Value) -> Value:
        scale = m.broadcast(m.convert(total, row.element), shape, ())
        reads = [m.binary("multiply" if kv else "add", x, scale) for x in arrays] if row.trips > 1 else arrays
        if row.trips > 1 and not kv:  # the source's: no array can be summed once for all turns
            reads = [m.unary("exponential", m.unary("negate", x)) for x in reads]
        return _sum(m, reads)

    return m.finish(*m.loop(row.trips, [m.constant(0.0, "f32")], lambda carried: [step(carried[0])]))


def gather_text(row: OpRow) -> str:
    """All pages of a cache through a table of pages that turns with the step, and their sum."""
    m = ModuleText("gather")
    shape = kv_pages(row)
    tables = [m.argument(shape, row.element) for _ in range(2)]
    order = m.argument((shape[1],), "i32")

    def step(total: Value, turn: Value) -> list[Value]:
        turned = m.binary("add", order, m.broadcast(turn, order.shape, ()))
        at = m.by_constant("remainder", turned, shape[1])
        scale = m.broadcast(m.convert(total, row.element), shape, ())
        read = [m.binary("multiply", m.take(table, at, 1), scale) for table in tables]
        return [_sum(m, read), m.binary("add", turn, m.constant(1, "i32"))]

    carried = [m.constant(0.0, "f32"), m.constant(0, "i32")]
    return m.finish(*m.loop(row.trips, carried, lambda given: step(*given)))


def _sum(m: ModuleText, arrays: list[Value]) -> Value:
    sums = [m.reduce("add", m.convert(x, "f32"), range(len(x.shape))) for x in arrays]
    total = sums[0]
    for other in sums[1:]:
        total = m.binary("add", total, other)
    return m.by_constant("multiply", total, _FEEDBACK)


def kv_pages(row: OpRow) -> tuple[int, int, int, int]:
    """`[kv heads, pages, page, head]` of one of keys and values."""
    page = row.number("page") if "page" in row.shape else 16
    length = row.number("S")
    if length % page:
        raise UnsupportedError(f"{length} positions are no whole number of pages of {page}", where=row.id)
    return row.number("kv_heads"), row.number("B") * length // page, page, row.number("head_dim")


def _shape(row: OpRow) -> tuple[int, ...]:
    """The tensor, from dimensions, elements or bytes."""
    for key in ("bytes", "bytes_per_array"):
        if key in row.shape and not row.has("dims") and not row.has("layout"):
            return (max(1, row.number(key) * 8 // DTYPE_BITS[row.element]),)
    return row.dims()
