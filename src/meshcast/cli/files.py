"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from meshcast.errors import InputError


def write_file(path: Path, text: str) -> None:
    """Writes a text, or says why it cannot be written.

    Raises:
        InputError: The path cannot be written to.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error}", where=str(path)) from error
