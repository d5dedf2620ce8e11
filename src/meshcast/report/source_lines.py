"""Which lines of a user's program ops come from, by the names that debug locations give ops.

A location of JAX's is a name with the frames behind it: `"jit(step)/dot_general"("step"("model.py":12:8))`. Names of ops inside a
function that is called are relative to the call, and XLA joins both; so a name is kept as it stands and joined to its calls'.
Where several lines share a name all of them are told. A line is the innermost frame and the one that calls it: helpers are called
from many places. What has no frames of its own has those of the op around it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from meshcast.programs import Program

MOST_LINES = 3  # of one name that are told
FRAMES = 2  # of a line that are told
MOST_NAMES = 200_000  # of a program that are looked at
_PLACE = re.compile(r'"([^"\n]+)":(\d+):\d+')
_CALLED = re.compile(r"@([\w.$-]+|\"[^\"]*\")")


def source_lines(*programs: Program) -> dict[str, str]:
    """By an op's name the lines that it comes from, as `model.py:12`; nothing where programs have no such locations."""
    found: dict[str, dict[str, None]] = {}
    for program in programs:
        walk = _Walk(functions={_symbol(each): each for each in program.module.body.operations})
        for name, line in itertools.islice(walk.named(program.module.operation, "", ""), MOST_NAMES):
            found.setdefault(name, {})[line] = None
    return {name: _told(list(lines)) for name, lines in found.items()}


def nearest_line(lines: Mapping[str, str], location: str) -> str:
    """The lines of an op by its name, or by that of the nearest op around it; nothing where none is known."""
    while location:
        if location in lines:
            return lines[location]
        location = location.rpartition("/")[0]
    return ""


@dataclass(slots=True, kw_only=True)
class _Walk:
    functions: dict[str, Any]
    _entered: set[tuple[str, str]] = field(default_factory=set)

    def named(self, operation: Any, prefix: str, around: str) -> Iterator[tuple[str, str]]:
        """Names of the ops inside an op, as they stand and joined to the calls around them, with the line of each."""
        for region in operation.regions:
            for block in region.blocks:
                for each in block.operations:
                    yield from self._op(each.operation, prefix, around)

    def _op(self, inner: Any, prefix: str, around: str) -> Iterator[tuple[str, str]]:
        name = getattr(inner.location, "name_str", "") or ""
        line = (_line(inner.location) or around) if name else ""
        if line:
            yield name, line
            if prefix:
                yield f"{prefix}/{name}", line
        if inner.name == "func.call":
            yield from self._call(inner, f"{prefix}/{name}" if prefix else name, line)
        else:
            yield from self.named(inner, prefix, line)

    def _call(self, call: Any, prefix: str, line: str) -> Iterator[tuple[str, str]]:
        called = _CALLED.search(str(call.attributes["callee"]))
        function = self.functions.get(called[1].strip('"')) if called else None
        if called is None or function is None or (called[1], prefix) in self._entered:
            return
        self._entered.add((called[1], prefix))
        yield from self.named(function.operation, prefix, line)


def _symbol(operation: Any) -> str:
    attributes = operation.operation.attributes
    return str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else ""


def _line(location: Any) -> str:
    """The two innermost lines of a location, as `model.py:12 < model.py:40`; nothing where it has no frames."""
    places: dict[str, None] = {}
    for file, number in _PLACE.findall(str(location)):
        places[f"{PurePath(file.replace(chr(92), '/')).name}:{number}"] = None
        if len(places) == FRAMES:
            break
    return " < ".join(places)


def _told(lines: list[str]) -> str:
    """Lines of one name, and how many more."""
    more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    return "; ".join(lines[:MOST_LINES]) + more
