"""Recommenders of the zoo with the tables that each is trained on where nobody gives others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.base import UsageError

if TYPE_CHECKING:
    from meshcast.jobs.embedding_tables.table import EmbeddingTable
    from meshcast.zoo import DenseLayers, SequenceLayers


def layers_for(name: str, tables: Sequence[EmbeddingTable]) -> DenseLayers | SequenceLayers:
    """The dense layers of a recommender with such tables; its sequences have as many rows as its longest table gives a sample.

    Raises:
        UsageError: There is no such recommender, or it cannot have these tables.
    """
    from meshcast.zoo import DenseLayers, recommender_layers

    tokens = max(round(table.bags(1)) for table in tables)
    dims = sorted({table.dim for table in tables})
    # Rows that are joined may be of any length: what is read is as wide as all of them.
    joined = max(1, round(sum(table.dim for table in tables) / len(tables)))
    layers = recommender_layers(name, features=len(tables), dim=joined, tokens=tokens)
    if len(dims) > 1 and (not isinstance(layers, DenseLayers) or not (layers.cross or layers.towers)):
        met = "dot products" if isinstance(layers, DenseLayers) else "sequences"
        lengths = ", ".join(map(str, dims))
        raise UsageError(
            f"{name}'s {met} are of rows of one length, and tables have rows of {lengths} columns", where="TABLES",
            fix="give all tables one dim, or ask for dcnv2-criteo or two-tower, which join rows of any length",
        )  # fmt: skip
    return layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender:
    """A recommender by name: the list of its tables, and what it is."""

    name: str
    tables: str
    summary: str

    @property
    def parameters(self) -> int:
        """Of tables and dense layers."""
        import jax  # names are looked up for every target of a command, and most are no recommenders

        from meshcast.jobs.embedding_tables.files import read_tables

        tables = read_tables(self.tables)
        layers = layers_for(self.name, tables)
        dense: int = sum(math.prod(each.shape) for each in jax.tree.leaves(layers.shapes("float32")))
        return dense + sum(table.rows * table.dim for table in tables)


_LISTS = {
    "dlrm-criteo": ("mlperf-dlrm", "DLRM of MLPerf's size, with its 26 tables as they are"),
    "dcnv2-criteo": ("mlperf-dcnv2", "MLPerf's DLRM-DCNv2: 26 multi-hot tables, 3 cross layers"),
    "dlrm-hstu": ("kuairand-hstu", "DLRM-HSTU of DLRMv3: 5 layers over 2,048 rows a sample"),
    "two-tower": ("mlperf-dlrm", "two towers over halves of the tables, as torchrec's example of retrieval"),
}
SHIPPED = {name: Recommender(name=name, tables=tables, summary=summary) for name, (tables, summary) in _LISTS.items()}
"""Those whose tables are shipped."""
