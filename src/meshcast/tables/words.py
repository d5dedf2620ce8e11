"""The words for ways to share a table out."""

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


def way_named(text: str, where: str) -> str:
    """Our word for a way, from ours or torchrec's.

    Raises:
        UsageError: There is no such way.
    """
    word = text.strip().lower()
    for ours, theirs in WAYS.items():
        if word in (ours, theirs, f"{ours}-wise"):
            return ours
    raise UsageError(f"no sharding {text!r}", where=where, fix=nearest(word, WAYS))
