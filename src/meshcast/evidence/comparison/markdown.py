"""A comparison as a page."""

from __future__ import annotations

from meshcast.base import markdown_of
from meshcast.evidence.comparison.comparison import Comparison
from meshcast.evidence.comparison.tables import comparison_sections
from meshcast.results import Section


def comparison_page(comparison: Comparison, *, plot: str | None = None, heading: int = 2) -> str:
    """The page: the plot, then every table; headings of the given level."""
    image = f"![step time by device and fidelity]({plot})\n\n" if plot is not None else ""
    return image + "\n".join(section_markdown(section, heading=heading) for section in comparison_sections(comparison))


def section_markdown(section: Section, *, heading: int = 2) -> str:
    """A section as a heading, a table and a note."""
    parts = [f"{'#' * heading} {section.title}\n"] if section.title else []
    if section.rows:
        right = [place for place, column in enumerate(section.columns) if column.align == "right"]
        parts.append(markdown_of([column.title for column in section.columns], section.rows, right=right) + "\n")
    if section.note:
        parts.append(f"{section.note}\n")
    return "\n".join(parts)
