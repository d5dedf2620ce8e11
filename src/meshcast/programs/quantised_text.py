"""Pieces of MLIR text around quantised types: tensor types, lists of types, numbers, comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshcast.programs.quantised_types import MARK, closing, cut

_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_STATEMENT = re.compile(r"\s*%[\w$.#:-]+\s*=")
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


def on_one_line(text: str) -> str:
    """A text with every op on one line, as MLIR allows line breaks anywhere and the specification's own examples have them.

    The lines that an op went on over are left empty, so that those behind it keep their numbers. An op with a region stays as
    it is: what the region holds are ops with lines of their own.
    """
    lines = text.split("\n")
    made, at = [], 0
    while at < len(lines):
        last = _last_line(lines, at)
        whole = " ".join(each.strip() if n else each for n, each in enumerate(lines[at : last + 1]))
        made += [whole, *[""] * (last - at)]
        at = last + 1
    return "\n".join(made)


def _last_line(lines: list[str], first: int) -> int:
    """Where the op that begins on a line ends: brackets are closed and nothing is left to follow; `first` of any other line."""
    if not _STATEMENT.match(lines[first]):
        return first
    depth = 0
    for at in range(first, len(lines)):
        line = _STRING.sub("", lines[at]).replace("->", "  ").strip()
        if "({" in line or (_STATEMENT.match(lines[at]) and at > first):  # a region, or ops of one
            return first
        depth += sum(map(line.count, "([{<")) - sum(map(line.count, ")]}>"))
        goes_on = lines[at].rstrip().endswith((",", ":", "->", "=")) or _next(lines, at).startswith((":", "->"))
        if depth <= 0 and not goes_on:
            return at if depth == 0 else first
    return first


def _next(lines: list[str], at: int) -> str:
    return lines[at + 1].strip() if at + 1 < len(lines) else ""
