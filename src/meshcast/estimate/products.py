"""What a systolic array sees of a kernel: `count` products of M x K by K x N.

A batched product is one for each member. Groups of a ragged product share out its rows, evenly here, and each has weights of its
own: `batch * groups` products of `M / groups` rows, though never more groups than rows.

A convolution is the product of its windows: M = images x outputs, N = output channels, K = input channels x taps. Feature
groups share out both channels, batch groups the images and the output channels; each group is a product of its own.
Taps on padding, or on zeros put in by dilating the input, are not multiplied: K is what is, on average over the outputs.
So `2 count M N K` are the kernel's FLOPs, up to the rounding of M and K to whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.lower import Kernel
from meshcast.workload import Convolution, Gemm, Geometry, element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayProduct:
    """`count` products of M x K by K x N."""

    count: int
    m: int
    n: int
    k: int

    @property
    def left(self) -> int:
        """Elements of all left operands."""
        return self.count * self.m * self.k

    @property
    def right(self) -> int:
        """Elements of all right operands."""
        return self.count * self.k * self.n

    @property
    def results(self) -> int:
        """Elements that come out."""
        return self.count * self.m * self.n


def packed_operands(kernel: Kernel) -> tuple[tuple[float, float], ...]:
    """(elements, bits fewer than the product's type) of each operand of packed integers that a product widens on the way in.

    Elements are counted once: windows of an image share theirs, and are cut from what was widened.
    """
    shape = kernel.geometry
    sides = product_of(shape) if kernel.stored_bits else None
    bits = element_bytes(kernel.dtype) * 8 if sides is not None else 0
    if sides is None or bits > 8:
        return ()
    elements: tuple[float, float] = (sides.left, sides.right)
    if isinstance(shape, Convolution):
        filters = shape.out_channels * shape.in_channels // shape.feature_groups * math.prod(shape.kernel)
        elements = (shape.batch * shape.in_channels * math.prod(shape.in_spatial), filters)
    return tuple(
        (count, bits - stored) for count, stored in zip(elements, kernel.stored_bits, strict=True) if stored < bits
    )


def product_of(geometry: Geometry | None) -> ArrayProduct | None:
    """The product that a kernel's geometry is; None for others, and where nothing is multiplied."""
    if isinstance(geometry, Gemm):
        groups = max(1, min(geometry.groups, geometry.m))
        found = ArrayProduct(count=geometry.batch * groups, m=-(-geometry.m // groups), n=geometry.n, k=geometry.k)
    elif isinstance(geometry, Convolution) and geometry.macs:
        groups = geometry.feature_groups * geometry.batch_groups
        m = geometry.batch // geometry.batch_groups * math.prod(geometry.out_spatial)
        n = geometry.out_channels // groups
        found = ArrayProduct(count=groups, m=m, n=n, k=max(1, round(geometry.macs / (groups * m * n))))
    else:
        return None
    return found if found.left and found.right else None
