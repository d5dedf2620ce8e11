"""Recommenders by name whose tables are given: the dense layers of each, for as many tables of a width as there are."""

from __future__ import annotations

from meshcast.base import UsageError, nearest
from meshcast.zoo.architectures.dense_layers import DenseLayers
from meshcast.zoo.architectures.hstu import SequenceLayers
from meshcast.zoo.shapes.dlrm import SHAPES, DlrmConfig

# MLPerf Training's DLRM-DCNv2: --dcn_num_layers 3, --dcn_low_rank_dim 512 (mlcommons/training, recommendation_v2/torchrec_dlrm).
CROSSED, CROSS_LAYERS = "dcnv2-criteo", 3
# Widths of torchrec's examples/retrieval/two_tower_train.py (layer_sizes).
TOWERS, TOWER_WIDTHS = "two-tower", (128, 64)
SEQUENCES = "dlrm-hstu"
RECOMMENDERS = (*SHAPES, CROSSED, TOWERS, SEQUENCES)
SHORT = {"dlrm": "dlrm-criteo", "dcnv2": CROSSED, "hstu": SEQUENCES}


def recommender_layers(name: str, *, features: int, dim: int, tokens: int = 1) -> DenseLayers | SequenceLayers:
    """The dense layers of a recommender with `features` tables of `dim` columns; of sequence models over `tokens` rows.

    Raises:
        UsageError: There is no such recommender, two towers have less than two tables, or a sequence model's are all pooled.
    """
    name = SHORT.get(name, name)
    if name not in RECOMMENDERS:
        raise UsageError(f"no recommender {name!r}", fix=nearest(name, [*RECOMMENDERS, *SHORT]))
    if name == SEQUENCES:
        if tokens < 2:
            raise UsageError(
                "a sequence model's rows are all pooled",
                fix="give a table with pooled=false, and its rows as pooling",
            )
        return SequenceLayers(dim=dim, tokens=tokens, candidates=min(10, tokens))
    if name == TOWERS:
        if features < 2:
            raise UsageError(f"two towers with {features} table", fix="give a table for each at least")
        return DenseLayers(features=features, dim=dim, towers=TOWER_WIDTHS)
    config = SHAPES["dlrm-criteo" if name == CROSSED else name].config
    assert isinstance(config, DlrmConfig)
    return DenseLayers(
        features=features, dim=dim, dense=config.dense, bottom=(*config.bottom[:-1], dim), top=config.top,
        cross=CROSS_LAYERS if name == CROSSED else 0,
    )  # fmt: skip
