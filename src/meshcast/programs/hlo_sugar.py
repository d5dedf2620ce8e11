"""Newer HLO spelled for an older parser.

`%pair#1` is written out as a get-tuple-element instruction, and what an op that is neither a fusion nor a custom call says of
results that show an operand is left out: older parsers know it of those two alone. Collectives of pipelines say it.
"""

from __future__ import annotations

import re

from meshcast.programs.hlo_lines import element, head

_ELEMENT = re.compile(r"%([\w.-]+)((?:#\d+)+)")
_SHOWN = re.compile(r", output_to_operand_aliasing=\{(?:[^{}]|\{[^{}]*\})*\}")
_MAY_SHOW = re.compile(r" (?:fusion|custom-call)(?:-start)?\(")


def has_sugar(text: str) -> bool:
    """True when some operand is spelled as an element of a tuple, or an op may say what its results show."""
    return _ELEMENT.search(text) is not None or _SHOWN.search(text) is not None


def desugar(text: str) -> str:
    """The text with every element of a tuple taken by an instruction of its own, behind the tuple, without what they show."""
    wanted: dict[str, set[str]] = {}
    for name, path in _ELEMENT.findall(text):
        wanted.setdefault(name, set()).add(path)
    lines: list[str] = []
    for line in text.splitlines():
        found = head(line)
        if found is not None and not _MAY_SHOW.search(line):
            line = _SHOWN.sub("", line)
        lines.append(_ELEMENT.sub(lambda match: f"%{match[1]}{_suffix(match[2])}", line) if found else line)
        if found is not None and found[1] in wanted:
            lines.extend(_elements(found[1], found[2], wanted[found[1]]))
    return "\n".join(lines)


def _suffix(path: str) -> str:
    return ".element" + path.replace("#", ".")


def _elements(name: str, shape: str, paths: set[str]) -> list[str]:
    """One instruction for every prefix of every path: an element of an element needs both."""
    prefixes = {path[: match.end()] for path in paths for match in re.finditer(r"#\d+", path)}
    made: list[str] = []
    for path in sorted(prefixes, key=lambda each: each.count("#")):
        parent, _, index = path.rpartition("#")
        source = f"%{name}{_suffix(parent)}" if parent else f"%{name}"
        inner = element(shape, path[1:].split("#"))
        made.append(f"  %{name}{_suffix(path)} = {inner} get-tuple-element({source}), index={index}")
    return made
