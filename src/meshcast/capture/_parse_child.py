"""The child process that reads bytecode before we do: a damaged file can abort jaxlib's reader or take all memory."""

from __future__ import annotations

import resource
from typing import Any

from meshcast.capture import mlir
from meshcast.child import serve

MEMORY_LIMIT = 8 * 2**30


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """Nothing, once the module was read; an error otherwise."""
    where = "program"
    _ = mlir.deserialize_portable(data, where=where) if request["portable"] else mlir.parse(data, where=where)
    return b""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    serve(answer)
