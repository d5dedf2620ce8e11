"""What a comparison's run folder is told by: a module of its own, as servers ask that who load nothing else of reports."""

from __future__ import annotations

from pathlib import Path

COMPARED, CELLS = "table.json", "cells"


def is_comparison(path: Path) -> bool:
    """Whether a folder is a comparison's, or a file its table."""
    return (path / COMPARED).is_file() and (path / CELLS).is_dir() if path.is_dir() else path.name == COMPARED
