"""What a TPU's tiles add to a kernel's place among measured ones.

A TPU keeps arrays in tiles of 8 x 128 elements over the two innermost dimensions and computes on whole ones: two arrays of as
many elements take times that differ by how many tiles each fills, and how its innermost dimensions are cut. Its vector
units and arrays take bf16, and convert f16: of products the two are so many octaves apart, and loops over elements are
families of their own.
"""

from __future__ import annotations

import math

from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm

SUBLANES, LANES = 8, 128
CONVERTED = "f16"
Where = tuple[float, ...]


def tiled_family(name: str, kernel: Kernel, device: Device) -> str:
    """A family's name on a device, where loops that convert their elements are apart from others."""
    apart = device.kind == "tpu" and kernel.dtype == CONVERTED and not isinstance(kernel.geometry, Gemm)
    return f"{name} {CONVERTED}" if apart else name


def tiled_place(kernel: Kernel, device: Device) -> Where:
    """What is added to a kernel's place on a device: nothing where there are no tiles."""
    if device.kind != "tpu":
        return ()
    if isinstance(kernel.geometry, Gemm):
        return _product(kernel.geometry)
    return _elements(kernel) if kernel.kind is KernelKind.LOOP_FUSION else ()


def _product(g: Gemm) -> Where:
    sides = (g.m, g.n, g.k)
    tiles = [math.ceil(side / LANES) for side in sides]
    padded = (2 * math.log2(count * LANES / side) for count, side in zip(tiles, sides, strict=True))
    return (*padded, *(math.log2(count) for count in tiles), 2.0 * (g.lhs_dtype == CONVERTED))


def _elements(kernel: Kernel) -> Where:
    shape = (1, 1, *(kernel.shape or (max(1, kernel.elements),)))
    minor, second, rest = max(1, shape[-1]), max(1, shape[-2]), max(1, math.prod(shape[:-2]))
    tiles = math.ceil(minor / LANES) * math.ceil(second / SUBLANES) * rest
    return (
        math.log2(minor),
        math.log2(second),
        math.log2(rest),
        float(len(kernel.shape)),
        math.log2(tiles),
        2 * math.log2(tiles * SUBLANES * LANES / (minor * second * rest)),
        2.0 * bool(minor % LANES),
        2.0 * bool(second % SUBLANES),
    )
