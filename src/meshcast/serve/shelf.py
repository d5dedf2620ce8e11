"""Programs that were dropped on the page, while there is room for them."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict


class ProgramShelf:
    """Programs that were dropped on the page, up to so many bytes; the one used least recently goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> str:
        """Keeps a program; the digest that it is found by."""
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if digest not in self._held:
                self._bytes += len(data)
            self._held[digest] = (name, data)
            while self._bytes > self._limit and len(self._held) > 1:
                _, (_, gone) = self._held.popitem(last=False)
                self._bytes -= len(gone)
        return digest

    def get(self, digest: str) -> tuple[str, bytes] | None:
        """Name and bytes of a program, while it is held."""
        with self._lock:
            if digest in self._held:
                self._held.move_to_end(digest)
            return self._held.get(digest)
