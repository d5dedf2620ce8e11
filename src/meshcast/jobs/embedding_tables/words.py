"""The words for ways to share a table out, and for types of its elements."""

from __future__ import annotations

from meshcast.base import UsageError, nearest

# Ours, with torchrec's name (torchrec.distributed.types.ShardingType).
WAYS = {
    "table": "table_wise",
    "column": "column_wise",
    "row": "row_wise",
    "table-row": "table_row_wise",
    "grid": "grid_shard",
    "data": "data_parallel",
}

# Types of elements, with the other names that people write.
ELEMENTS = {
    "f32": ("fp32", "float32"),
    "f16": ("fp16", "float16", "half"),
    "bf16": ("bfloat16",),
    "f8": ("fp8", "float8"),
    "i8": ("int8",),
}


def element_named(text: str) -> str:
    """Our word for a type of elements; another word as it is."""
    word = text.strip().lower()
    return next((ours for ours, others in ELEMENTS.items() if word in others), word)


def way_named(text: str, where: str) -> str:
    """Our word for a way, from ours or torchrec's.

    Raises:
        UsageError: There is no such way.
    """
    word = text.strip().lower()
    for ours, theirs in WAYS.items():
        if word in (ours, theirs, f"{ours}-wise"):
            return ours
    if word == "table_column_wise":  # columns on the ranks of one node, which the planner may choose among others
        return "column"
    raise UsageError(f"no sharding {text!r}", where=where, fix=nearest(word, WAYS))
