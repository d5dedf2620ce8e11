"""Plans that others made: every table's sharding and its ranks, in JSON (`benchmarks/torchrec_plan.py` writes torchrec's)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshcast.base import InputError, UsageError, json_value, nearest, unreadable
from meshcast.jobs.embedding_tables.placing import PlacedTable
from meshcast.jobs.embedding_tables.sharding import Sharding, TrainerRanks
from meshcast.jobs.embedding_tables.table import EmbeddingTable
from meshcast.jobs.embedding_tables.words import way_named

FIX = 'write [{"table": "user", "sharding": "column_wise", "ranks": [0, 1]}, ...], an object a table'


def read_plan(path: Path, tables: Sequence[EmbeddingTable], ranks: TrainerRanks) -> list[PlacedTable]:
    """The plan of a file, in the order of the tables; torchrec's names of ways are understood.

    Raises:
        UsageError, InputError: There is no such file, or it is no plan of these tables on these ranks.
    """
    where = str(path)
    try:
        content = json_value(path.read_text(encoding="utf-8"), where=where)
    except FileNotFoundError:
        raise UsageError("no such plan", where=where, fix=FIX) from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(where, error, fix=FIX) from error
    return placed_tables(content, tables, ranks, where)


def placed_tables(content: Any, tables: Sequence[EmbeddingTable], ranks: TrainerRanks, where: str) -> list[PlacedTable]:
    """The plan that a list with an object a table says, in the order of the tables.

    Raises:
        UsageError, InputError: It is no plan of these tables on these ranks.
    """
    if isinstance(content, dict) and isinstance(content.get("plan"), list):
        content = content["plan"]  # as `meshcast tables plan --json` has it
    if not isinstance(content, list) or not all(isinstance(each, dict) and "table" in each for each in content):
        raise InputError("is no list of tables", where=where, fix=FIX)
    found: dict[str, dict[str, Any]] = {}
    for each in content:
        if found.setdefault(str(each["table"]), each) is not each:
            raise InputError(f"says twice where {each['table']!r} is", where=where, fix=FIX)
    for table in tables:
        if table.name not in found:
            raise InputError(
                f"has no table {table.name!r}", where=where, fix=nearest(table.name, found) if found else FIX
            )
    return [_placed(found[table.name], table, ranks, f"{where}: {table.name}") for table in tables]


def _placed(said: dict[str, Any], table: EmbeddingTable, ranks: TrainerRanks, where: str) -> PlacedTable:
    way = way_named(str(said.get("sharding", said.get("sharding_type"))), where)
    on = said.get("ranks", said.get("places", []))
    if "ranks" not in said and way in ("table-row", "grid") and isinstance(on, list):
        on = [node * ranks.node for node in on if isinstance(node, int)]  # our own plans say nodes
    if not isinstance(on, list) or not all(type(rank) is int and 0 <= rank < ranks.devices for rank in on):
        raise InputError(f"ranks {on!r} of {ranks.devices}", where=where, fix=FIX)
    if way in ("row", "data"):
        return PlacedTable(sharding=Sharding(way=way))
    if way in ("table-row", "grid"):
        nodes = sorted({rank // ranks.node for rank in on})
        if not nodes or ranks.devices % ranks.node or ranks.nodes < 2:
            raise InputError(f"{way} on {ranks.devices} devices in nodes of {ranks.node}", where=where, fix=FIX)
        return PlacedTable(sharding=Sharding(way=way, columns=len(nodes)), places=tuple(nodes))
    columns = len(on)
    if not columns or table.dim % columns or (way == "table" and columns > 1):
        raise InputError(f"{columns} ranks for {table.dim} columns, {way}-wise", where=where, fix=FIX)
    return PlacedTable(sharding=Sharding(way="column" if columns > 1 else "table", columns=columns), places=tuple(on))
