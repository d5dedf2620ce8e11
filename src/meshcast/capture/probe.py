"""Whether bytecode can be read without bringing the process down: tried in a child first."""

from __future__ import annotations

import contextlib
import functools

from meshcast.child import Child, ChildCrashedError, ChildFailedError
from meshcast.errors import InputError

TIMEOUT_S = 120.0


@functools.cache
def _child() -> Child:
    return Child("meshcast.capture._parse_child")


def probe_bytecode(data: bytes, *, portable: bool, where: str) -> None:
    """Returns when the native reader survives the data; what else is wrong with it, reading it here will say.

    Raises:
        InputError: the reader crashed, or did not end.
    """
    with contextlib.suppress(ChildFailedError):
        try:
            _child().request({"portable": portable}, data, timeout_s=TIMEOUT_S)
        except ChildCrashedError as error:
            raise InputError(
                f"MLIR's bytecode reader crashed on it ({error})", where=where, fix="the file is damaged: copy it again"
            ) from None
