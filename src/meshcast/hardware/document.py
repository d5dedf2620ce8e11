"""A TOML file with the line of every key, so that an error can point at it.

`tomllib` gives values without places. The locator below is no second parser: it runs only on text that `tomllib` has
accepted, and finds table headers and the keys at the start of lines; keys inside an inline table are where it begins.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError, unreadable

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(?P<open>\[\[?)(?P<path>[^\[\]]+)\]")
_ASSIGNMENT = re.compile(r"""\s*(?P<path>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
# Strings and comments are blanked before brackets are counted; multi-line strings come first.
_OPAQUE = re.compile(r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*')


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data, the line of each of its keys, and the document it is based on."""

    path: Path
    data: dict[str, Any]
    lines: dict[Key, int]
    base: Document | None = None

    def place(self, key: Key) -> str:
        """The file and line of `key`, or of the closest table around it, in this document or those below it."""
        below = [self]
        while base := below[-1].base:
            below.append(base)
        for length in range(len(key), 0, -1):
            for document in below:
                if line := document.lines.get(key[:length]):
                    return f"{document.path}:{line}"
        return str(self.path)


def read_document(path: Path) -> Document:
    """The document in the file at `path`, without its base.

    Raises:
        InputError: The file cannot be read or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    try:
        data = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # also a number of thousands of digits, and arrays in arrays without end
        message = str(error)
        found = re.search(r"\(at line (\d+)", message)
        line = found[1] if found else str(text.count("\n") + 1)
        raise InputError(
            f"not valid TOML: {message}",
            where=f"{path}:{line}",
            fix="lines are name = value, texts in quotes, and tables begin with [name]",
        ) from None
    # Reversed, so that the first place wins where a table is opened more than once.
    lines = dict(reversed(list(_locate(text))))
    return Document(path=path, data=data, lines=dict(_of_all(data, (), 0, lines)))


def _of_all(value: Any, key: Key, around: int, lines: dict[Key, int]) -> Iterator[tuple[Key, int]]:
    """Every key with its line: inside inline tables and lists that of the value `around`, so that none is taken for a base's."""
    line = lines.get(key, around)
    if key:
        yield key, line
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield from _of_all(each, (*key, name), line, lines)


def _locate(text: str) -> Iterator[tuple[Key, int]]:
    """Every key that starts a line, with its line number (from 1)."""
    blanked = _OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text).split("\n")
    table: Key = ()
    seen: Counter[Key] = Counter()
    depth = 0
    for number, (line, bare) in enumerate(zip(text.split("\n"), blanked, strict=True), start=1):
        if depth == 0 and bare.strip():
            if header := _HEADER.match(line):
                *parents, last = _split(header["path"])
                table = ()
                for part in parents:
                    table = _inside((*table, part), seen)
                table = (*table, last)
                if header["open"] == "[[":
                    seen[table] += 1
                table = _inside(table, seen)
                yield from ((table[:n], number) for n in range(1, len(table) + 1))
                continue
            if assignment := _ASSIGNMENT.match(line):
                key = table + _split(assignment["path"])
                yield from ((key[:n], number) for n in range(len(table) + 1, len(key) + 1))
        depth += sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))


def _inside(table: Key, seen: Counter[Key]) -> Key:
    """`table`, or its latest element where it is an array of tables."""
    return (*table, seen[table] - 1) if seen[table] else table


def _split(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(path))
