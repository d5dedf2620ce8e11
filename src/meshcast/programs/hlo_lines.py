"""XLA HLO text, one instruction at a time: name, shape, opcode, operands, attributes.

Reads what XLA's own printer writes (one instruction per line, two blanks in front), not every text XLA's parser takes:
callers print a parsed module first and so get this form whatever the user wrote.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]')
_BRACKET_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{},]')
_INDEX_NOTE = re.compile(r"/\*index=\d+\*/")
_HEAD = re.compile(r"  (ROOT )?%(\S+) = ")
_OPCODE = re.compile(r" ([a-z][\w-]*)\(")
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([\d,]*)[^}]*\})?")
# What a TPU's layout says besides the order of dimensions: tiles, and the memory space that is not HBM.
_TILED_LAYOUT = re.compile(r"(?<=\])\{([\d,]*):[^{}]*\}")
_MEMORY_SPACE = re.compile(r"S\((\d+)\)")


@dataclass(slots=True, kw_only=True)
class Instruction:
    """One line of a computation; attribute values are kept as the printer wrote them."""

    name: str
    shape: str
    opcode: str
    operands: list[str]  # "%name", "%name#1" (an element of a tuple), or a literal
    attributes: dict[str, str] = field(default_factory=dict)
    root: bool = False

    def __str__(self) -> str:
        attributes = "".join(f", {key}={value}" for key, value in self.attributes.items())
        root = "ROOT " if self.root else ""
        return f"  {root}%{self.name} = {self.shape} {self.opcode}({', '.join(self.operands)}){attributes}"

    def annotate(self, **notes: str) -> None:
        """Add `meshcast.*` notes as frontend attributes, which XLA carries over to MLIR as they are."""
        said = self.attributes.get("frontend_attributes", "{}")[1:-1]
        new = ",".join(f"meshcast.{key}={quoted(value)}" for key, value in notes.items())
        self.attributes["frontend_attributes"] = "{" + ",".join(filter(None, (said, new))) + "}"


@dataclass(frozen=True, slots=True)
class Array:
    """An array shape: element type, sizes, and the dimensions from innermost to outermost in memory."""

    dtype: str
    sizes: tuple[int, ...]
    minor_to_major: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes)

    @property
    def row_major(self) -> bool:
        """True for the default layout: the last dimension is the innermost."""
        return self.minor_to_major == tuple(reversed(range(len(self.sizes))))


def quoted(text: str) -> str:
    """A string literal of HLO text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`; the length of the text where none does."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        bracket = match.group()
        if bracket in "([{":
            depth += 1
        elif bracket in ")]}":
            depth -= 1
            if depth == 0:
                return match.start()
    return len(text)


def split(text: str) -> list[str]:
    """The comma-separated parts of a list, brackets and strings left whole."""
    parts: list[str] = []
    depth = begin = 0
    for match in _BRACKET_OR_COMMA.finditer(text):
        token = match.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif token == "," and depth == 0:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    parts.append(text[begin:].strip())
    return [part for part in parts if part]


def head(line: str) -> tuple[bool, str, str, str, int] | None:
    """`(is root, name, shape, opcode, index of the operands' bracket)`; None for a line without an instruction."""
    match = _HEAD.match(line)
    if match is None:
        return None
    begin = match.end()
    end = closing(line, begin) + 1 if line.startswith("(", begin) else begin
    opcode = _OPCODE.search(line, end)
    if opcode is None:
        return None
    return match.group(1) is not None, match.group(2), line[begin : opcode.start()], opcode.group(1), opcode.end() - 1


def parse(line: str) -> Instruction | None:
    """The instruction on this line, None for any other line."""
    found = head(_INDEX_NOTE.sub("", line))
    if found is None:
        return None
    line = _INDEX_NOTE.sub("", line)
    root, name, shape, opcode, begin = found
    end = closing(line, begin)
    attributes = {}
    for part in split(line[end + 1 :]):
        key, _, value = part.partition("=")
        attributes[key] = value
    return Instruction(
        name=name, shape=shape, opcode=opcode, operands=split(line[begin + 1 : end]), attributes=attributes, root=root
    )


def bits(dtype: str) -> int:
    """Bits of one element, from the type's name: `bf16`, `s8`, `f8e4m3fn`; a `pred` takes a byte."""
    found = re.search(r"\d+", dtype)
    return int(found[0]) if found else 8


def memory_space(shape: str) -> int:
    """Where an array lies: 0 is the device's main memory, 1 a TPU's vector memory, others hold counters and scalars."""
    found = _MEMORY_SPACE.search(shape)
    return int(found[1]) if found else 0


def without_tiles(line: str) -> str:
    """A line whose layouts only order dimensions, as every other backend writes them."""
    return _TILED_LAYOUT.sub(lambda match: "{" + match[1] + "}" if match[1] else "", line)


def elements(shape: str) -> list[str]:
    """The element shapes of a tuple shape; an array's own shape in a list."""
    return split(shape[1:-1]) if shape.startswith("(") else [shape]


def element(shape: str, path: list[str]) -> str:
    """The shape reached by following tuple indices, as `%name#0#1` spells them."""
    for index in path:
        shape = elements(shape)[int(index)]
    return shape


def array(shape: str) -> Array | None:
    """The array a shape describes, bounds of dynamic sizes taken as sizes; None for tuples and tokens."""
    match = _ARRAY.match(shape)
    if match is None or match.group(1) == "token":
        return None
    sizes = tuple(int(size.strip().removeprefix("<=")) for size in match.group(2).split(",") if size.strip())
    layout = match.group(3)
    minor = tuple(map(int, layout.split(","))) if layout else tuple(reversed(range(len(sizes))))
    return Array(match.group(1), sizes, minor)


def successor(instruction: Instruction, opcode: str, operands: list[str]) -> Instruction:
    """Another op of the same name, shape and origin."""
    kept = ("frontend_attributes", "metadata")
    return Instruction(
        name=instruction.name,
        shape=instruction.shape,
        opcode=opcode,
        operands=list(operands),
        attributes={key: instruction.attributes[key] for key in kept if key in instruction.attributes},
        root=instruction.root,
    )


def shape_text(dtype: str, sizes: tuple[int, ...]) -> str:
    """An array shape as HLO writes it, without its layout."""
    return f"{dtype}[{','.join(map(str, sizes))}]"
