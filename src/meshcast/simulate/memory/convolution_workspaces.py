"""Workspaces of cuDNN's convolutions: copies of operands in the order that its kernels read, and partial sums.

XLA's optimized HLO names the bytes of every call that was timed on the device. Of 3,187 calls of 73 programs on an H200:

- forward, f32: a call of few channels (up to 4) and 32 filters or more copies input and filter, element for element, and so does
  one whose filter is as large as an image (the filter gradient of a dilated or transposed layer), or whose taps are 16 or more
  apart. In 16 bits the copy has 8 channels, and is a kernel of its own here (`lower/convolutions/cudnn_convolutions.py`). Where
  such a filter is transformed (`lower/convolutions/fourier_transforms.py`), the spectra of input and filter are there twice, as
  they are made and as the products read them, and the result's once (calls of 0.5, 1.0 and 1.5 GB: -0.4, -4 and -8 %);
- filter gradients: `filter * 4 bytes * parts`, for as many parts of the pixels as tiles of 128 x 128 leave SMs idle; with 3 or 4
  channels in f32 both operands are copied besides.

Which algorithm wins is found out by timing; these rules follow what mostly did. Of 43 forward copies in f32 that they tell 41 are
within 30 %; partial sums, 17 MB at the most, are within 30 % or 1 MiB in 177 of 482 calls.
Grouped convolutions are not told: cuDNN's own kernels for them mostly need nothing. Nor are volumes: a layer in 16 bits was seen
to have all of its operands turned to channels last there, others not.
"""

from __future__ import annotations

import math

from meshcast.lower import NARROWEST, is_filter_gradient, is_filter_gradient_call, spectra_bytes, spectral_side
from meshcast.workload import DTYPE_BITS, Convolution

FEW_CHANNELS = 4
FILTERS = 32
FAR_APART = 16  # taps of a dilated filter
SMALL_FILTER = 1000  # elements of a gradient that a direct kernel sums up
TILE = 128
PIXELS = 1280  # that a part of a filter gradient's sum has at the least
MORE_FLOPS = 1.2  # of products of frequencies, which are still faster than a product that gathers its rows tap by tap
_PARTIAL = 4  # bytes: sums are f32


def workspace_bytes(shape: Convolution, cores: int) -> int:
    """Bytes that cuDNN's call has beside operands and result."""
    if max(shape.feature_groups, shape.batch_groups) > 1:
        return 0
    bits = DTYPE_BITS.get(shape.lhs_dtype, 0)
    inputs = shape.batch * shape.in_channels * math.prod(shape.in_spatial)
    filters = shape.in_channels * shape.out_channels * math.prod(shape.kernel)
    results = shape.batch * shape.out_channels * math.prod(shape.out_spatial)
    if is_filter_gradient_call(shape):
        copied = bits == 32 and 2 < shape.batch <= FEW_CHANNELS and results > SMALL_FILTER
        return copied * 4 * (inputs + filters) + _partial_sums(shape, results, cores)
    if max(shape.lhs_dilation, default=1) > 1:
        return 0
    few = shape.in_channels <= FEW_CHANNELS and shape.out_channels >= FILTERS and not is_filter_gradient(shape)
    as_images = math.prod(shape.kernel) > math.prod(shape.out_spatial)
    apart = max(shape.rhs_dilation, default=1) >= FAR_APART
    copies = 4 * (inputs + filters) if bits == 32 and (few or as_images or apart) else 0
    side = spectral_side(shape) if copies and as_images else None
    if side is None or not _is_transformed(shape, side):
        return copies
    read, written = spectra_bytes(shape, side)
    return copies + 2 * read + written


def _is_transformed(shape: Convolution, side: int) -> bool:
    """Whether cuDNN's benchmark takes the transforms: their products have hardly more FLOPs than those of all taps.

    Timing decides; of eleven calls of transposed layers' gradients ten have at most 1.08 times as many and were transformed,
    one has 1.3 times as many and was not (`data/measured/h200-transposed/open`, `h200-plain/open`).
    """
    frequencies = side * (side // 2 + 1)
    products = 8 * frequencies * max(NARROWEST, shape.batch) * max(NARROWEST, shape.out_channels)
    rows = math.ceil(shape.batch * math.prod(shape.out_spatial) / TILE) * TILE
    columns = math.ceil(shape.out_channels / FILTERS) * FILTERS
    return products <= MORE_FLOPS * 2 * math.prod(shape.kernel) * rows * columns


def _partial_sums(shape: Convolution, gradient: int, cores: int) -> int:
    """Of a gradient of so many elements; `shape` has the image's channels as its batch, and pixels for its filter."""
    tiles = math.ceil(shape.out_channels / TILE) * math.ceil(shape.batch * math.prod(shape.out_spatial) / TILE)
    parts = min(cores // tiles, shape.in_channels * math.prod(shape.kernel) // PIXELS)
    return _PARTIAL * gradient * parts if parts > 1 else 0
