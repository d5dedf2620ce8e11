"""Distances between places, by `|a - b|^2 = |a|^2 + |b|^2 - 2 a b`: one matrix product for many pairs.

Products are taken in pieces that OpenBLAS computes in the thread that asks (its `interface/gemm.c`: as long as `m n k` is no
more than `SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD`). A larger one wakes its other threads, and all of them then wait for
each other in loops: on busy cores for some 10 ms, ten times what the product takes. Pieces also give the same last bits on any
number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from meshcast.estimate.estimator import Array

UNTHREADED = 65536 * 4  # multiplications
# By how much places are apart: many measured kernels are equally far from a query but for the last bits of a sum, which
# processors round each in their own way.
LEAST_APART = 1e-9
ROUNDING = 1e-12  # more than distances, and products of them, are rounded by
LEAST_SAVED = 3  # where a bound of every second place is looked for, that takes as long as it saves
UNROLLED = 8  # BLAS kernels take so many rows or columns at a time; what is left over is summed in another order


def squares(places: Array) -> Array:
    """`|a|^2` of every place."""
    found: Array = (places**2).sum(-1)
    return found


def apart(sums: Array, doubled: Array) -> Array:
    """`|a - b|` of pairs, of `|a|^2 + |b|^2` and `2 a b`; the sums are overwritten."""
    sums = squares_apart(sums, doubled)
    return np.sqrt(sums, out=sums)


def squares_apart(sums: Array, doubled: Array) -> Array:
    """`|a - b|^2` of pairs, of the same; the sums are overwritten."""
    sums -= doubled
    return np.maximum(sums, 0.0, out=sums)


def pieces(count: int, most: int) -> Iterator[slice]:
    """Slices of `most` out of `count`, the last of a few less or more: a matrix of one row is another routine of BLAS."""
    begins = range(0, max(1, count - UNROLLED // 2 + 1), most)
    for begin in begins:
        yield slice(begin, begin + most if begin != begins[-1] else count)


def doubled_products(queries: Array, places: Array) -> Array:
    """`2 a b` of every query and place; each is rounded as in one product of all of them."""
    rows, features = queries.shape
    doubled = 2 * queries
    found = np.empty((rows, len(places)))
    width = max(1, UNTHREADED // (rows * features) // UNROLLED) * UNROLLED
    for some in pieces(len(places), width):
        np.matmul(doubled, places[some].T, out=found[:, some])
    return found


def rows_near(squared: Array, count: int) -> tuple[npt.NDArray[np.intp], Array]:
    """Places among which the `count` nearest of each query are: their numbers, in rising order, and their distances.

    The `count`-th nearest of some places is no nearer than that of all, so that what is farther needs no root and no sorting.
    With every `n`-th of `r` places `r / n` are looked at to find that bound, and about `count * n` lie within it. Queries that
    have fewer of these than others have infinite distances at their ends.

    Args:
        squared: `|a - b|^2` of every query and place.
        count: At most as many as there are places.
    """
    rows, width = squared.shape
    every = math.isqrt(width // count)
    if every < LEAST_SAVED:
        return np.broadcast_to(np.arange(width), squared.shape), np.sqrt(squared)
    bound = np.partition(squared[:, ::every], count - 1, axis=1)[:, count - 1 : count]
    farthest = (np.sqrt(bound) + 2 * LEAST_APART) * (
        1 + ROUNDING
    )  # what `nearest_rows` takes for as far is within it, too
    within = squared <= farthest**2
    found = np.flatnonzero(within)
    lengths = np.diff(np.searchsorted(found, np.arange(rows + 1) * width))
    filled = np.arange(lengths.max()) < lengths[:, None]
    numbers = np.zeros(filled.shape, dtype=np.intp)
    numbers[filled] = found - np.repeat(np.arange(rows) * width, lengths)
    distances = np.full(filled.shape, np.inf)
    distances[filled] = np.sqrt(squared.ravel()[found])
    return numbers, distances


def nearest_rows(distances: Array, count: int) -> npt.NDArray[np.intp]:
    """The numbers of the `count` nearest of each query's places, in rising order; of those equally far the first ones.

    So the same are chosen on every machine, whatever order a partition leaves equals in.
    """
    steps = distances * (1 / LEAST_APART)
    np.rint(steps, out=steps)
    last = np.partition(steps, count - 1, axis=1)[:, count - 1 : count]
    chosen = steps <= last
    for row in np.flatnonzero(chosen.sum(axis=1) > count):
        as_far = np.flatnonzero(steps[row] == last[row])
        nearer = int((steps[row] < last[row]).sum())
        chosen[row, as_far[count - nearer :]] = False
    found: npt.NDArray[np.intp] = np.flatnonzero(chosen).reshape(len(distances), count) % distances.shape[1]
    return found
