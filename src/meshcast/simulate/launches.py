"""Launches that a schedule does not show: those inside a library's call, and the sums of split products.

A schedule has one kernel for a call of cuFFT, cuSOLVER or CUB, and for a sort of XLA's own; a profiler sees what these launch.

- A Fourier transform is a pass a dimension, more where a dimension is too long for a block, and Bluestein's way for a large prime
  (`_passes`); XLA scales inverse transforms by another kernel and copies what a transform to reals would spoil (fft_thunk.cc).
- CUB's radix sort takes a digit of 8 bits a pass, with a histogram, a prefix sum and their counters to clear; of several rows a
  digit of 6 bits by two kernels (cub/device/dispatch/dispatch_radix_sort.cuh).
- XLA's bitonic sort does all steps within a tile of shared memory in one kernel, and each step beyond it in a kernel of its own
  (`EmitSort` in llvm_emitter.cc).
- cuDNN splits the sum of a filter's gradient, which is over all positions of all images, and adds the parts up by another kernel;
  of grouped layers it clears the result before. Of 303 such calls on an H200 230 have at least one further launch.
- A prefix sum is taken of windows of 16, then of their sums likewise until 16 are left, each in a kernel; another adds them up
  (reduce_window_rewriter.cc), in the kernel that reads the result unless that is returned.
- A loop that ends on data copies the answer of its condition to the host before every turn (while_thunk.cc).
- cuSOLVER factorises panels of 16 columns of a very tall matrix by a tree over blocks of rows, and rebuilds their Householder
  vectors: 28 launches a panel in two programs of 16,384 x 64 and 32,832 x 64.
- Dense solvers launch by their columns, in ways that change with the size: `_SOLVERS` has what an H200 launched
  (`data/measured/h200-solvers/measurements.csv`, less what XLA launches around the call), interpolated between sizes.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left

from meshcast.base import KeptBeside, by_point
from meshcast.estimate import has_large_prime, solver_path
from meshcast.hardware import Device
from meshcast.lower import (
    CostKey,
    Kernel,
    KernelKind,
    LoopStep,
    LoweredProgram,
    Schedule,
    is_filter_gradient_call,
    scan_levels,
    short_name,
    sorted_by_radix,
    summing_launches,
)
from meshcast.workload import DTYPE_BITS, Convolution, Factorisation, Reduction, SortGeometry, Transform, element_bytes

FFT_BLOCK = 1 << 15  # numbers of a dimension that one block transforms
FFT_PASS = 512  # numbers that a pass of several transforms at once
FFT_TOGETHER = 16  # lengths of two dimensions that one block transforms together
RADIX_BITS, SEGMENT_BITS = 8, 6  # of a pass of CUB's sort, and of one of several rows
TALL = 4  # rows a column from which cuSOLVER factorises a panel at once
TREE_ROWS, TREE_PANEL, TREE_LAUNCHES = (
    16384,
    16,
    28,
)  # rows from which it does so by a tree; columns and launches of a panel then
SORT_TILE, SORT_SHARED = 4096, 48 * 1024  # elements that a block sorts at the most, and bytes that it has for them

# (columns, launches of one call, or of one matrix where the library goes through a batch).
_Sizes = tuple[tuple[int, float], ...]
_SOLVERS: dict[str, _Sizes] = {
    "cholesky looped": ((4096, 4), (8192, 11)),
    "cholesky batched": ((16, 4), (32, 7), (64, 13), (128, 25), (256, 49), (512, 97), (1024, 193)),
    "lu looped": ((512, 7), (768, 22), (1536, 33), (2048, 102), (3072, 238), (4096, 375), (8192, 919)),
    "lu batched": ((16, 2), (1024, 2)),
    "qr looped": ((16, 4), (32, 6), (64, 24), (128, 100), (256, 4), (512, 51), (1024, 127), (4096, 460), (8192, 970)),
    "qr tall": ((64, 4), (256, 6), (512, 51), (1024, 127)),
    "qr batched": ((16, 2), (128, 2)),
    "q looped": ((16, 9), (64, 10), (256, 27), (1024, 118), (4096, 457), (8192, 970)),
    "q batched": ((16, 1), (128, 1)),
    "svd looped": ((16, 63), (32, 70), (64, 122), (128, 280), (256, 599), (512, 1302), (1024, 2801)),
    "svd batched": ((16, 3), (32, 3)),
    "svd-qr looped": ((64, 1042), (256, 5830), (1024, 24430), (4096, 82136)),
    "eigh looped": ((64, 159), (128, 292), (256, 80), (512, 139), (1024, 259), (4096, 821)),
    "eigh batched": ((64, 40), (256, 61), (512, 2896), (1024, 8609)),
    "eigh small": ((16, 53), (32, 60)),
    "eigh small batched": ((16, 2), (32, 2)),
    "eig looped": ((16, 230), (64, 765), (256, 3309), (512, 6298)),
    "triangular vector": ((64, 3), (4096, 3)),
    "triangular looped": ((256, 3), (512, 6), (1024, 11), (2048, 18), (4096, 40), (8192, 66)),
    "triangular batched": ((64, 5), (128, 9), (256, 17), (512, 33), (1024, 65)),
}


def hidden_launches(lowered: LoweredProgram, device: Device) -> int:
    """Launches of a step beyond the kernels of its schedule; none where another backend than XLA:GPU's made them."""
    if lowered.backend != "xla-gpu":
        return 0
    architecture = device.architecture

    def sums(cores: float) -> int:
        whole = int(cores)
        return _SUMS.of(lowered, (whole, architecture), lambda: summing_launches(lowered, whole, architecture))

    inside = _INSIDE.of(lowered, None, lambda: _launches_inside(lowered))
    found: int = by_point(sums, device.cores) + inside
    return found


_SUMS: KeptBeside[int] = KeptBeside()
_INSIDE: KeptBeside[int] = KeptBeside()


def _launches_inside(lowered: LoweredProgram) -> int:
    """Those that no number of cores changes."""
    known: dict[CostKey, int] = {}
    returned = frozenset(lowered.schedule.outputs)
    hidden = _questions(lowered.schedule, {loop.label for loop in lowered.workload.data_loops})
    for kernel, count in lowered.schedule.walk():
        if isinstance(kernel.geometry, Transform | SortGeometry | Factorisation | Convolution):
            inside = known.get(kernel.cost_key)
            if inside is None:
                inside = known[kernel.cost_key] = launches_inside(kernel)
            hidden += count * (inside - 1)
        elif isinstance(kernel.geometry, Reduction) and _is_prefix_sum(kernel, kernel.geometry):
            hidden += count * _prefix_sum(kernel, kernel.geometry, returned)
    return hidden


def launches_inside(kernel: Kernel) -> int:
    """What a profiler sees of one kernel of a schedule."""
    match kernel.geometry:
        case Transform() as shape:
            return _transform(shape)
        case SortGeometry(top=None) as shape:
            bits = DTYPE_BITS.get(kernel.dtype, 32)
            return _radix(shape, bits) if sorted_by_radix(shape, bits) else _bitonic(shape, element_bytes(kernel.dtype))
        case Factorisation() as shape:
            return _solver(shape)
        case Convolution() as shape if is_filter_gradient_call(shape):
            return 2 + (max(shape.batch_groups, shape.feature_groups) > 1)
    return 1


def _is_prefix_sum(kernel: Kernel, shape: Reduction) -> bool:
    """Whether a kernel keeps all of its sums; one that reduces further has windows on the way."""
    summed = kernel.kind is KernelKind.REDUCTION and any(short_name(name) == "reduce_window" for name in kernel.ops)
    return summed and not 0 < kernel.elements < math.prod(shape.shape)


def _prefix_sum(kernel: Kernel, shape: Reduction, returned: frozenset[int]) -> int:
    """Launches besides one: a kernel for each level of windows, and one that adds up what nobody else could."""
    levels = scan_levels(max(shape.shape[d] for d in shape.dims))
    return levels if not returned.isdisjoint(kernel.writes) else max(0, levels - 1)


def _questions(schedule: Schedule, asking: set[str]) -> int:
    """Copies to the host of the conditions of loops that end on data: before every turn, and once more behind the last."""
    copies = 0
    for step in schedule.steps if asking else ():
        if isinstance(step, LoopStep):
            copies += step.trips * _questions(step.body, asking) + (step.trips + 1 if step.label in asking else 0)
    return copies


def _transform(shape: Transform) -> int:
    lengths = shape.lengths
    if len(lengths) > 1 and max(lengths[-2:]) <= FFT_TOGETHER:
        lengths = (*lengths[:-2], 1)
    halved = shape.kind in ("RFFT", "IRFFT") and lengths[-1] > FFT_BLOCK  # halves of a spectrum apart or together
    return sum(map(_passes, lengths)) + halved + ("IRFFT", "IFFT").count(shape.kind) + (shape.kind == "IRFFT")


@functools.lru_cache(maxsize=1024)
def _passes(length: int) -> int:
    """Kernels of one dimension: one, as many as factors of `FFT_PASS` cover it, or there and back for a large prime."""
    if has_large_prime(length):
        padded = 2 * length
        return 1 if padded <= FFT_BLOCK else 2 * _factors(padded) + 1
    return 1 if length <= FFT_BLOCK else _factors(length)


def _factors(length: int) -> int:
    return max(2, math.ceil(math.log(length, FFT_PASS)))


def _radix(shape: SortGeometry, bits: int) -> int:
    if shape.batch > 1:
        return math.ceil(bits / SEGMENT_BITS) + 1  # of rows: passes, and the offsets of rows that are copied there
    passes = math.ceil(bits / RADIX_BITS)
    return passes + 2 + passes + 2  # histogram and prefix sum; counters of every pass and of these two are cleared


def _bitonic(shape: SortGeometry, width: float) -> int:
    """Stage s has s + 1 steps over distances of 2^s down to 1; steps within a tile follow each other in one kernel."""
    fitting = min(SORT_TILE, int(SORT_SHARED / max(1.0, width * shape.operands)))
    tile = min(fitting.bit_length() - 1, _depth(shape.length))
    beyond = _depth(shape.length) - tile
    return 1 + beyond * (beyond + 1) // 2 + beyond


def _depth(length: int) -> int:
    return max(0, length - 1).bit_length()


def _solver(shape: Factorisation) -> int:
    path = solver_path(shape)
    if path == "qr looped" and shape.rows >= max(TREE_ROWS, TALL * shape.columns):
        return shape.batch * TREE_LAUNCHES * math.ceil(shape.columns / TREE_PANEL)
    if path == "qr looped" and shape.rows >= TALL * shape.columns:
        path = "qr tall"
    launches = _between(_SOLVERS[path], min(shape.rows, shape.columns))
    return round(launches if path.endswith(("batched", "vector")) else shape.batch * launches)


def _between(sizes: _Sizes, columns: int) -> float:
    """Interpolated between sizes by powers; as at the first size below it, growing by columns behind the last."""
    at = bisect_left(sizes, columns, key=lambda size: size[0])
    if at == 0:
        return sizes[0][1]
    if at == len(sizes):
        return sizes[-1][1] * columns / sizes[-1][0]
    (low, fewer), (high, more) = sizes[at - 1], sizes[at]
    share = math.log(columns / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(fewer) + share * math.log(more))
