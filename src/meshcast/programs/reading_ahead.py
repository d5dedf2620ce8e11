"""The child process that reads programs ahead of us (`programs.probe`), started before all else is loaded.

It loads jaxlib, as this process does: side by side they take no longer than one. So the command looks at the first bytes
of its arguments, and this module imports next to nothing.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from meshcast.base import Child

READER = Child("meshcast.programs._parse_child")
HLO = b"HloModule"  # how XLA's text begins
BYTECODE = b"ML\xefR"
_EXPORTS = (".bin", ".jaxexport")
_FIRST_BYTES = 64


def start_reader(arguments: Iterable[str]) -> None:
    """Starts the child if one of a command's arguments is a file that needs it."""
    if any(map(needs_reader, arguments)):
        READER.start()


def needs_reader(argument: str) -> bool:
    """Whether an argument is a file of HLO text or bytecode, or by its name an artifact of `jax.export`."""
    path = Path(argument)
    try:
        if not path.is_file():  # a pipe would lose what is read from it
            return False
        with path.open("rb") as file:
            head = file.read(_FIRST_BYTES)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                head = packed.read(_FIRST_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):  # whoever reads it will say
        return False
    return head.lstrip().startswith((HLO, BYTECODE)) or path.suffix in _EXPORTS
