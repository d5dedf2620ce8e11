"""Writes `src/meshcast/options/keywords.py`, the types of options as keywords: `python -m tests.options.keyword_types`.

Type checkers and editors read texts, not declarations: the text is made of them, and a test keeps both equal.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from meshcast.options.options import Options, option_places
from meshcast.options.parts import PART_KINDS

SOURCES = Path(__file__).resolve().parents[2] / "src" / "meshcast"
WRITTEN = SOURCES / "options" / "keywords.py"
COMMAND = "make option-keywords"
# What a verb takes by other means comes last: each class adds a keyword to the one before.
CLASSES = (
    ("ManyKeywords", "Options as keywords of `compare`, which takes several devices and fidelities by arguments of its own.", ()),
    ("PlacedKeywords", "Options as keywords of what takes its hardware as an argument: `Program.on`.", ("fidelity",)),
    ("OptionKeywords", "Options as keywords of `predict` and of all that asks for one prediction.", ("on",)),
)  # fmt: skip
STACK = ("stack", "str | Path | Stack | None")
ELSEWHERE = {"Mapping": "collections.abc", "Sequence": "collections.abc", "Path": "pathlib"}


def keywords_text() -> str:
    """The module as it ought to be."""
    body, names = [], set[str]()
    base = "TypedDict, total=False"
    held_back = {name for _, _, own in CLASSES for name in own}
    for title, says, own in CLASSES:
        body += ["", "", f"class {title}({base}):", f'    """{says}"""', ""]
        entries = [_entry(name) for name in option_places() if name in own or (not own and name not in held_back)]
        for name, kind in [*entries, *([] if own else [STACK])]:
            body.append(f"    {name}: {kind}")
            names |= {node.id for node in ast.walk(ast.parse(kind)) if isinstance(node, ast.Name)}
        base = f"{title}, total=False"
    lines = [
        '"""Options as keywords, with their types, for editors and type checkers.',
        "",
        f"Written by `{COMMAND}` of what is declared of every option (`options.declared`).",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING, TypedDict",
        "",
        "if TYPE_CHECKING:",
        *(f"    from {home} import {name}" for home, name in _homes(names)),
    ]  # fmt: skip
    return _formatted("\n".join([*lines, *body]) + "\n")


def _entry(name: str) -> tuple[str, str]:
    place = option_places()[name]
    owner = Options if place.part is None else PART_KINDS[place.part]
    kinds = {each.name: str(each.type) for each in dataclasses.fields(owner)}
    return name, place.field.declaration.takes or kinds[place.field.attribute]


def _homes(names: Iterable[str]) -> list[tuple[str, str]]:
    """Where each name is imported from: the door of a package that options may import, in the order of the data's way."""
    found = {}
    for name in sorted(set(names) - set(dir(builtins)), key=str):
        found[name] = ELSEWHERE.get(name) or next(
            f"meshcast.{door.parent.name}"
            for door in sorted(SOURCES.glob("*/__init__.pyi"), key=lambda each: each.parent.name != "options")
            if re.search(rf" as {name}$", door.read_text(encoding="utf-8"), re.MULTILINE)
        )
    return sorted((home, name) for name, home in found.items())


def _formatted(text: str) -> str:
    """As `ruff` has imports and lines, which the rest of the sources is checked by."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    for words in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        asked = [*ruff, *words, "--stdin-filename", str(WRITTEN), "-"]
        text = subprocess.run(asked, input=text, capture_output=True, text=True, check=False).stdout or text
    return text


if __name__ == "__main__":
    WRITTEN.write_text(keywords_text(), encoding="utf-8")
