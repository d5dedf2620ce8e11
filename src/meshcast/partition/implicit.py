"""Communication that Shardy leaves implicit: ops that shift data along a sharded dimension.

Slices, pads, concatenations, reversals, convolutions and windows keep their sharding through Shardy's reshards although
a shard's output needs elements that a neighbour holds. For an op that maps output index `j` to the range
`[j*stride + offset, j*stride + offset + extent)` of the input spread out by `dilation`, shard d receives what its output
range needs beyond its own part of the input; the slowest shard counts. (What XLA's partitioner does with halo exchanges.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMap:
    """Which input elements an output element needs along one dimension."""

    stride: int = 1
    offset: int = 0
    extent: int = 1
    dilation: int = 1  # input element i lies at position i * dilation: interior padding, transposed convolutions

    def is_scan(self, in_size: int) -> bool:
        """True for a window that slides in from one side over everything: a running reduction."""
        return self.stride == 1 and self.extent >= in_size and self.offset in (0, 1 - in_size)

    def needed(self, first: int, last: int, in_size: int) -> tuple[int, int]:
        """The half-open range of input elements that outputs `first` to `last` read."""
        low = first * self.stride + self.offset
        high = last * self.stride + self.offset + self.extent
        return max(0, -(-low // self.dilation)), min(in_size, (high - 1) // self.dilation + 1)


def received_elements(*, in_size: int, out_size: int, shards: int, index_map: IndexMap) -> int:
    """Elements along the dimension that the worst shard must receive from others."""
    if not in_size or not out_size:
        return 0
    in_part, out_part = -(-in_size // shards), -(-out_size // shards)
    worst = 0
    for shard in range(min(shards, -(-out_size // out_part))):
        first, last = shard * out_part, min((shard + 1) * out_part, out_size) - 1
        low, high = index_map.needed(first, last, in_size)
        own_low, own_high = shard * in_part, min((shard + 1) * in_part, in_size)
        needed = max(0, high - low)
        own = max(0, min(high, own_high) - max(low, own_low))
        worst = max(worst, needed - own)
    return worst


def shifted_reversal(in_size: int, shards: int) -> int:
    """A reversal swaps whole shards; only the middle one of an odd count keeps its own."""
    return -(-in_size // shards) if shards > 1 else 0
