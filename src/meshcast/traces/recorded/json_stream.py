"""A large JSON document read piece by piece: its long list item by item, everything else as whole values.

Profiles have one list of millions of events beside a few small values. An item is decoded as soon as it is whole, so that what is
held is one chunk of text and whatever the caller keeps.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from meshcast.base import GZIP_MAGIC, InputError

CHUNK = 1 << 20  # characters that are read at once
LONGEST_VALUE = 1 << 27  # characters that one value may have: what is longer is cut off or no JSON
_BLANK = " \t\n\r"
AGAIN = "export the trace again"


@dataclass(slots=True)
class Passed:
    """How far a document is read."""

    file: BinaryIO | None = None
    size: int = 0

    @property
    def share(self) -> float:
        """Of its bytes, as they lie in the file: packed ones are."""
        return self.file.tell() / self.size if self.file is not None and not self.file.closed and self.size else 0.0


def stream_json(path: Path, items: str, passed: Passed | None = None) -> Iterator[tuple[str | None, Any]]:
    """(key, value) of everything in a document but the list `items`, and (None, item) of every item of that list.

    A document that is a list itself is taken for that list. Whoever gives `passed` can ask it how far that is.

    Raises:
        InputError: The file cannot be read, or is not whole JSON; the character where that shows is named.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            if passed is not None:
                passed.file, passed.size = file, path.stat().st_size
            with (
                gzip.GzipFile(fileobj=file) if packed else file as raw,
                io.TextIOWrapper(raw, encoding="utf-8", errors="replace") as text,
            ):
                yield from _JsonReader(text, str(path)).document(items)
    except (OSError, EOFError, ValueError) as error:  # a name with a zero byte is a wrong value
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {said}", where=str(path), fix="check the path, or " + AGAIN) from None


class _JsonReader:
    """Text that is read as far as it is needed."""

    def __init__(self, file: io.TextIOBase, where: str) -> None:
        self._file = file
        self._where = where
        self._text = ""
        self._at = 0
        self._passed = 0  # characters in front of the text that is held
        self._ended = False
        self._decode = json.JSONDecoder().raw_decode

    def document(self, items: str) -> Iterator[tuple[str | None, Any]]:
        """All of it."""
        first = self._next()
        if first == "[":
            yield from self._items()
            return
        if first != "{":
            raise self._error("a JSON object or list is expected")
        self._at += 1
        while (sign := self._next()) != "}":
            if sign == ",":
                self._at += 1
                continue
            key = self._value()
            if self._next() != ":":
                raise self._error("a colon is expected behind a name")
            self._at += 1
            if key == items and self._next() == "[":
                yield from self._items()
            else:
                yield str(key), self._value()

    def _items(self) -> Iterator[tuple[None, Any]]:
        self._at += 1
        while (sign := self._next()) != "]":
            if sign == ",":
                self._at += 1
            else:
                yield None, self._value()
        self._at += 1

    def _next(self) -> str:
        """The next character that is not blank, where the text now stands."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise self._error("it ends in the middle")

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if len(self._text) - self._at > LONGEST_VALUE or not self._more():
                    raise self._error(
                        f"no JSON: {error.msg if isinstance(error, json.JSONDecodeError) else error}"
                    ) from None
                continue
            # A number may go on in the next chunk, also behind its point.
            closed = self._text[end - 1] in '}]"' or self._text[end : end + 1] in (*_BLANK, ",", "}", "]")
            if closed or not self._more():
                self._at = end
                return value

    def _more(self) -> bool:
        """Reads on, at least as much as is held, so that a long value is not looked at over and over."""
        if self._ended:
            return False
        self._passed += self._at
        self._text, self._at = self._text[self._at :], 0
        read = self._file.read(max(CHUNK, len(self._text)))
        self._ended = not read
        self._text += read
        return bool(read)

    def _error(self, said: str) -> InputError:
        return InputError(f"character {self._passed + self._at}: {said}", where=self._where, fix=AGAIN)
