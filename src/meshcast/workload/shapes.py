"""Geometries of ops that are neither products nor tables: windows, sorts, Fourier transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TransformKind = Literal["FFT", "IFFT", "RFFT", "IRFFT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A sliding-window reduction."""

    shape: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortGeometry:
    """`batch` independent sorts of `length` elements, `operands` moved together; `top` for top-k.

    `minor`: along the dimension whose neighbours lie side by side. `radix`: by a library's radix sort, or not; None where the
    program leaves it to the compiler. `stable`: equal keys stay in their order, and no operand says yet which that is.
    """

    length: int
    batch: int
    operands: int
    top: int | None = None
    minor: bool = True
    radix: bool | None = None
    stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """`batch` Fourier transforms over `lengths`, the innermost dimension last; of reals: the lengths are those of the reals."""

    kind: TransformKind
    lengths: tuple[int, ...]
    batch: int
