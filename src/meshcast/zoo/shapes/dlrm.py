"""DLRM (Naumov 2019), and the one with cross layers (Wang et al. 2021, DCN V2) in place of dot products."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmConfig:
    """Equal tables of `rows` by `dim`, `hots` indices pooled per table, and the widths of the dense layers.

    With `crosses` features meet in as many cross layers of rank `cross_rank`, and not in products of pairs.
    """

    tables: int
    rows: int
    dim: int
    hots: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    dense: int = 13
    crosses: int = 0
    cross_rank: int = 512

    def __post_init__(self) -> None:
        require(
            bool(self.bottom) and self.bottom[-1] == self.dim,
            f"the bottom layers {self.bottom} end in another width than the tables' dim={self.dim}",
            "the last of bottom and dim are equal",
        )


SHAPES = {
    "dlrm-tiny": Shape(
        config=DlrmConfig(tables=8, rows=512, dim=16, hots=4, bottom=(32, 16), top=(32, 1)),
        summary="DLRM with eight small tables",
    ),
    # The random-data benchmark published with the model (dlrm_s_benchmark.sh).
    "dlrm-small": Shape(
        config=DlrmConfig(
            tables=8, rows=1_000_000, dim=64, hots=100, bottom=(512, 512, 64), top=(1024, 1024, 1024, 1), dense=512
        ),
        summary="DLRM's published benchmark: 8 tables of 1M rows, 100 lookups each",
    ),
    # MLPerf's Criteo model, its 204 M rows (at most 40 M a table) spread evenly over the 26 tables.
    "dlrm-criteo": Shape(
        config=DlrmConfig(
            tables=26, rows=7_853_056, dim=128, hots=1, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1), dense=13
        ),
        summary="DLRM of MLPerf's size: 26 tables, 204M rows",
    ),
    # MLPerf's from v3.0 on (mlcommons/training, recommendation_v2/torchrec_dlrm/README.MD): the same tables, 214 indices of a
    # sample in all 26, three cross layers of rank 512.
    "dlrm-dcnv2": Shape(
        config=DlrmConfig(
            tables=26, rows=7_853_056, dim=128, hots=8, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1), crosses=3
        ),
        summary="DLRM with cross layers (DCN V2) of MLPerf's size: 26 tables, 204M rows, 8 lookups each",
    ),
}
