"""Pieces of MLIR text around quantised types: tensor types, lists of types, numbers, comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshcast.programs.quantised_types import MARK, closing, cut

_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def split_types(types: str) -> Iterator[str]:
    """Types with commas between them, one by one."""
    while types:
        first, _, types = cut(types, ",")
        yield first


def element_type(tensor: str) -> str:
    """`i8` of `tensor<4x8xi8>`."""
    return tensor.removesuffix(">").rpartition("x")[2].rpartition("<")[2]


def with_element(tensor: str, element: str) -> str:
    """The tensor type with another element type."""
    return tensor.removesuffix(element_type(tensor) + ">") + element + ">"


def bits_of(element: str) -> int:
    """8 of `i8`."""
    return int(re.sub(r"\D", "", element) or 0)


def quantised_in(tensor: str) -> str:
    """The quantised element type of a tensor's; empty where it has none."""
    start = tensor.find(MARK)
    return tensor[start : closing(tensor, start)] if start >= 0 else ""


def sizes_of(tensor: str) -> list[str]:
    """`4` and `8` of `tensor<4x8xf32>`."""
    return tensor.partition("<")[2].split("x")[:-1]


def as_float(number: str) -> str:
    """A float as MLIR reads it: with a point."""
    digits, mark, exponent = number.lower().lstrip("+").partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}{mark}{exponent}"


def without_comment(line: str) -> str:
    """A line up to `//`, but for that in a string."""
    if "//" not in line:
        return line
    comment = next((found for found in _STRING_OR_COMMENT.finditer(line) if found[0].startswith("//")), None)
    return line if comment is None else line[: comment.start()].rstrip()
