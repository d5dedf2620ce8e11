"""StableHLO's quantised types, which jaxlib has no reader for, spelled as the integers that they are stored in.

A quantised tensor (StableHLO specification, "Quantized types") holds integers `q` that stand for `(q - zero_point) * scale`. The
text is rewritten before it is parsed, so that every stage after it sees what hardware does:

- a tensor has its storage type: `tensor<8x!quant.uniform<i4:f32, 0.1>>` becomes `tensor<8xi4>`, packed and moved as that;
- `uniform_quantize` divides by the scale, adds the zero point, clamps to the stored range, rounds and converts, and
  `uniform_dequantize` converts, subtracts the zero point and multiplies by the scale, as the specification defines them and
  StableHLO's own `stablehlo-legalize-quant-to-math` writes them; a zero point of 0 takes no op;
- products and convolutions of quantised operands are sums of integers in i32, operands of two widths widened to the wider, and
  those of matrices to bytes at least: a conversion that stands before a product is part of it where the unit takes fewer bits
  (`lower/products/narrow_weights.py`), and of plain `i4` by `i4` XLA's GPU compiler makes no product at all
  (`lower/products/matrix_products.py`). Where their result is stored in fewer bits the sums are quantised: converted to floats,
  and on as above. Beside a float operand the quantised one stands for its floats;
- other arithmetic is carried out on the numbers that the integers stand for: converted, computed, converted back. The larger or
  smaller of two numbers, in the same type, is that of the integers.

Values between ops are of no concern, times are: what zero points of two operands add to the sums of a product is left out, and
sums are divided by the scale of their result alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from meshcast.base import InputError, UnsupportedError
from meshcast.programs.quantised_rules import QuantisedOp, TypedTensor, broken_rule, same_type, told_dims, two_widths
from meshcast.programs.quantised_text import (
    as_float,
    bits_of,
    element_type,
    on_one_line,
    quantised_in,
    sizes_of,
    split_types,
    with_element,
    without_comment,
)
from meshcast.programs.quantised_types import MARK, NoIntegersError, QuantisedType, closing, quantised_type

ACCUMULATOR = "i32"
BYTE = "i8"
PRODUCTS = frozenset({"dot_general", "dot", "convolution"})
ORDERED = frozenset({"maximum", "minimum", "clamp"})
REDUCING = frozenset({"add", "multiply", "maximum", "minimum"})
ARITHMETIC = ORDERED | {
    "abs", "add", "atan2", "cbrt", "ceil", "cosine", "divide", "exponential", "exponential_minus_one", "floor", "log",
    "log_plus_one", "logistic", "multiply", "negate", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt",
    "sign", "sine", "sqrt", "subtract", "tan", "tanh",
}  # fmt: skip
CONVERSIONS = frozenset({"uniform_quantize", "uniform_dequantize"})
_ALIAS = re.compile(r"^(![\w$]+)[ \t]*=", re.MULTILINE)
_OP = re.compile(r'^(\s*)(%[\w$.#:-]+)\s*=\s*("?)stablehlo\.(\w+)"?(.*)$', re.DOTALL)
_SHAPE = re.compile(r"tensor<((?:(?:\d+|\?)x)*)$")
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w$.-]+):\s*(tensor<[^%]*?!quant[^%]*)")
_LOCATION = re.compile(r"\s+loc\([^\n]*\)\s*$")


def has_quantised_types(text: str) -> bool:
    """Whether a text uses any."""
    return MARK in text


def without_quantised_types(text: str, *, where: str) -> str:
    """The text with integers in place of quantised types (`with_integers`)."""
    return with_integers(text, where=where)[0]


def with_integers(text: str, *, where: str) -> tuple[str, tuple[str, ...]]:
    """The text with integers in place of quantised types, and what is in it that the specification does not know.

    Raises:
        InputError: A type is none that the specification knows, or an op on one is forbidden or cannot be read.
        UnsupportedError: A type of the dialect that holds no integers yet (`!quant.any`, `!quant.calibrated`).
    """
    text = on_one_line("\n".join(map(without_comment, text.split("\n"))))
    text = _spelled_out(text)
    writer = _Writer(where)
    # Ops that one has become stand on its line, so that what a parser says of a line is about the line that was written.
    made = (" ".join(writer.lines(line, number)) for number, line in enumerate(text.split("\n"), 1))
    return "\n".join(line.replace("\n", " ") for line in made), tuple(writer.notes)


def _spelled_out(text: str) -> str:
    """The text without names of types that hold quantised ones, each written out where it is used.

    A name may be made of others, which stand above it: `!q = !quant.uniform<i8:f32, 0.1>` and then `!t = tensor<4x!q>`.
    """
    for name in _ALIAS.findall(text):
        stated = re.search(rf"^{re.escape(name)}[ \t]*=[ \t]*(\S.*?)[ \t]*$", text, re.MULTILINE)
        if stated is None or MARK not in stated[1]:
            continue
        # The line stays, empty, so that lines keep their numbers.
        text = text[: stated.start()] + text[stated.end() :]
        text = re.sub(rf"{re.escape(name)}(?![\w$])", stated[1].replace("\\", r"\\"), text)
    return text


class _Writer:
    """Rewrites lines, one op each, with names of its own for values between them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._line = 0
        self._made = 0
        self._types: dict[str, tuple[TypedTensor, int]] = {}  # of quantised values, and the lines that say so
        self.notes: dict[str, None] = {}

    def lines(self, line: str, number: int) -> Iterator[str]:
        if "func.func" in line:
            self._types.clear()
        if MARK not in line:
            yield line
            return
        self._line = number
        self._note_arguments(line)
        found = _OP.match(line)
        if found is None:
            yield self._stored(line)
            return
        indent, result, quote, op, rest = found.groups()
        self._check(result, op, rest)
        if op in CONVERSIONS:
            yield from self._conversion(indent, result, rest)
        elif op in PRODUCTS:
            yield from self._product(indent, result, f"{quote}stablehlo.{op}{quote}", rest)
        elif op in ARITHMETIC:
            yield from self._arithmetic(indent, result, op, rest)
        else:
            yield self._stored(line)

    def _note_arguments(self, line: str) -> None:
        """Keeps the types of a function's, or a block's, arguments."""
        for name, kind in _ARGUMENT.findall(line):
            end = closing(kind, 0)
            self._types[name] = (self._typed(kind[:end] if end > 0 else kind), self._line)

    def _check(self, result: str, op: str, rest: str) -> None:
        """Refuses what the specification forbids, where all types of an op stand on its line."""
        self._stored(rest)  # the types themselves are checked first
        try:
            operands, kinds, made, _ = self._signature(rest)
        except InputError:
            return  # the types of a region's op stand behind it
        listed = list(split_types(made.removeprefix("(").removesuffix(")")))
        if " -> " not in rest and len(listed) > 1:  # a type for each, or a predicate's and that of both values
            kinds = [listed[0], *listed[1:] * 2] if op == "select" else listed
            listed = listed[1:] if op == "select" else listed
        taken = [self._typed(kind.strip()) for kind in kinds]
        results = [self._typed(kind.strip()) for kind in listed]
        for name, said in zip(operands, taken, strict=False):
            known, line = self._types.get(name, (None, 0))
            if known is not None and not same_type(known.quantised, said.quantised):
                raise self._bad(f"{name} is read in another quantised type than line {line} says it has")
        found = QuantisedOp(name=op, operands=taken, results=results, dims=told_dims(op, rest))
        if (broken := broken_rule(found)) is not None:
            raise self._bad(broken)
        if (widths := two_widths(found)) is not None:
            note = f"stablehlo.{op} of {widths[0]} and {widths[1]}: the specification has products of one storage type alone"
            self.notes.setdefault(f"{note}; the narrower operand is widened as it is read")
        if len(results) == 1 and results[0].quantised is not None:
            self._types[result] = (results[0], self._line)

    def _typed(self, tensor: str) -> TypedTensor:
        found = quantised_in(tensor)
        element = found or element_type(tensor)
        return TypedTensor(
            sizes=tuple(sizes_of(tensor.partition("!")[0])),
            element=element,
            quantised=self._parsed(found) if found else None,
        )

    def _conversion(self, indent: str, result: str, rest: str) -> Iterator[str]:
        (value, *_), (kind, *_), made, location = self._signature(rest)
        end = f"{location}\n"
        text = ""
        if MARK in kind:  # to the numbers meant, and from them to other scales
            text, value = self._meant(indent, value, kind, end, result=None if MARK in made else result)
            kind = self._expressed(kind)
        if MARK in made:
            text += self._kept(indent, value, kind, made, end, result)
        yield text.removesuffix("\n")

    def _product(self, indent: str, result: str, op: str, rest: str) -> Iterator[str]:
        operands, types, made, location = self._signature(rest)
        end = f"{location}\n"
        has_floats = any(MARK not in kind for kind in types)
        both = [self._expressed(kind) if has_floats else self._stored(kind) for kind in types]
        wide = max(map(element_type, both), key=bits_of)
        multiplied = (
            BYTE if not has_floats and "dot" in op and bits_of(wide) < bits_of(BYTE) and wide[0] == BYTE[0] else wide
        )
        head, text = rest[: self._types_at(rest)], ""
        for index, (value, kind) in enumerate(zip(operands, types, strict=True)):
            if has_floats and MARK in kind:
                lines, widened = self._meant(indent, value, kind, end)
            elif element_type(both[index]) != multiplied and not has_floats:
                lines, widened = self._to(
                    indent, "convert", (value,), (both[index],), with_element(both[index], multiplied), end
                )
                both[index] = with_element(both[index], multiplied)
            else:
                continue
            text += lines
            head = re.sub(rf"{re.escape(value)}(?![\w$.#-])", widened, head, count=1)
        stored = self._stored(made)
        summed = self._expressed(made) if has_floats else with_element(stored, ACCUMULATOR)
        sums = result if summed == stored else self._name()
        text += f"{indent}{sums} = {op}{head} : ({', '.join(both)}) -> {summed}{end}"
        if sums != result and MARK in made:
            text += self._kept(indent, sums, summed, made, end, result)
        elif sums != result:
            text += self._to(indent, "convert", (sums,), (summed,), stored, end, result)[0]
        yield text.removesuffix("\n")

    def _arithmetic(self, indent: str, result: str, op: str, rest: str) -> Iterator[str]:
        operands, types, made, location = self._signature(rest)
        end = f"{location}\n"
        scalar = "x" not in made.partition("!")[0]
        if (op in ORDERED and len({quantised_in(kind) for kind in (*types, made)}) == 1) or (op in REDUCING and scalar):
            # Of integers themselves: their order is that of the numbers; and of the scalars that reductions are told by.
            kinds = [self._stored(kind) for kind in types]
            yield self._to(indent, op, operands, kinds, self._stored(made), location, result)[0]
            return
        text, numbers = "", []
        for value, kind in zip(operands, types, strict=True):
            lines, number = self._meant(indent, value, kind, end) if MARK in kind else ("", value)
            text += lines
            numbers.append(number)
        computed = self._expressed(made)
        target = self._name() if MARK in made else result
        text += self._to(indent, op, numbers, [self._expressed(kind) for kind in types], computed, end, target)[0]
        if MARK in made:
            text += self._kept(indent, target, computed, made, end, result)
        yield text.removesuffix("\n")

    def _to(
        self, indent: str, op: str, operands: Sequence[str], kinds: Sequence[str], made: str, end: str, result: str | None = None
    ) -> tuple[str, str]:  # fmt: skip
        """One op as text, and what its result is called."""
        result = result or self._name()
        taken = f"({', '.join(operands)}) : ({', '.join(kinds)})"
        return f'{indent}{result} = "stablehlo.{op}"{taken} -> {made}{end}', result

    def _meant(self, indent: str, value: str, kind: str, end: str, result: str | None = None) -> tuple[str, str]:
        """The numbers that integers stand for: `(q - zero_point) * scale`."""
        numbers, found = self._expressed(kind), self._type_in(kind)
        text, value = self._to(indent, "convert", (value,), (self._stored(kind),), numbers, end)
        if any(zero for _, zero in found.scales):
            zeros, shift = self._constant(indent, [f"{zero}.0" for _, zero in found.scales], found, numbers, end)
            lines, value = self._to(indent, "subtract", (value, shift), (numbers, numbers), numbers, end)
            text += zeros + lines
        scales, scale = self._constant(indent, [scale for scale, _ in found.scales], found, numbers, end)
        lines, value = self._to(indent, "multiply", (value, scale), (numbers, numbers), numbers, end, result)
        return text + scales + lines, value

    def _kept(self, indent: str, value: str, kind: str, made: str, end: str, result: str) -> str:
        """Numbers, or sums of integers, as they are stored: `round(clamp(x / scale + zero_point))`."""
        numbers, found, text = self._expressed(made), self._type_in(made), ""
        if kind != numbers:
            text, value = self._to(indent, "convert", (value,), (kind,), numbers, end)
        scales, scale = self._constant(indent, [scale for scale, _ in found.scales], found, numbers, end)
        lines, value = self._to(indent, "divide", (value, scale), (numbers, numbers), numbers, end)
        text += scales + lines
        if any(zero for _, zero in found.scales):
            zeros, shift = self._constant(indent, [f"{zero}.0" for _, zero in found.scales], found, numbers, end)
            lines, value = self._to(indent, "add", (value, shift), (numbers, numbers), numbers, end)
            text += zeros + lines
        bound, bounds = f"tensor<{found.expressed}>", []
        for limit in (found.least, found.most):
            bounds.append(self._name())
            text += f"{indent}{bounds[-1]} = stablehlo.constant dense<{limit}.0> : {bound}{end}"
        lines, value = self._to(indent, "clamp", (bounds[0], value, bounds[1]), (bound, numbers, bound), numbers, end)
        text += lines
        lines, value = self._to(indent, "round_nearest_even", (value,), (numbers,), numbers, end)
        return text + lines + self._to(indent, "convert", (value,), (numbers,), self._stored(made), end, result)[0]

    def _constant(self, indent: str, values: Sequence[str], of: QuantisedType, made: str, end: str) -> tuple[str, str]:
        """A number for all elements, or one for every slice of the axis; of blocks in several dimensions the first one."""
        sizes = sizes_of(made)
        if of.axis is not None and (of.axis >= len(sizes) or sizes[of.axis] not in ("?", str(len(values)))):
            raise self._bad(f"{len(values)} scales for dimension {of.axis} of {made}")
        by_slice = of.axis is not None and sizes[of.axis] != "?"
        kind = f"tensor<{f'{len(values)}x' if by_slice else ''}{of.expressed}>"
        told = f"[{', '.join(map(as_float, values))}]" if by_slice else as_float(values[0])
        name, spread = self._name(), self._name()
        dims = f"[{of.axis}]" if by_slice else "[]"
        return (
            f"{indent}{name} = stablehlo.constant dense<{told}> : {kind}{end}"
            f"{indent}{spread} = stablehlo.broadcast_in_dim {name}, dims = {dims} : ({kind}) -> {made}{end}"
        ), spread

    def _type_in(self, tensor: str) -> QuantisedType:
        return self._parsed(quantised_in(tensor))

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
        kinds = [kind.strip() for kind in split_types(taken.strip().removeprefix("(").removesuffix(")"))]
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
            end = closing(text, start)
            if end < 0:
                raise self._bad(f"{text[start : start + 40]!r} has no end")
            found = self._parsed(text[start:end])
            self._check_axis(found, text[:start])
            made += [text[at:start], spelled(found)]
            at = end
        return "".join([*made, text[at:]])

    def _check_axis(self, found: QuantisedType, before: str) -> None:
        """That the axis of scales is a dimension of its tensor, with a scale for every slice."""
        tensor = _SHAPE.search(before)
        if tensor is None or found.axis is None:
            return
        sizes, count = tensor[1].split("x")[:-1], len(found.scales)
        shape = "x".join(sizes) or "no dimensions"
        if found.axis >= len(sizes):
            most = f"0 to {len(sizes) - 1}" if sizes else "none: say one scale, without an axis"
            raise self._bad(f"scales along dimension {found.axis} of a tensor of {shape}, whose dimensions are {most}")
        if sizes[found.axis] not in ("?", str(count)):
            raise self._bad(
                f"{count} scales along dimension {found.axis} of a tensor of {shape}, which has {sizes[found.axis]} slices: "
                "one scale for each is needed"
            )

    def _parsed(self, text: str) -> QuantisedType:
        """One type, checked against the specification."""
        try:
            return quantised_type(text)
        except NoIntegersError as error:
            raise UnsupportedError(
                str(error),
                where=f"{self._where}:{self._line}",
                fix="quantise the program first, so that its types are !quant.uniform",
            ) from error
        except ValueError as error:
            raise self._bad(str(error)) from error

    def _bad(self, said: str) -> InputError:
        return InputError(
            said, where=f"{self._where}:{self._line}", fix="see StableHLO's specification, quantised types"
        )
