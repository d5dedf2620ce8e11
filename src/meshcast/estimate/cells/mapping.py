"""How a product lies on arrays of cells, and the clocks that it takes.

    slices = ceil(weight bits / cell bits)                columns of one weight
    steps  = ceil(activation bits / input bits)           of driving the rows for one vector
    tiles  = count ceil(K / rows) ceil(N / (columns // slices))
    work   = M steps ceil(tiles / arrays)
    load   = count K N weight bits / bits of weights in a clock

Weights are written into the cells tile by tile, and every row of the left operand is driven past them. Without double buffers a
tile waits for its weights: `clocks = work + load - (ceil(tiles / arrays) - 1) steps`, as the last vector of a tile is still
summed up while the next weights come; with them only the first tile does, and `clocks = load / tiles + max(work, load (tiles - 1)
/ tiles)`.
Sums of one column over several tiles of rows are kept in the memory beside the array.

After the latency model of ZigZag (Mei et al., IEEE Transactions on Computers 2021; its model of in-memory computing: Houshmand
et al., arXiv 2305.18335), which gives the same clocks for the same array (`benchmarks/cells.py`) but in one case: where the
cells hold all weights at once it has them arrive while the layer computes, `max(work, load)`; here the first have to be there.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.estimate.image_batches import integer_bits
from meshcast.estimate.products import ArrayProduct, product_of
from meshcast.hardware import CellArray, Device
from meshcast.lower import Kernel

MOST_BITS = 8
"""The widest integers that are held in cells; anything else is computed by the periphery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMapping:
    """A product on an array of cells: sizes and bits of its operands, and what comes of them (see the module)."""

    product: ArrayProduct
    weight_bits: int
    activation_bits: int
    slices: int
    steps: int
    row_tiles: int
    column_tiles: int
    work_clocks: int
    load_clocks: float
    clocks: float

    @property
    def tiles(self) -> int:
        """All of them."""
        return self.product.count * self.row_tiles * self.column_tiles

    @property
    def rows_driven(self) -> int:
        """Rows driven in all steps: every element of the left operand, for every tile of columns and every step."""
        return self.product.left * self.column_tiles * self.steps

    @property
    def columns_read(self) -> int:
        """Columns read in all steps: every result, for every tile of rows, slice of its weights and step."""
        return self.product.results * self.row_tiles * self.slices * self.steps

    @property
    def buffer_bytes(self) -> float:
        """Between the array and the memory beside it: inputs, weights, and sums there and back but for the first time."""
        inputs = self.product.left * self.column_tiles * self.activation_bits / 8
        weights = self.product.right * self.weight_bits / 8
        sums = self.product.results * SUM_BYTES * (2 * self.row_tiles - 1)
        return inputs + weights + sums


SUM_BYTES = 4


def mapped_product(product: ArrayProduct, weight_bits: int, activation_bits: int, cells: CellArray) -> CellMapping:
    """A product on the arrays; see the module."""
    slices = -(-weight_bits // cells.cell_bits)
    steps = -(-activation_bits // cells.input_bits)
    row_tiles = -(-product.k // cells.rows)
    column_tiles = -(-product.n // max(1, cells.columns // slices))
    tiles = product.count * row_tiles * column_tiles
    work = product.m * steps * -(-tiles // cells.arrays)
    load = product.right * weight_bits / cells.weight_bits_per_clock
    if cells.double_buffered:
        clocks = load / tiles + max(work, load * (tiles - 1) / tiles)
    else:
        clocks = work + load - max(0, -(-tiles // cells.arrays) - 1) * steps
    return CellMapping(
        product=product, weight_bits=weight_bits, activation_bits=activation_bits, slices=slices, steps=steps,
        row_tiles=row_tiles, column_tiles=column_tiles, work_clocks=work, load_clocks=load, clocks=clocks,
    )  # fmt: skip


def mapped(kernel: Kernel, device: Device) -> CellMapping | None:
    """A kernel's product on the device's arrays; None where it is none, or not of integers that cells hold."""
    product, bits = product_of(kernel.geometry), integer_bits(kernel.dtype)
    if product is None or bits is None or bits > MOST_BITS or device.cells is None:
        return None
    # What a fusion widens to the type of the product has no more bits for that.
    activations, weights = kernel.stored_bits or (bits, bits)
    return mapped_product(product, min(weights, bits), min(activations, bits), device.cells)
