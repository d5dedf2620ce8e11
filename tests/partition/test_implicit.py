"""Halo sizes by hand: what the worst shard must receive."""

from __future__ import annotations

import pytest

from meshcast.partition.implicit import IndexMap, received_elements, shifted_reversal


@pytest.mark.parametrize(
    ("in_size", "out_size", "shards", "index_map", "expected"),
    [
        (64, 64, 4, IndexMap(), 0),  # the identity moves nothing
        (64, 64, 4, IndexMap(offset=-1, extent=3), 2),  # a 3-wide window needs one element on either side
        (64, 32, 4, IndexMap(stride=2, extent=2), 0),  # 2x2 pooling with stride 2 stays inside its shard
        (64, 32, 4, IndexMap(offset=0), 8),  # x[:32]: shard 1's eight outputs all lie in shard 0
        (64, 32, 4, IndexMap(offset=3), 8),
        (64, 64, 1, IndexMap(offset=-1, extent=3), 0),  # unsharded
        (64, 64, 4, IndexMap(offset=-16), 16),  # a shift by a whole shard
        (63, 64, 4, IndexMap(offset=-1), 1),  # the tail of a roll by one
        (32, 64, 4, IndexMap(offset=-1, extent=3, dilation=2), 1),  # the gradient of a stride-2 convolution
        (64, 0, 4, IndexMap(), 0),  # x[0:0]
        (0, 8, 4, IndexMap(), 0),
        (32, 63, 4, IndexMap(dilation=2), 0),  # interior padding stays where it is
    ],
)
def test_received_elements(in_size: int, out_size: int, shards: int, index_map: IndexMap, expected: int) -> None:
    assert received_elements(in_size=in_size, out_size=out_size, shards=shards, index_map=index_map) == expected


def test_a_reversal_swaps_whole_shards() -> None:
    assert shifted_reversal(64, 4) == 16
    assert shifted_reversal(64, 1) == 0
