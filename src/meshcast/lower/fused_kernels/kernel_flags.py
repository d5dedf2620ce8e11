"""What a kernel's ops say of its speed, as flags that estimators read."""

from __future__ import annotations

import functools
from collections.abc import Iterable

# What copies are made of: a kernel of nothing else, one of the first two among it, moves parts of buffers as they are.
_COPIED = frozenset(
    {
        "copy",
        "dynamic_slice",
        "concatenate",
        "slice",
        "reshape",
        "constant",
        "compare",
        "add",
        "subtract",
        "select",
        "dynamic_update_slice",
    }
)
_COPYING = frozenset({"dynamic_slice", "concatenate"})

# Ops whose presence changes how fast a kernel runs, by the flag they set: access patterns, and functions that take many
# times the instructions of an exponential.
_FLAGS = {
    "gather": "gather",
    "scan": "scan",
    "transpose": "transpose",
    "concatenate": "joined",
    "pad": "joined",
    "tanh": "tanh",
    "power": "power",
    "sine": "trigonometry",
    "cosine": "trigonometry",
    "tan": "trigonometry",
    "log": "logarithm",
    "log_plus_one": "logarithm",
    "exponential_minus_one": "logarithm",
    "erf": "erf",
    "erf_inv": "erf",
    "rng_bit_generator": "random",
}
_NONE: frozenset[str] = frozenset()


def flags_of(names: Iterable[str]) -> frozenset[str]:
    """What a kernel's speed depends on in its ops: see `_FLAGS`, and `copy` for a plain copy of parts of buffers."""
    ops = set(map(short_name, set(names)))
    found = {_FLAGS[name] for name in ops & _FLAGS.keys()}
    if not ops.isdisjoint(_COPYING) and ops <= _COPIED:
        found.add("copy")
    return frozenset(found) if found else _NONE


@functools.cache
def short_name(name: str) -> str:
    """An op's name without its dialect."""
    return name.rpartition(".")[2]
