"""What StableHLO's specification asks of ops on quantised tensors, checked before their types become plain integers.

jaxlib has no reader of these types, so that nothing behind this reader could tell a reshape that changes a scale from one that
does not. The rules are those of the specification ("Ops", constraints (C..) of each, August 2026) that are about quantised
element types; shapes and attributes are the parser's own matter. One is relaxed on purpose: products and convolutions of
operands of two widths, which (C17) of `dot_general` and (C31) of `convolution` forbid, are what mixed-precision networks are
made of, and are read with a note (`two_widths`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshcast.programs.quantised_types import QuantisedType

PRODUCTS = frozenset({"dot_general", "dot", "convolution", "dynamic_conv"})
# Ops whose operands and results have one element type but for scales and zero points (`baseline_element_type`).
ALIKE = frozenset({
    "abs", "atan2", "cbrt", "ceil", "clamp", "compare", "cosine", "divide", "exponential", "exponential_minus_one", "floor",
    "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "power", "remainder", "round_nearest_afz",
    "round_nearest_even", "rsqrt", "select", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "cholesky", "triangular_solve",
    "batch_norm_inference",
})  # fmt: skip
# Ops that move elements: every quantised operand and result has the same element type, scales and all.
MOVING = frozenset({
    "concatenate", "dynamic_gather", "dynamic_pad", "dynamic_slice", "dynamic_update_slice", "gather", "pad", "reverse", "slice",
    "real_dynamic_slice",
})  # fmt: skip
# Likewise, each operand and its own result.
PAIRED = frozenset({
    "all_gather", "all_to_all", "collective_broadcast", "collective_permute", "optimization_barrier", "sort",
})  # fmt: skip
SHAPING = frozenset({"reshape", "dynamic_reshape", "transpose", "broadcast_in_dim", "dynamic_broadcast_in_dim"})
# Ops that take plain tensors alone.
PLAIN = frozenset({
    "and", "complex", "convert", "count_leading_zeros", "fft", "imag", "not", "or", "popcnt", "real", "rng",
    "rng_bit_generator", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor",
})  # fmt: skip
# Ops that take one scale for a tensor, and none by slice.
_BY_TENSOR = ALIKE | MOVING | PAIRED | {"reduce", "reduce_window", "scatter", "iota", "map"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTensor:
    """A tensor type of an op: its shape, and its element type where that is quantised; `element` as text where it is not."""

    sizes: tuple[str, ...]
    element: str
    quantised: QuantisedType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedOp:
    """An op as its line says it."""

    name: str
    operands: Sequence[TypedTensor]
    results: Sequence[TypedTensor]
    dims: Sequence[int] | None = None  # that its rule asks for (`told_dims`); None where the line does not tell


def told_dims(name: str, line: str) -> list[int] | None:
    """The dimensions that a rule asks for, in StableHLO's short form and in MLIR's: a transpose's permutation, where a broadcast
    puts its operand's, those of a product's right operand that are summed over, a convolution's two for output features.
    """
    if name == "convolution":
        labels = _LABELS.search(line)
        found = [[each.strip() for each in labels[part].split(",")] for part in (1, 2)] if labels else []
        return [found[0].index("o"), found[1].index("f")] if found and "o" in found[0] and "f" in found[1] else None
    pattern = _DIMS.get(name)
    match = pattern.search(line) if pattern else None
    return [int(each) for each in re.findall(r"\d+", match[1])] if match else None


_LABELS = re.compile(r"\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]")
_GIVEN = r"(?:dense<\[?|array<i64:?|\[)([\d, ]*)"
_DIMS = {
    "transpose": re.compile(rf"(?:dims|permutation)\s*=\s*{_GIVEN}"),
    "broadcast_in_dim": re.compile(rf"(?:dims|broadcast_dimensions)\s*=\s*{_GIVEN}"),
    "dynamic_broadcast_in_dim": re.compile(rf"(?:dims|broadcast_dimensions)\s*=\s*{_GIVEN}"),
    "dot_general": re.compile(
        r"(?:contracting_dims\s*=\s*\[[\d, ]*\]\s*x\s*|rhs_contracting_dimensions\s*=\s*)\[([\d, ]*)\]"
    ),
}


def broken_rule(op: QuantisedOp) -> str | None:
    """What of the specification an op breaks, in words with its numbers; None where nothing."""
    tensors = (*op.operands, *op.results)
    if not any(each.quantised for each in tensors):
        return None
    if op.name in PLAIN:
        other = ": use uniform_quantize or uniform_dequantize" if op.name == "convert" else ""
        return f"stablehlo.{op.name} takes no quantised tensors{other}"
    axis = next((each.quantised.axis for each in tensors if each.quantised and each.quantised.axis is not None), None)
    if op.name in _BY_TENSOR and axis is not None:
        return f"stablehlo.{op.name} takes one scale for a tensor, not one for every slice of dimension {axis}"
    return _RULES.get(op.name, _nothing)(op)


def two_widths(op: QuantisedOp) -> tuple[str, str] | None:
    """The storage types of a product's operands where they differ; None of any other op."""
    kinds = [each.quantised.storage for each in op.operands[:2] if each.quantised]
    return (kinds[0], kinds[1]) if op.name in PRODUCTS and len(set(kinds)) == 2 else None


def _nothing(_: QuantisedOp) -> str | None:
    return None


def _alike(op: QuantisedOp) -> str | None:
    """`baseline_element_type` of operands and results is one: stored in the same integers, for the same floats."""
    skipped = 1 if op.name == "select" else 0  # a predicate
    tensors = [*op.operands[skipped:], *(() if op.name == "compare" else op.results)]
    if (mixed := _mixed(op.name, tensors)) is not None:
        return mixed
    found = list(dict.fromkeys(_baseline(each.quantised) for each in tensors if each.quantised))
    if len(found) > 1:
        return f"stablehlo.{op.name} of values stored as {found[0]} and as {found[1]}: all must be stored in one way"
    return None


def _added(op: QuantisedOp) -> str | None:
    """(C2) to (C7) of `add`: one storage and one expressed type; scales by slice where an operand has them."""
    tensors = (*op.operands, *op.results)
    if (mixed := _mixed("add", tensors)) is not None:
        return mixed
    found = list(dict.fromkeys((e.quantised.storage, e.quantised.expressed) for e in tensors if e.quantised))
    if len(found) > 1:
        return f"stablehlo.add of {_pair(found[0])} and {_pair(found[1])} (C3, C4): storage and expressed types must be equal"
    axes = {each.quantised.axis for each in op.operands if each.quantised} - {None}
    made = {each.quantised.axis for each in op.results if each.quantised} - {None}
    if axes != made:
        return (
            f"stablehlo.add with scales by slices of {_axes(axes)} and a result by slices of {_axes(made)} (C5 to C7)"
        )
    return None


def _moved(op: QuantisedOp) -> str | None:
    """One element type of all that is moved; indices and sizes are plain."""
    places = {"concatenate": len(op.operands), "pad": 2, "dynamic_update_slice": 2, "dynamic_pad": 2}
    return _equal(op.name, (*op.operands[: places.get(op.name, 1)], *op.results))


def _paired(op: QuantisedOp) -> str | None:
    pairs = zip(op.operands, op.results, strict=False) if len(op.operands) == len(op.results) else ()
    return next((said for pair in pairs if (said := _equal(op.name, pair)) is not None), None)


def _equal(name: str, tensors: Sequence[TypedTensor]) -> str | None:
    """Tensors of one element type, scales and zero points among it."""
    if (mixed := _mixed(name, tensors)) is not None:
        return mixed
    found = {_identity(each.quantised): each.quantised for each in tensors if each.quantised}
    first, *others = found.values() if found else (None,)
    return f"stablehlo.{name} {_changes(first, others[0])}: use uniform_quantize for that" if first and others else None


def _shaped(op: QuantisedOp) -> str | None:
    """`reshape`, `transpose` and `broadcast_in_dim`: the same elements, the axis of scales where the elements go."""
    operand, result = op.operands[0], op.results[0]
    if (mixed := _mixed(op.name, (operand, result))) is not None:
        return mixed
    before, after = operand.quantised, result.quantised
    assert before is not None
    assert after is not None
    spread = op.name.endswith("broadcast_in_dim") and before.axis is not None and operand.sizes[before.axis] == "1"
    scales = before.scales if not spread else before.scales * len(after.scales)
    if _without_axis(before, scales) != _without_axis(after, after.scales) or (before.axis is None) != (
        after.axis is None
    ):
        return f"stablehlo.{op.name} {_changes(before, after)}: use uniform_quantize for that"
    if before.axis is None or after.axis is None:
        return None
    if op.name.endswith("reshape"):
        ends = (
            (slice(0, before.axis), slice(0, after.axis)),
            (slice(before.axis + 1, None), slice(after.axis + 1, None)),
        )
        for old, new in ends:
            counts = _count(operand.sizes[old]), _count(result.sizes[new])
            if None not in counts and counts[0] != counts[1]:
                return (
                    f"stablehlo.{op.name} from scales by slices of dimension {before.axis} of {'x'.join(operand.sizes)} "
                    f"to those of dimension {after.axis} of {'x'.join(result.sizes)}, which have other elements (C3)"
                )
        return None
    if op.dims is None:
        return None
    goes = op.dims.index(before.axis) if op.name == "transpose" and before.axis in op.dims else None
    if op.name != "transpose" and before.axis < len(op.dims):
        goes = op.dims[before.axis]
    if goes is not None and goes != after.axis:
        return (
            f"stablehlo.{op.name} puts the slices that have scales in dimension {goes}, its result has them in "
            f"dimension {after.axis}"
        )
    return None


def _multiplied(op: QuantisedOp) -> str | None:
    """`dot_general` (C14) to (C20), `convolution` (C28) to (C34), but for operands of two widths."""
    if len(op.operands) < 2 or not op.results:
        return None
    (lhs, rhs), made = op.operands[:2], op.results[0]
    left, right, out = lhs.quantised, rhs.quantised, made.quantised
    if right is None:
        return f"stablehlo.{op.name} whose left operand is quantised and whose right one is {rhs.element}: the right one must be"
    if (left is None) != (out is None):
        said = ("quantised", made.element) if left else (lhs.element, "quantised")
        return (
            f"stablehlo.{op.name} whose left operand is {said[0]} and whose result is {said[1]}: both must be quantised, "
            "or neither"
        )
    if left is not None and left.axis is not None:
        return f"stablehlo.{op.name} takes one scale for its left operand, not one for every slice of dimension {left.axis}"
    floats = {left.expressed if left else lhs.element, right.expressed, out.expressed if out else made.element}
    if len(floats) > 1:
        return f"stablehlo.{op.name} of numbers that stand for {' and '.join(sorted(floats))}: expressed types must be equal"
    if out is not None and right.axis is None and out.axis is not None:
        return f"stablehlo.{op.name} whose result has a scale for every slice, and whose right operand one for all"
    if op.name in ("dot", "dot_general") and any(zero for _, zero in right.scales):
        zero = next(zero for _, zero in right.scales if zero)
        return f"stablehlo.{op.name} whose right operand has the zero point {zero} (C15): it must be 0"
    if op.name == "convolution" and op.dims is not None:
        for kind, whose, feature in ((right, "right operand", op.dims[0]), (out, "result", op.dims[1])):
            if kind is not None and kind.axis not in (None, feature):
                return (
                    f"stablehlo.convolution whose {whose} has scales by slices of dimension {kind.axis} (C29, C30): they must be "
                    f"those of its output features, dimension {feature}"
                )
    if op.name == "dot_general" and op.dims is not None and right.axis in op.dims:
        return (
            f"stablehlo.dot_general sums over dimension {right.axis} of its right operand, whose slices have scales of "
            "their own (C16)"
        )
    return None


def _converted(op: QuantisedOp) -> str | None:
    """`uniform_quantize` and `uniform_dequantize`: the floats on one side are those that the other stands for."""
    if len(op.operands) != 1 or len(op.results) != 1:
        return None
    (operand,), (result,) = op.operands, op.results
    if op.name == "uniform_quantize" and result.quantised is None:
        return f"stablehlo.uniform_quantize to {result.element}, which is not quantised"
    if op.name == "uniform_dequantize" and (operand.quantised is None or result.quantised is not None):
        return "stablehlo.uniform_dequantize takes a quantised tensor and makes floats"
    floats = [each.quantised.expressed if each.quantised else each.element for each in (operand, result)]
    if floats[0] != floats[1]:
        return f"stablehlo.{op.name} between {floats[0]} and {floats[1]} (C2): expressed types must be equal"
    return None


def _reduced(op: QuantisedOp) -> str | None:
    """`reduce`, `reduce_window`: initial values have their operands' type; sums may be stored in more bits."""
    return _equal(op.name, op.operands) if len(op.operands) == 2 else None


_RULES: dict[str, Callable[[QuantisedOp], str | None]] = {
    **dict.fromkeys(ALIKE, _alike), **dict.fromkeys(MOVING, _moved), **dict.fromkeys(PAIRED, _paired),
    **dict.fromkeys(SHAPING, _shaped),
    **dict.fromkeys(PRODUCTS, _multiplied), "add": _added, "reduce": _reduced, "reduce_window": _reduced,
    "uniform_quantize": _converted, "uniform_dequantize": _converted,
}  # fmt: skip


def _mixed(name: str, tensors: Sequence[TypedTensor]) -> str | None:
    plain = next((each.element for each in tensors if each.quantised is None), None)
    if plain is None or not any(each.quantised for each in tensors):
        return None
    return f"stablehlo.{name} of quantised values and of {plain}: quantise or dequantise one of them first"


def _baseline(kind: QuantisedType) -> str:
    """A type without its scales and zero points."""
    return f"{kind.storage}<{kind.least}:{kind.most}> for {kind.expressed}"


def _without_axis(kind: QuantisedType, scales: Sequence[tuple[str, int]]) -> tuple[str, tuple[tuple[float, int], ...]]:
    return _baseline(kind), tuple((float(scale), zero) for scale, zero in scales)


def _identity(kind: QuantisedType) -> tuple[object, ...]:
    """What makes two types one, however their scales are written."""
    return (*_without_axis(kind, kind.scales), kind.axis)


def same_type(one: QuantisedType | None, other: QuantisedType | None) -> bool:
    """Whether two element types are one, however their scales are written; those that are not quantised are not compared."""
    return one is None or other is None or _identity(one) == _identity(other)


def _changes(before: QuantisedType, after: QuantisedType) -> str:
    if _baseline(before) != _baseline(after):
        return f"changes how values are stored, from {_baseline(before)} to {_baseline(after)}"
    return f"changes scales or zero points, from {_spelled(before)} to {_spelled(after)}"


def _spelled(kind: QuantisedType) -> str:
    told = [f"{scale}:{zero}" if zero else scale for scale, zero in kind.scales[:3]]
    more = ", ..." if len(kind.scales) > len(told) else ""
    where = "" if kind.axis is None else f" by slices of dimension {kind.axis}"
    return f"{kind.storage} of {', '.join(told)}{more}{where}"


def _pair(kind: tuple[str, str]) -> str:
    return f"{kind[0]} for {kind[1]}"


def _axes(found: set[int | None]) -> str:
    return (
        f"dimension {', '.join(map(str, sorted(each for each in found if each is not None)))}"
        if found
        else "no dimension"
    )


def _count(sizes: Sequence[str]) -> int | None:
    """Elements of dimensions; None where one is not known."""
    return None if "?" in sizes else math.prod(map(int, sizes))
