"""Objects that print well: a class says what its rows are, and gets its text and its HTML from them; Markdown tables."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

Rows = Sequence[tuple[str, str]]


# Letters whose names begin with a vowel: an H200, an L4, an MI300X, an NPU.
_SPOKEN = frozenset("aefhilmnorsx")


def with_article(name: str) -> str:
    """`a v100` and `an h200`: by the sound that it begins with, letter by letter where it is a short code."""
    first = name[:1].lower()
    by_letter = re.match(r"[a-z]{1,2}\d|[a-z]?pu\b|[^aeiou\d]+\d", name.lower()) is not None
    return f"{'an' if first in (_SPOKEN if by_letter else frozenset('aeio')) else 'a'} {name}"


class HasRows(Protocol):
    """The method that the decorator `shown` needs a class to have."""

    def summary_rows(self) -> Rows:
        """Label and value of each line."""
        ...


T = TypeVar("T", bound=HasRows)


def text_of(rows: Rows) -> str:
    """Rows as lines, labels padded to one column."""
    width = max((len(label) for label, _ in rows), default=0) + 2
    return "\n".join(f"{label:<{width}}{value}" for label, value in rows)


def html_of(rows: Rows) -> str:
    """Rows as an HTML table, for notebooks."""
    cells = "".join(f"<tr><th>{html.escape(label)}</th><td>{html.escape(value)}</td></tr>" for label, value in rows)
    return f"<table>{cells}</table>"


# What would end a cell, start a tag or begin emphasis.
_MARKDOWN = str.maketrans({"|": "\\|", "<": "&lt;", "*": "\\*"})


def markdown_of(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """A Markdown table; the columns of the places in `right` hold numbers."""
    rules = ["---:" if place in right else "---" for place in range(len(head))]
    cells = ([cell.translate(_MARKDOWN) for cell in row] for row in (head, rules, *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def shown(cls: type[T]) -> type[T]:
    """Class decorator: `str()` and notebooks show `summary_rows()`."""
    target: Any = cls
    target.__str__ = lambda self: text_of(self.summary_rows())
    target._repr_html_ = lambda self: html_of(self.summary_rows())
    return cls
