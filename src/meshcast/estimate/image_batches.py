"""Batches of images beside arrays of cells: a network of integers runs in as many parts of a batch as lie in the buffer at once.

What is between layers then never leaves the chip, so that a batch of N costs about N times an image; running layer by layer, a
batch that is larger than the buffer would cross the link to the host at every layer (500 MB/s of an Edge TPU). Convolutions of
integers alone are taken to be of such a network: a training step, in floats, keeps its activations for the way back.
"""

from __future__ import annotations

import functools
import math

from meshcast.estimate.products import product_of
from meshcast.hardware import Device
from meshcast.lower import Kernel
from meshcast.workload import Convolution


def working_set(kernel: Kernel) -> float:
    """Bytes that lie beside the array at once: all of a kernel's `B`, or `W + (B - W) / batch`, its weights and one image."""
    weights = _weight_bytes(kernel)
    if weights is None or not isinstance(kernel.geometry, Convolution):
        return kernel.footprint_bytes
    return weights + max(0.0, kernel.footprint_bytes - weights) / max(1, kernel.geometry.batch)


def parts_of_batch(kernel: Kernel, device: Device) -> int:
    """`ceil((B - W) / (buffer - W))` parts of a batch that fit: weights are written into the cells once for each."""
    weights = _weight_bytes(kernel)
    if weights is None or not kernel.footprint_bytes > device.cache_bytes >= working_set(kernel):
        return 1
    return math.ceil((kernel.footprint_bytes - weights) / max(1.0, device.cache_bytes - weights))


def _weight_bytes(kernel: Kernel) -> float | None:
    """Of a product of integers, as they are stored."""
    product, bits = product_of(kernel.geometry), integer_bits(kernel.dtype)
    if product is None or bits is None:
        return None
    return product.right * min([bits, *kernel.stored_bits[1:]]) / 8


@functools.cache
def integer_bits(dtype: str) -> int | None:
    """Bits of an integer type (`i4`, `ui8`); None for any other."""
    digits = dtype.removeprefix("ui").removeprefix("i")
    return int(digits) if digits.isdigit() and dtype != "i1" else None
