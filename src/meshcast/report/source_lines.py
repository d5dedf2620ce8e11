"""Which lines of a user's program ops come from, by the names that debug locations give ops.

A location of JAX's is a name with the frames behind it: `"jit(step)/dot_general"("step"("model.py":12:8))`. Names of ops inside a
function that is called are relative to the call, and XLA joins both; so a name is kept as it stands and joined to its calls'. Where
several lines share a name all of them are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from meshcast.programs import Program

MOST_LINES = 3  # of one name that are told
MOST_OPS = 200_000  # that are looked at
_PLACE = re.compile(r'"([^"\n]+)":(\d+):\d+')
_CALLED = re.compile(r"@([\w.$-]+|\"[^\"]*\")")


def source_lines(program: Program) -> dict[str, str]:
    """By an op's name the lines that it comes from, as `model.py:12`; nothing where the program has no such locations."""
    found: dict[str, dict[str, None]] = {}
    functions = {_symbol(each): each for each in program.module.body.operations}
    entered: set[tuple[str, str]] = set()
    for count, (name, line) in enumerate(_named(program.module.operation, "", functions, entered)):
        found.setdefault(name, {})[line] = None
        if count >= MOST_OPS:
            break
    return {name: _told(list(lines)) for name, lines in found.items()}


def _named(operation: Any, prefix: str, functions: dict[str, Any], entered: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Names of the ops inside an op, as they stand and joined to the calls around them, with the innermost line of each."""
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                inner = each.operation
                name = getattr(inner.location, "name_str", "") or ""
                line = _line(inner.location) if name else ""
                if line:
                    yield name, line
                    if prefix:
                        yield f"{prefix}/{name}", line
                if inner.name == "func.call":
                    yield from _inside_call(inner, f"{prefix}/{name}" if prefix else name, functions, entered)
                elif inner.name != "func.func" or not prefix:
                    yield from _named(inner, prefix, functions, entered)


def _inside_call(
    call: Any, prefix: str, functions: dict[str, Any], entered: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    called = _CALLED.search(str(call.attributes["callee"]))
    function = functions.get(called[1].strip('"')) if called else None
    if called is None or function is None or (called[1], prefix) in entered:
        return
    entered.add((called[1], prefix))
    yield from _named(function.operation, prefix, functions, entered)


def _symbol(operation: Any) -> str:
    attributes = operation.operation.attributes
    return str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else ""


def _line(location: Any) -> str:
    """The innermost frame of a location, as `model.py:12`; nothing where it has none."""
    place = _PLACE.search(str(location))
    return f"{PurePath(place[1].replace(chr(92), '/')).name}:{place[2]}" if place else ""


def _told(lines: list[str]) -> str:
    """Lines of one name: `model.py:12, 14`, and how many more."""
    by_file: dict[str, list[str]] = {}
    for line in lines[:MOST_LINES]:
        file, _, number = line.rpartition(":")
        by_file.setdefault(file, []).append(number)
    said = "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in by_file.items())
    return said + (f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else "")
