"""Elementwise ops: one FLOP or one transcendental per result element, as XLA's `HloCostAnalysis` counts.

XLA counts comparisons, selects, conversions and integer or bit operations as one FLOP each, and so do we. We leave it
in two places. A complex operation is counted in real FLOPs (XLA: one): 2 for an addition, 6 for a multiplication, 11
for a division. A conversion to the type a value already has is a view (XLA folds it away before counting).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import constant_float
from meshcast.workload.rules.costs import is_complex, view


@dataclass(frozen=True, slots=True)
class ElementWork:
    """Work per result element."""

    flops: float = 0.0
    transcendentals: float = 0.0


_FLOP = ElementWork(flops=1)
_TRANSCENDENTAL = ElementWork(transcendentals=1)

_ARITHMETIC = (
    "abs add and ceil clamp complex compare convert count_leading_zeros divide floor imag is_finite maximum minimum "
    "multiply negate not or popcnt real reduce_precision remainder round_nearest_afz round_nearest_even select "
    "shift_left shift_right_arithmetic shift_right_logical sign subtract xor"
)
_FUNCTIONS = (
    "atan2 cbrt cosine exponential exponential_minus_one log log_plus_one logistic power rsqrt sine sqrt tan tanh"
)
_BROADCAST_ARITHMETIC = (
    "add and compare complex divide maximum minimum multiply or remainder select shift_left shift_right_arithmetic "
    "shift_right_logical subtract xor"
)

# CHLO functions have no unit of their own: XLA sees what they decompose into, and these are its counts of that
# decomposition for f32 (jaxlib 0.12; 16-bit types add two conversions). erf and tan stay whole in HLO.
_CHLO: dict[str, ElementWork] = {
    **{name: _FLOP for name in ("conj", "is_neg_inf", "is_pos_inf", "mulhi", "square")},
    **{name: _TRANSCENDENTAL for name in ("atan", "erf", "tan")},
    "is_inf": ElementWork(2),
    "acos": ElementWork(3, 2),
    "acosh": ElementWork(7, 4),
    "_asin_acos_kernel": ElementWork(60, 6),  # the complex asin/acos kernel, met only inside CHLO's own decomposition
    "asin": ElementWork(3, 2),
    "asinh": ElementWork(11, 3),
    "atanh": ElementWork(6, 2),
    "bessel_i1e": ElementWork(83, 1),
    "cosh": ElementWork(3, 2),
    "digamma": ElementWork(75, 3),
    "erf_inv": ElementWork(37, 2),
    "erfc": ElementWork(62, 1),
    "lgamma": ElementWork(53, 4),
    "next_after": ElementWork(24),
    "polygamma": ElementWork(262, 19),
    "sinh": ElementWork(10, 3),
    "zeta": ElementWork(121, 11),
}

WEIGHTS: Mapping[str, ElementWork] = {
    **{f"stablehlo.{name}": _FLOP for name in _ARITHMETIC.split()},
    **{f"stablehlo.{name}": _TRANSCENDENTAL for name in _FUNCTIONS.split()},
    **{f"chlo.{name}": weight for name, weight in _CHLO.items()},
    **{f"chlo.broadcast_{name}": _FLOP for name in _BROADCAST_ARITHMETIC.split()},
    **{f"chlo.broadcast_{name}": _TRANSCENDENTAL for name in ("atan2", "power")},
    **{f"chlo.broadcast_{name}": _CHLO[name] for name in ("next_after", "polygamma", "zeta")},
}

# What one complex element costs in real arithmetic, by the op's name without dialect and broadcast_.
_COMPLEX: dict[str, ElementWork] = {
    **{name: ElementWork(2) for name in ("add", "subtract", "negate", "compare", "select", "convert")},
    **{name: _FLOP for name in ("real", "imag", "complex", "conj")},
    "multiply": ElementWork(6),
    "square": ElementWork(6),
    "divide": ElementWork(11),
    "abs": ElementWork(3, 1),
}
# Any other function of a complex argument: XLA expands exp into 15 FLOPs and 4 transcendentals; take that for all.
_COMPLEX_FUNCTION = ElementWork(15, 4)

# Predicates: the work is done at the operand's type, the result is a boolean.
_PREDICATES = frozenset(
    {"stablehlo.compare", "stablehlo.is_finite", "chlo.broadcast_compare"}
    | {f"chlo.{name}" for name in ("is_inf", "is_neg_inf", "is_pos_inf")}
)


def element_work(name: str) -> ElementWork | None:
    """Work per element of the op `name` on real numbers; None for what is not elementwise."""
    return WEIGHTS.get(name)


def weight_of(name: str, dtype: str) -> ElementWork:
    """Work per element of elementwise op `name` done at `dtype`."""
    if is_complex(dtype):
        return _COMPLEX.get(name.rpartition(".")[2].removeprefix("broadcast_"), _COMPLEX_FUNCTION)
    return WEIGHTS[name]


def _rule(name: str) -> Rule:
    """The rule of one elementwise op; it touches no attribute, since programs consist mostly of these."""
    real = WEIGHTS[name]
    works_at_operand_type = name in _PREDICATES or name in ("stablehlo.real", "stablehlo.imag", "stablehlo.abs")
    reports_operand_type = name in _PREDICATES

    def rule(reading: OpReading) -> Cost:
        result = reading.results[0]
        elements = result.elements
        work_type = reading.operands[0].dtype if works_at_operand_type else result.dtype
        weight = weight_of(name, work_type) if is_complex(work_type) else real
        return Cost(
            kind=OpKind.ELEMENTWISE,
            dtype=work_type if reports_operand_type else result.dtype,
            vector_flops=weight.flops * elements,
            transcendentals=weight.transcendentals * elements,
            operand_bytes=tuple([tensor.bytes for tensor in reading.operands]),
            written_bytes=result.bytes,
        )

    return rule


_convert_to_another_type = _rule("stablehlo.convert")


def _convert(reading: OpReading) -> Cost:
    """A conversion; to the same type it does nothing."""
    if reading.operands[0].dtype == reading.results[0].dtype:
        return view(reading)
    return _convert_to_another_type(reading)


_power, _product = _rule("stablehlo.power"), _rule("stablehlo.multiply")
_SIMPLE_POWERS = (1.0, 2.0, 3.0, 4.0, -1.0)


def _raised(reading: OpReading) -> Cost:
    """A power; of a small whole exponent products (XLA's algebraic simplifier, HandlePower)."""
    return _product(reading) if constant_float(reading.op.operands[1]) in _SIMPLE_POWERS else _power(reading)


RULES: Mapping[str, Rule] = {
    **{name: _rule(name) for name in WEIGHTS},
    "stablehlo.convert": _convert,
    "stablehlo.power": _raised,
}
BY_TYPES = frozenset(RULES) - {"stablehlo.power"}  # whose cost follows from their types alone
