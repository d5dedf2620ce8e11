"""What a systolic array is asked to do: layers, as SCALE-Sim's topology files describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.base import UsageError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A convolution over a map that is padded already; a product of matrices is one over a map of M rows of K.

    Attributes:
        filters: Output channels.
        stride: The stride of rows and columns alike.
    """

    name: str = ""
    ifmap_height: int
    ifmap_width: int
    filter_height: int
    filter_width: int
    channels: int
    filters: int
    stride: int = 1

    def __post_init__(self) -> None:
        sizes = (
            self.ifmap_height, self.ifmap_width, self.filter_height, self.filter_width, self.channels, self.filters,
            self.stride,
        )  # fmt: skip
        if min(sizes) < 1:
            raise UsageError(f"the layer {self.name!r} has a size below 1: {sizes}", fix="give positive sizes")
        if self.filter_height > self.ifmap_height or self.filter_width > self.ifmap_width:
            raise UsageError(
                f"the filter of {self.filter_height} x {self.filter_width} is larger than the map of "
                f"{self.ifmap_height} x {self.ifmap_width} (layer {self.name!r})",
                fix="pad the map, or give a smaller filter",
            )

    @classmethod
    def gemm(cls, m: int, n: int, k: int, *, name: str = "") -> Layer:
        """The product of an M x K by a K x N matrix."""
        return cls(
            name=name, ifmap_height=m, ifmap_width=k, filter_height=1, filter_width=k, channels=1, filters=n, stride=1
        )

    @property
    def output_height(self) -> int:
        """`ceil((H - Fh + s) / s)`: a last window that hangs over the edge counts, its outside is not read."""
        return -(-(self.ifmap_height - self.filter_height + self.stride) // self.stride)

    @property
    def output_width(self) -> int:
        """The number of outputs along a row of the map."""
        return -(-(self.ifmap_width - self.filter_width + self.stride) // self.stride)

    @property
    def m(self) -> int:
        """Windows: rows of the product."""
        return self.output_height * self.output_width

    @property
    def n(self) -> int:
        """Filters: columns of the product."""
        return self.filters

    @property
    def k(self) -> int:
        """Elements of a window: what is summed over."""
        return self.filter_height * self.filter_width * self.channels

    @property
    def overlaps(self) -> bool:
        """Whether an element of the map lies in several windows, or some windows hang over the edge."""
        lone = self.filter_height <= self.stride or self.output_height == 1
        alone = self.filter_width <= self.stride or self.output_width == 1
        return not (lone and alone and self.window_elements == self.m * self.k)

    @property
    def map_elements(self) -> int:
        """Elements of the map."""
        return self.ifmap_height * self.ifmap_width * self.channels

    @property
    def window_elements(self) -> int:
        """Elements of all windows that lie inside of the map."""
        height = _inside(self.ifmap_height, self.filter_height, self.output_height, self.stride)
        width = _inside(self.ifmap_width, self.filter_width, self.output_width, self.stride)
        return height * width * self.channels


def _inside(size: int, filter_size: int, outputs: int, stride: int) -> int:
    """Positions of all windows along one side that lie inside of it; only the last window can hang over."""
    last = (outputs - 1) * stride
    return (outputs - 1) * filter_size + max(0, min(filter_size, size - last))


def product_shapes(layers: Sequence[Layer]) -> tuple[Integers, Integers, Integers]:
    """(M, N, K) of layers, one entry each."""
    shapes = np.array([(layer.m, layer.n, layer.k) for layer in layers], dtype=np.int64).reshape(-1, 3)
    return shapes[:, 0], shapes[:, 1], shapes[:, 2]
