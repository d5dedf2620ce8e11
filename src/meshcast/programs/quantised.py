"""StableHLO's quantised types, which jaxlib has no reader for, spelled as the integers that they are stored in.

A quantised tensor (StableHLO specification, "Quantized types") holds integers `q` that stand for `(q - zero_point) * scale`. The
text is rewritten before it is parsed, so that every stage after it sees what hardware does:

- a tensor has its storage type: `tensor<8x!quant.uniform<i4:f32, 0.1>>` becomes `tensor<8xi4>`, packed and moved as that;
- `uniform_quantize` and `uniform_dequantize` become conversions;
- products and convolutions of quantised operands are sums of integers in i32, converted to what their result is stored in,
  which a compiler may fuse; operands of two widths are widened to the wider, and to the float where one is a float;
- other arithmetic is carried out on the numbers that the integers stand for, as the specification defines it: converted,
  computed, converted back. The larger or smaller of two numbers, in the same type, is that of the integers.

Scales and zero points are checked and then dropped: no time depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshcast.base import InputError, UnsupportedError

MARK = "!quant."
ACCUMULATOR = "i32"
PRODUCTS = frozenset({"dot_general", "dot", "convolution"})
ORDERED = frozenset({"maximum", "minimum", "clamp"})
REDUCING = frozenset({"add", "multiply", "maximum", "minimum"})
ARITHMETIC = ORDERED | {
    "abs", "add", "atan2", "cbrt", "ceil", "cosine", "divide", "exponential", "exponential_minus_one", "floor", "log",
    "log_plus_one", "logistic", "multiply", "negate", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt",
    "sign", "sine", "sqrt", "subtract", "tan", "tanh",
}  # fmt: skip
CONVERSIONS = frozenset({"uniform_quantize", "uniform_dequantize"})
_ALIAS = re.compile(r"^(![\w$]+)\s*=\s*(!quant\..*?)\s*$", re.MULTILINE)
_STORAGE = re.compile(r"([iu])(2|4|8|16|32)(?:<(-?\d+):(-?\d+)>)?$")
_EXPRESSED = re.compile(r"(f16|bf16|f32|f64)(?::(\d+|\{[^{}]*\}))?$")
_SCALE = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?::(-?\d+))?")
_OP = re.compile(r'^(\s*)(%[\w$.#:-]+)\s*=\s*("?)stablehlo\.(\w+)"?(.*)$', re.DOTALL)
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LOCATION = re.compile(r"\s+loc\([^\n]*\)\s*$")


@dataclass(frozen=True, slots=True)
class QuantisedType:
    """What a quantised element is stored in, and what it stands for."""

    text: str
    storage: str  # as MLIR spells it: i4, ui8
    expressed: str  # f32


def has_quantised_types(text: str) -> bool:
    """Whether a text uses any."""
    return MARK in text


def without_quantised_types(text: str, *, where: str) -> str:
    """The text with integers in place of quantised types.

    Raises:
        InputError: A type is none that the specification knows, or an op on one cannot be read.
        UnsupportedError: A type of the dialect that holds no integers yet (`!quant.any`, `!quant.calibrated`).
    """
    for name, meant in _ALIAS.findall(text):
        text = re.sub(rf"{re.escape(name)}(?![\w$])", meant.replace("\\", r"\\"), text)
    text = re.sub(r"^!quant\.[^\n]*=[^\n]*$", "", text, flags=re.MULTILINE)  # the aliases themselves
    writer = _Writer(where)
    return "\n".join(made for number, line in enumerate(text.split("\n"), 1) for made in writer.lines(line, number))


class _Writer:
    """Rewrites lines, one op each, with names of its own for values between them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._line = 0
        self._made = 0

    def lines(self, line: str, number: int) -> Iterator[str]:
        if MARK not in line:
            yield line
            return
        self._line = number
        found = _OP.match(line)
        if found is None:
            yield self._stored(line)
            return
        indent, result, quote, op, rest = found.groups()
        if op in CONVERSIONS:
            yield from self._conversion(indent, result, rest)
        elif op in PRODUCTS:
            yield from self._product(indent, result, f"{quote}stablehlo.{op}{quote}", rest)
        elif op in ARITHMETIC:
            yield from self._arithmetic(indent, result, op, rest)
        else:
            yield self._stored(line)

    def _conversion(self, indent: str, result: str, rest: str) -> Iterator[str]:
        operands, types, made, location = self._signature(rest)
        value, kind = operands[0], self._stored(types[0])
        if MARK in types[0] and MARK in made:  # to other scales, by way of the numbers meant
            numbers, meant = self._name(), self._expressed(types[0])
            yield f"{indent}{numbers} = stablehlo.convert {value} : ({kind}) -> {meant}{location}"
            value, kind = numbers, meant
        yield f"{indent}{result} = stablehlo.convert {value} : ({kind}) -> {self._stored(made)}{location}"

    def _product(self, indent: str, result: str, op: str, rest: str) -> Iterator[str]:
        operands, types, made, location = self._signature(rest)
        floats = [kind for kind in types if MARK not in kind]
        both = [self._stored(kind) for kind in types]
        wide = _element(floats[0]) if floats else max((_element(kind) for kind in both), key=_bits)
        head = rest[: self._types_at(rest)]
        for index, (value, kind) in enumerate(zip(operands, both, strict=False)):
            if _element(kind) == wide or len(both) < 2:
                continue
            widened = self._name()
            both[index] = _with_element(kind, wide)
            yield f"{indent}{widened} = stablehlo.convert {value} : ({kind}) -> {both[index]}{location}"
            head = re.sub(rf"{re.escape(value)}(?![\w$.#-])", widened, head, count=1)
        stored = self._stored(made)
        summed = _with_element(stored, wide if floats else ACCUMULATOR)
        final = stored if MARK in made else made
        if summed == final:
            yield f"{indent}{result} = {op}{head} : ({', '.join(both)}) -> {final}{location}"
            return
        sums = self._name()
        yield f"{indent}{sums} = {op}{head} : ({', '.join(both)}) -> {summed}{location}"
        yield f"{indent}{result} = stablehlo.convert {sums} : ({summed}) -> {final}{location}"

    def _arithmetic(self, indent: str, result: str, op: str, rest: str) -> Iterator[str]:
        operands, types, made, location = self._signature(rest)
        scalar = "x" not in made.partition("!")[0]
        if (op in ORDERED and len({*types, made}) == 1) or (op in REDUCING and scalar):
            # Of integers themselves: their order is that of the numbers; and of the scalars that reductions are told by.
            kinds = ", ".join(self._stored(kind) for kind in types)
            yield f'{indent}{result} = "stablehlo.{op}"({", ".join(operands)}) : ({kinds}) -> {self._stored(made)}{location}'
            return
        numbers, kinds_of_numbers = [], []
        for value, kind in zip(operands, types, strict=True):
            if MARK not in kind:
                numbers.append(value)
                kinds_of_numbers.append(kind)
                continue
            number = self._name()
            expressed = self._expressed(kind)
            yield f"{indent}{number} = stablehlo.convert {value} : ({self._stored(kind)}) -> {expressed}{location}"
            numbers.append(number)
            kinds_of_numbers.append(expressed)
        computed = self._expressed(made) if MARK in made else made
        target = self._name() if MARK in made else result
        taken = ", ".join(kinds_of_numbers)
        yield f'{indent}{target} = "stablehlo.{op}"({", ".join(numbers)}) : ({taken}) -> {computed}{location}'
        if MARK in made:
            yield f"{indent}{result} = stablehlo.convert {target} : ({computed}) -> {self._stored(made)}{location}"

    def _signature(self, rest: str) -> tuple[list[str], list[str], str, str]:
        """(operands, their types, the result's type, the location) of an op on one line."""
        location = _LOCATION.search(rest)
        at = self._types_at(rest)
        if at < 0:
            raise self._bad("an op on quantised values whose types do not stand on its line")
        operands = _VALUE.findall(rest[:at])
        types = rest[at + 3 : location.start() if location else None].strip()
        taken, arrow, made = types.partition(" -> ")
        if not arrow:
            return operands, [types] * len(operands), types, location[0] if location else ""
        kinds = [kind.strip() for kind in _split(taken.strip().removeprefix("(").removesuffix(")"))]
        if len(kinds) != len(operands) or not operands:
            raise self._bad(f"{len(operands)} operands and {len(kinds)} types of them")
        return operands, kinds, made.strip(), location[0] if location else ""

    @staticmethod
    def _types_at(rest: str) -> int:
        """Where ` : ` before the types of an op is: the last one outside of braces."""
        depth, found = 0, -1
        for at, letter in enumerate(rest):
            depth += (letter in "{[<(") - (letter in "}])") - (letter == ">" and rest[at - 1] != "-")
            if depth == 0 and rest.startswith(" : ", at):
                found = at
        return found

    def _name(self) -> str:
        self._made += 1
        return f"%meshcast_quantised_{self._made}"

    def _stored(self, text: str) -> str:
        return self._replaced(text, lambda found: found.storage)

    def _expressed(self, text: str) -> str:
        return self._replaced(text, lambda found: found.expressed)

    def _replaced(self, text: str, spelled: Callable[[QuantisedType], str]) -> str:
        made, at = [], 0
        while (start := text.find(MARK, at)) >= 0:
            end = _closing(text, start)
            if end < 0:
                raise self._bad(f"{text[start : start + 40]!r} has no end")
            made += [text[at:start], spelled(self._parsed(text[start:end]))]
            at = end
        return "".join([*made, text[at:]])

    def _parsed(self, text: str) -> QuantisedType:
        """One type, checked against the specification."""
        name, _, inner = text.partition("<")
        if name != "!quant.uniform":
            raise UnsupportedError(
                f"{name} says no integers that values are stored in",
                where=f"{self._where}:{self._line}",
                fix="quantise the program first, so that its types are !quant.uniform",
            )
        storage, colon, rest = _cut(inner[:-1].strip(), ":")
        kind = _STORAGE.match(storage.strip())
        if kind is None or not colon:
            raise self._bad(f"{text!r}: {storage.strip()!r} is no integer of 2 to 32 bits to store values in")
        expressed, _, scales = _cut(rest, ",")
        number = _EXPRESSED.match(expressed.strip())
        if number is None:
            raise self._bad(f"{text!r}: {expressed.strip()!r} is no float that values stand for")
        sign, bits = kind[1], int(kind[2])
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign == "i" else (0, 2**bits - 1)
        low, high = (int(kind[3]), int(kind[4])) if kind[3] else (least, most)
        if not least <= low < high <= most:
            raise self._bad(f"{text!r}: {low} to {high} is no range of {kind[1]}{kind[2]}")
        found = _SCALE.findall(scales)
        if not found or bool(number[2]) != ("{" in scales):
            raise self._bad(
                f"{text!r}: a scale for the tensor, or one for every slice of its axis in braces, is missing"
            )
        for scale, zero in found:
            if not float(scale) > 0 or not low <= int(zero or 0) <= high:
                raise self._bad(
                    f"{text!r}: the scale {scale} must be positive, the zero point {zero or 0} in {low} to {high}"
                )
        return QuantisedType(text, f"{'ui' if sign == 'u' else 'i'}{bits}", number[1])

    def _bad(self, said: str) -> InputError:
        return InputError(
            said, where=f"{self._where}:{self._line}", fix="see StableHLO's specification, quantised types"
        )


def _closing(text: str, start: int) -> int:
    """Behind the `>` that ends the type at `start`; -1 where none does."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if text[at] == ">" and depth == 0:
            return at + 1
    return -1


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """`partition` at the first mark that no bracket holds."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "<{") - (letter in ">}")
        if letter == mark and depth == 0:
            return text[:at], mark, text[at + 1 :]
    return text, "", ""


def _split(types: str) -> Iterator[str]:
    while types:
        first, _, types = _cut(types, ",")
        yield first


def _element(tensor: str) -> str:
    """`i8` of `tensor<4x8xi8>`."""
    return tensor.removesuffix(">").rpartition("x")[2].rpartition("<")[2]


def _with_element(tensor: str, element: str) -> str:
    return tensor.removesuffix(_element(tensor) + ">") + element + ">"


def _bits(element: str) -> int:
    return int(re.sub(r"\D", "", element) or 0)
