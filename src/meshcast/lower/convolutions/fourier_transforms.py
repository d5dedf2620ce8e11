"""Whether cuDNN can compute a convolution by Fourier transforms, and how large these are."""

from __future__ import annotations

from meshcast.workload import Convolution, element_bytes

# That cuDNN has kernels for: fft2d_r2c_16x16 to 64x64, and regular_fft_pad of 128 and 256.
SIDES = (16, 32, 64, 128, 256)
FREQUENCY_BYTES = 8
NARROWEST = 16  # images and results that the products of frequencies pad fewer to


def spectral_side(shape: Convolution) -> int | None:
    """The side of the transforms; None where there are none: an image too large or no plane, holes, numbers of other widths."""
    steps = (*shape.strides, *shape.lhs_dilation, *shape.rhs_dilation)
    if len(shape.kernel) != 2 or max(steps) > 1 or element_bytes(shape.lhs_dtype) != 4:
        return None
    padded = max(size + low + high for size, (low, high) in zip(shape.in_spatial, shape.padding, strict=True))
    return next((side for side in SIDES if side >= padded), None)


def spectra_bytes(shape: Convolution, side: int) -> tuple[int, int]:
    """Bytes of the spectra of input and filter, and of the result's: `n (n/2 + 1)` frequencies of each plane."""
    frequencies = side * (side // 2 + 1) * FREQUENCY_BYTES
    read = (shape.batch + shape.out_channels) * shape.in_channels * frequencies
    return read, shape.batch * shape.out_channels * frequencies
