"""StableHLO's quantised element types, read from text and checked against the specification ("Quantized types")."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "!quant."
LARGEST = sys.float_info.max  # no scale is infinite
_STORAGE = re.compile(r"([iu])(2|4|8|16|32)(?:<(-?\d+):(-?\d+)>)?")
_EXPRESSED = re.compile(r"(f16|bf16|f32|f64)(?::(\d+|\{[^{}]*\}))?")
_SCALE = re.compile(r"(0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?::(-?\d+))?")
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_PATTERNS = {"f16": ">e", "f32": ">f", "f64": ">d"}  # as `struct` has them


class NoIntegersError(ValueError):
    """A type of the dialect that holds no integers yet (`!quant.any`, `!quant.calibrated`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedType:
    """What a quantised element is stored in, and what it stands for: `(q - zero_point) * scale`.

    Attributes:
        storage: As MLIR spells it: `i4`, `ui8`.
        expressed: The float that it stands for: `f32`.
        axis: The dimension whose slices have a scale each; None where one serves all, or a block of several dimensions.
        scales: With their zero points, as they are written; of bits the number that they are.
        least: The lowest integer that is stored.
        most: The highest one.
    """

    storage: str
    expressed: str
    axis: int | None
    scales: tuple[tuple[str, int], ...]
    least: int
    most: int


def quantised_type(text: str) -> QuantisedType:
    """One type.

    Raises:
        NoIntegersError: It has no storage.
        ValueError: It is none that the specification knows.
    """
    name, _, inner = text.partition("<")
    if name != "!quant.uniform":
        raise NoIntegersError(f"{name} says no integers that values are stored in")
    storage, colon, rest = cut(inner[:-1].strip(), ":")
    kind = _STORAGE.fullmatch(storage.strip())
    if kind is None or not colon:
        raise ValueError(f"{text!r}: {storage.strip()!r} is no integer of 2, 4, 8, 16 or 32 bits to store values in")
    expressed, _, scales = cut(rest, ",")
    number = _EXPRESSED.fullmatch(expressed.strip())
    if number is None:
        raise ValueError(f"{text!r}: {expressed.strip()!r} is no float that values stand for")
    signed, bits = kind[1] == "i", int(kind[2])
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    low, high = (int(kind[3]), int(kind[4])) if kind[3] else (least, most)
    if not least <= low < high <= most:
        raise ValueError(f"{text!r}: {low} to {high} is no range of {kind[1]}{kind[2]}")
    axis = int(number[2]) if number[2] and number[2].isdigit() else None
    return QuantisedType(
        storage=f"{'i' if signed else 'ui'}{bits}", expressed=number[1], axis=axis,
        scales=tuple(_scales(scales.strip(), text, number[1], bool(number[2]), (low, high))), least=low, most=high,
    )  # fmt: skip


def _scales(
    said: str, text: str, expressed: str, in_braces: bool, allowed: tuple[int, int]
) -> Iterator[tuple[str, int]]:
    braced = said.startswith("{") and said.endswith("}")
    if not said or in_braces != braced:
        raise ValueError(f"{text!r}: a scale for the tensor, or one for every slice of its axis in braces, is missing")
    low, high = allowed
    for each in map(str.strip, said.replace("{", " ").replace("}", " ").split(",") if braced else [said]):
        found = _SCALE.fullmatch(each)
        if found is None:
            raise ValueError(f"{text!r}: {each!r} is no scale with or without a zero point")
        scale, zero = _number(found[1], expressed, text), int(found[2] or 0)
        if not 0 < float(scale) <= LARGEST or not low <= zero <= high:
            raise ValueError(
                f"{text!r}: the scale {scale} must be positive and finite, the zero point {zero} in {low} to {high}"
            )
        yield scale, zero


def _number(said: str, expressed: str, text: str) -> str:
    """A `FloatLiteral`: a number, or after `0x` the bits of one of the expressed type; MLIR itself reads those of an f64."""
    if not said.startswith("0x"):
        return said
    digits = said.removeprefix("0x")
    kind = next((each for each in (expressed, "f64") if 4 * len(digits) == _BITS[each]), None)
    if kind is None:
        raise ValueError(f"{text!r}: {said} is no bit pattern of {expressed}, which has {_BITS[expressed] // 4} digits")
    bits = bytes.fromhex(digits)
    (value,) = struct.unpack(">f", bits + b"\0\0") if kind == "bf16" else struct.unpack(_PATTERNS[kind], bits)
    return repr(value)


def closing(text: str, start: int) -> int:
    """Behind the `>` that ends the type at `start`; -1 where none does."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if text[at] == ">" and depth == 0:
            return at + 1
    return -1


def cut(text: str, mark: str) -> tuple[str, str, str]:
    """`partition` at the first mark that no bracket holds."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "<{") - (letter in ">}")
        if letter == mark and depth == 0:
            return text[:at], mark, text[at + 1 :]
    return text, "", ""
