"""Regions of pages that a command writes, and pages that are written as a whole.

A region begins with a comment that says where its text comes from, and ends with another:

    <!-- figures: meshcast predict llama3-8b --on dgx-h100 | lines 1-11 -->
    <!-- figures: fill accuracy.md > Time
    | products | {gemm > geomean error} | {accuracy-zoo.md > Time > all > rows} |
    -->
    <!-- end of figures -->

The first kind is what the command prints, all of it or some lines, as code; `slow figures:` are left out of the tests. The
second is its template with every reference (page, section, row, column; the first two may stand in the marker) replaced by
that cell of a table on another page, so that a figure stands once and is quoted everywhere else. A page that is generated as a
whole names the command that does it, with `--markdown` and its own path.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.documentation.pages import PAGES, ROOT, prose

BEGIN = re.compile(r"<!-- (?P<slow>slow )?figures: (?P<source>.*?)\s*-->\n", re.DOTALL)
END = "<!-- end of figures -->"
FILL = re.compile(r"fill\b *(.*)\n")
LINES = re.compile(r" \| lines (\d+)-(\d+)$")
REFERENCE = re.compile(r"\{([^{}]+)\}")
WHOLE = re.compile(r"^    (meshcast .* --markdown (docs/\S+))$", re.MULTILINE)
SEPARATOR = re.compile(r"^\|[\s:|-]+\|$")


class FigureError(Exception):
    """A region or a reference of a page that says what cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Some lines of a page between two markers.

    Attributes:
        page: The page.
        start: Where its text begins in the page's.
        text: The text between the markers.
        source: What makes it, as the first marker says.
        slow: Whether making it takes more than some seconds.
    """

    page: Path
    start: int
    text: str
    source: str
    slow: bool

    @property
    def is_fill(self) -> bool:
        """Whether it quotes other pages, and runs nothing."""
        return FILL.match(self.source) is not None

    @property
    def command(self) -> list[str]:
        """The words of the command."""
        return shlex.split(LINES.sub("", self.source))

    def shown(self, printed: str) -> str:
        """The region's text when the command has printed this: the lines that are asked for, as code."""
        lines = printed.rstrip("\n").split("\n")
        if asked := LINES.search(self.source):
            first, last = map(int, asked.groups())
            lines = lines[first - 1 : last]
        return "```\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"

    def __str__(self) -> str:
        return f"{self.page.name}: {self.source.splitlines()[0]}"


def regions(page: Path) -> list[Region]:
    """The regions of a page, in order.

    Raises:
        FigureError: One has no end, an end no beginning, or the source is neither a command of ours nor a template.
    """
    text = page.read_text(encoding="utf-8")
    found: list[Region] = []
    for begin in BEGIN.finditer(text):
        end = text.find(END, begin.end())
        if end < 0 or "<!-- figures: " in text[begin.end() : end]:
            raise FigureError(f"{page.name}: {begin.group(0).splitlines()[0]} has no end")
        source = begin.group("source")
        if not source.startswith(("meshcast ", "python ")) and not FILL.match(source):
            raise FigureError(f"{page.name}: {source.splitlines()[0]!r} is neither a command nor a template")
        body = text[begin.end() : end]
        found.append(
            Region(page=page, start=begin.end(), text=body, source=source, slow=begin.group("slow") is not None)
        )
    if text.count(END) != len(found):
        raise FigureError(f"{page.name}: {text.count(END)} ends of figures, {len(found)} beginnings")
    return found


def generated_pages() -> dict[Path, str]:
    """Pages that are written as a whole, with the command that does it."""
    found = ((page, each.group(1), each.group(2)) for page in PAGES for each in WHOLE.finditer(prose(page)))
    return {page: command for page, command, path in found if ROOT / path == page}


def filled(region: Region) -> str:
    """The text of a template with its references replaced.

    Raises:
        FigureError: There is no such page, section, row or column.
    """
    common = FILL.match(region.source)
    assert common is not None
    table = common.group(1)
    template = region.source[common.end() :]
    return REFERENCE.sub(lambda found: _cell(found.group(1), table), template) + "\n"


def _cell(reference: str, table: str) -> str:
    """One cell of the first table of a section, which the reference names or `table` does."""
    names = reference.split(" > ")
    if len(names) == 2:
        names = [*table.split(" > "), *names]
    if len(names) != 4:
        raise FigureError(f"{{{reference}}} is not {{page > section > row > column}}")
    page, section, row, column = names
    path = ROOT / "docs" / page
    if not path.exists():
        raise FigureError(f"no page docs/{page}")
    parts = re.split(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    if section not in texts:
        raise FigureError(f"docs/{page} has no section {section!r}")
    lines = [line for line in texts[section].splitlines() if line.startswith("|")]
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if not SEPARATOR.match(line)
    ]
    columns = rows[0] if rows else []
    if column not in columns:
        raise FigureError(f"docs/{page}, {section}: no column {column!r} among {columns}")
    found = next((cells for cells in rows[1:] if cells[0] == row), None)
    if found is None:
        raise FigureError(f"docs/{page}, {section}: no row {row!r}")
    return re.sub(r"(?<=\d)%", " %", found[columns.index(column)])


def rewritten(page: Path, made: Callable[[Region], str | None]) -> str:
    """A page's text with every region made again; those for which nothing was made stay as they are."""
    text = page.read_text(encoding="utf-8")
    for region in reversed(regions(page)):
        if (new := made(region)) is not None:
            text = text[: region.start] + new + text[region.start + len(region.text) :]
    return text
