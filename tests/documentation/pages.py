"""What README.md and the pages of docs/ ask a reader to type: commands, synopses and Python, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PROGRAMS = ("meshcast ", "make ", "python ")
# A word in capitals stands for the reader's own; so do dots and square brackets. Values behind flags are real ones.
PLACEHOLDER = re.compile(r"(?<![\w.-])(?:[A-Z]{2,}(?:\.[a-z.]+)?|\.\.\.)(?![\w-])|\[|N\b|K\b")
INLINE = re.compile(r"`(meshcast [^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some lines of code of a page."""

    page: Path
    line: int  # of the first line, counted from 1
    language: str  # as the fence says; empty for indented and bare blocks
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The code."""
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line that a reader may type."""

    page: Path
    line: int
    text: str

    @property
    def is_synopsis(self) -> bool:
        """Whether it says how a command is called rather than calling it."""
        return PLACEHOLDER.search(self.text) is not None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: {self.text}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced and the indented code of a page, in order."""
    fence: list[str] | None = None
    indented: list[str] = []
    start, language = 0, ""
    for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), ""], start=1):
        if fence is None and line.startswith("    ") and (indented or line.strip()):
            start = start if indented else number
            indented.append(line[4:])
            continue
        if indented:
            yield Block(page=page, line=start, language="", lines=tuple(indented))
            indented = []
        if line.startswith("```"):
            if fence is None:
                fence, start, language = [], number + 1, line[3:].strip()
            else:
                yield Block(page=page, line=start, language=language, lines=tuple(fence))
                fence = None
        elif fence is not None:
            fence.append(line)


def commands(page: Path) -> list[Command]:
    """The lines of a page's code that begin with one of our programs; a backslash joins lines, a comment is dropped."""
    found = []
    for block in blocks(page):
        if block.language not in ("", "sh", "bash", "console"):
            continue
        whole, first = "", block.line
        for number, line in enumerate(block.lines, start=block.line):
            if not whole:
                first = number
            whole += line.removeprefix("$ ")
            if whole.endswith("\\"):
                whole = whole[:-1]
                continue
            text = re.sub(r"(?<=\S)\s+#\s.*$", "", whole).strip()
            if text.startswith(PROGRAMS):
                found.append(Command(page=page, line=first, text=text))
            whole = ""
    return found


def mentions(page: Path) -> list[Command]:
    """Commands in running text."""
    return [
        Command(page=page, line=number, text=found.group(1))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        for found in INLINE.finditer(line)
    ]


def prose(page: Path) -> str:
    """A page without its fenced code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
