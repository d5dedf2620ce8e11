"""A comparison as a page."""

from __future__ import annotations

from collections.abc import Iterable

from meshcast.comparison.comparison import Comparison
from meshcast.comparison.tables import (
    agreement_sections,
    fidelity_sections,
    missing_sections,
    order_sections,
    swap_sections,
    time_sections,
)
from meshcast.results.printer import Section


def comparison_page(comparison: Comparison, *, plot: str | None = None, heading: int = 2) -> str:
    """The page: the plot, then every table; headings of the given level."""
    sections = [
        *(section for target in comparison.targets for section in time_sections(comparison, target)),
        *agreement_sections(comparison),
        *swap_sections(comparison),
        *order_sections(comparison),
        *fidelity_sections(comparison),
        *missing_sections(comparison),
    ]
    image = f"![step time by device and fidelity]({plot})\n\n" if plot is not None else ""
    return image + "\n".join(section_markdown(section, heading=heading) for section in sections)


def section_markdown(section: Section, *, heading: int = 2) -> str:
    """A section as a heading, a table and a note."""
    parts = [f"{'#' * heading} {section.title}\n"] if section.title else []
    if section.rows:
        marks = ["---:" if column.align == "right" else "---" for column in section.columns]
        lines = [[column.title for column in section.columns], marks, *map(list, section.rows)]
        parts.append("\n".join(map(_line, lines)) + "\n")
    if section.note:
        parts.append(f"{section.note}\n")
    return "\n".join(parts)


def _line(cells: Iterable[str]) -> str:
    # Characters that would end a cell or start a tag.
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*") for cell in cells)
    return f"| {' | '.join(escaped)} |"
