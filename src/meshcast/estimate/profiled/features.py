"""What measured kernels are compared by: a family within which times can be interpolated, and a place in it.

Sizes enter as log2, so that a distance of 1 is a factor of two in one of them; what changes the way a kernel runs (an operand's
layout, rows that are not aligned, a transpose on the way) counts as so many octaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from meshcast.estimate.gpu.programs import is_program
from meshcast.estimate.gpu.row_programs import held_twice, is_row_program, per_thread, words_of_operands
from meshcast.estimate.gpu.solvers import waits_for_host
from meshcast.estimate.profiled.tiles import tiled_family, tiled_place
from meshcast.estimate.rates import catalogue_key
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind, is_filter_gradient
from meshcast.workload import (
    ALIGNMENT,
    Attention,
    Convolution,
    Gemm,
    Indexed,
    Reduction,
    SortGeometry,
    Transform,
    Window,
    element_bytes,
)

Where = tuple[float, ...]
Place = tuple[str, Where]
ALONE = " alone"  # how families of kernels that run alone end
IN_TILES = " in tiles"  # and those of kernels whose tiles the compiler told
WAITING = "solver that waits for its host"  # has no rows: such calls are modelled
UNPADDED = "gemm 16-bit of unpadded rows"  # likewise
CACHE_SHARE = 0.5  # of the capacity: what was touched within so much traffic may still be there


def place(kernel: Kernel, device: Device) -> Place:
    """A kernel's family and its place there."""
    return family_of(kernel, device), (*_where(kernel, device), *tiled_place(kernel, device), *_program(kernel, device))


def _program(kernel: Kernel, device: Device) -> Where:
    """What the tile of a program of rows adds: elements and registers of a thread, and whether it holds them twice."""
    shape = kernel.geometry
    if device.kind != "gpu" or not is_row_program(kernel) or not isinstance(shape, Reduction):
        return ()
    return (
        log2(per_thread(kernel, shape)),
        2 * words_of_operands(kernel, shape),
        3.0 * held_twice(kernel, shape),
        log2(kernel.warps),
    )


def family_of(kernel: Kernel, device: Device) -> str:
    """The family within which a kernel's time can be interpolated.

    What mostly moves bytes is a family of its own where it runs alone, over and over: a program of one small kernel finds
    all of its bytes where it left them, and clocks, caches and queues are at their best. So is one whose tiles are known, as
    another model is its reference (`estimate.gpu.programs`).
    """
    alone = kernel.recency is None and kernel.kind not in _COMPUTING
    name = tiled_family(_family(_as_multiplied(kernel, device)), kernel, device)
    if device.kind == "gpu" and is_program(kernel):
        name += IN_TILES
    return name + ALONE if alone else name


def _as_multiplied(kernel: Kernel, device: Device) -> Kernel:
    """A product at the precision that a device's libraries make of what is asked for."""
    g = kernel.geometry
    if not isinstance(g, Gemm) or device.kind != "gpu":
        return kernel
    default = g.precision in _BY_DEFAULT.get(catalogue_key(kernel.dtype), ())
    return replace(kernel, geometry=replace(g, precision="DEFAULT")) if default else kernel


def _family(kernel: Kernel) -> str:
    if waits_for_host(kernel):  # nothing measured tells its time: its launches are a part of it
        return WAITING
    known = _BY_GEOMETRY.get(type(kernel.geometry)) if kernel.kind in _BY_SHAPE else None
    if known is not None:
        return known[0](kernel)
    return _reduction_family(kernel) if kernel.kind is KernelKind.REDUCTION else kernel.kind.value


def _where(kernel: Kernel, device: Device) -> Where:
    known = _BY_GEOMETRY.get(type(kernel.geometry)) if kernel.kind in _BY_SHAPE else None
    if known is not None:
        return known[1](kernel, device)
    return _reduction(kernel, device) if kernel.kind is KernelKind.REDUCTION else _streamed(kernel, device)


def log2(value: float) -> float:
    """log2, 0 below 1."""
    return math.log2(value) if value > 1 else 0.0


def cold_share(kernel: Kernel, device: Device) -> float:
    """The share of what it reads that no cache can hold any more."""
    if kernel.recency is None or not kernel.read_bytes:
        return 0.0
    limit = CACHE_SHARE * device.cache_bytes
    return min(1.0, sum(size for age, size in kernel.recency.reads if age > limit) / kernel.read_bytes)


def _gemm_family(kernel: Kernel) -> str:
    g = kernel.geometry
    assert isinstance(g, Gemm)
    kind = "16-bit" if catalogue_key(kernel.dtype) in ("bf16", "f16") else catalogue_key(kernel.dtype)
    if kind == "16-bit" and not g.padded and g.alignment < ALIGNMENT:
        return UNPADDED  # cuBLAS's kernels for narrow loads, which are none of those that padded rows have
    return f"gemm {kind} {'' if g.precision == 'DEFAULT' else g.precision}".strip()


def _gemm(kernel: Kernel, device: Device) -> Where:
    g = kernel.geometry
    assert isinstance(g, Gemm)
    elements = g.batch * g.m * g.n
    return (
        log2(g.m),
        log2(g.n),
        log2(g.k),
        log2(g.batch * g.groups),
        float(g.lhs_contracting_minor),
        float(g.rhs_contracting_minor),
        log2(element_bytes(g.out_dtype)),
        min(2.0, kernel.vector_flops / elements) / 2,
        log2(kernel.read_bytes / max(1.0, g.operand_bytes)),
        3.0 * (not g.reads_aligned),
        2.0 * (not g.writes_aligned),
        3 * cold_share(kernel, device),
    )


def _convolution_family(kernel: Kernel) -> str:
    c = kernel.geometry
    assert isinstance(c, Convolution)
    gradient = "filter" if is_filter_gradient(c) else "input" if max(c.lhs_dilation, default=1) > 1 else "forward"
    return f"convolution {gradient} {catalogue_key(kernel.dtype)}"


def _convolution(kernel: Kernel, device: Device) -> Where:
    c = kernel.geometry
    assert isinstance(c, Convolution)
    taps, pixels = math.prod(c.kernel), math.prod(c.out_spatial)
    groups = max(c.feature_groups, c.batch_groups)
    return (
        log2(c.batch),
        log2(c.in_channels / c.feature_groups),
        log2(c.out_channels / groups),
        log2(groups) * 2,
        log2(taps),
        log2(pixels),
        log2(max(c.strides, default=1)),
        3.0 * (c.in_channels / c.feature_groups < 8),
        float(len(c.kernel)),
        min(2.0, kernel.vector_flops / max(1, kernel.elements)) / 2,
        cold_share(kernel, device),
    )


def _attention_family(kernel: Kernel) -> str:
    a = kernel.geometry
    assert isinstance(a, Attention)
    return f"attention {a.library} {'backward' if a.backward else 'forward'}"


def _attention(kernel: Kernel, device: Device) -> Where:
    a = kernel.geometry
    assert isinstance(a, Attention)
    return (
        log2(a.batch),
        log2(a.heads),
        log2(a.heads / a.kv_heads),
        log2(a.q_len),
        log2(a.kv_len),
        2 * log2(a.head_dim),
        2.0 * a.causal,
        cold_share(kernel, device),
    )


def _indexed(kernel: Kernel, device: Device) -> Where:
    i = kernel.geometry
    assert isinstance(i, Indexed)
    return (
        log2(i.table.bytes) / 2,
        log2(i.count),
        log2(math.prod(i.slice_shape)),
        2 * log2(element_bytes(i.table.dtype)),
        log2(kernel.written_bytes),
        4 * i.skew,
        2.0 * i.unique,
        cold_share(kernel, device),
    )


def _sort_family(kernel: Kernel) -> str:
    s = kernel.geometry
    assert isinstance(s, SortGeometry)
    return "top" if s.top is not None else "sort"


def _sort(kernel: Kernel, device: Device) -> Where:
    s = kernel.geometry
    assert isinstance(s, SortGeometry)
    return (
        log2(s.length),
        log2(s.batch),
        2.0 * s.operands,
        log2(s.top or 1) / 2,
        4.0 * (not s.minor),
        2.0 * bool(s.radix),
        log2(element_bytes(kernel.dtype)),
        cold_share(kernel, device),
    )


def _transform(kernel: Kernel, device: Device) -> Where:
    t = kernel.geometry
    assert isinstance(t, Transform)
    return (
        log2(t.batch),
        log2(math.prod(t.lengths)),
        2.0 * len(t.lengths),
        3.0 * bool(t.lengths[-1] & (t.lengths[-1] - 1)),
        2.0 * (t.kind in ("IFFT", "IRFFT")),
        2.0 * (t.kind in ("RFFT", "IRFFT")),
        cold_share(kernel, device),
    )


def _window(kernel: Kernel, device: Device) -> Where:
    w = kernel.geometry
    assert isinstance(w, Window)
    return (
        log2(math.prod(w.shape)),
        log2(math.prod(w.window)),
        log2(math.prod(w.strides)),
        log2(kernel.written_bytes),
        log2(element_bytes(kernel.dtype)),
        cold_share(kernel, device),
    )


def _streamed(kernel: Kernel, device: Device) -> Where:
    """A kernel that mostly moves bytes: how many, what is computed per byte, what keeps it from streaming."""
    moved = max(1, kernel.read_bytes + kernel.written_bytes)
    flags = kernel.flags
    return (
        log2(kernel.read_bytes),
        log2(kernel.written_bytes),
        log2(kernel.elements),
        log2(1 + 16 * kernel.vector_flops / moved),
        log2(1 + 64 * kernel.transcendentals / moved),
        2.0 * ("transpose" in flags),
        4.0 * ("turned" in flags),
        3.0 * ("gather" in flags),
        3.0 * ("copy" in flags),
        3.0 * ("scan" in flags),
        2.0 * ("joined" in flags),
        4.0 * ("power" in flags),
        3.0 * ("tanh" in flags),
        4.0 * ("trigonometry" in flags),
        2.0 * ("logarithm" in flags),
        2.0 * ("erf" in flags),
        4.0 * ("random" in flags),
        2.0 * (kernel.recency is None),
        2.0 * bool(kernel.updates),
        log2(element_bytes(kernel.dtype)),
        2 * cold_share(kernel, device),
    )


def _reduction_family(kernel: Kernel) -> str:
    r = kernel.geometry
    if not isinstance(r, Reduction) or not r.dims:
        return "reduction"
    written = kernel.written_bytes * 8 >= math.prod(r.shape)
    return f"reduction {'rows' if r.reduces_minor else 'columns'}{' kept' if written else ''}"


def _reduction(kernel: Kernel, device: Device) -> Where:
    r = kernel.geometry
    if not isinstance(r, Reduction) or not r.dims:
        return (*_streamed(kernel, device), 0.0, 0.0)
    total = math.prod(r.shape)
    reduced = math.prod(r.shape[d] for d in r.dims)
    inner = math.prod(r.shape[max(r.dims) + 1 :])
    return (*_streamed(kernel, device), log2(reduced), log2(total / max(1, reduced)), log2(inner))


# Precisions that GPUs' libraries multiply numbers of a type at as they do by default: f32 as TF32 unless the highest is asked for
# (`estimate.rates`), and 16 bits as they are.
_BY_DEFAULT = {"f32": ("HIGH",), "bf16": ("HIGH", "HIGHEST"), "f16": ("HIGH", "HIGHEST")}
_COMPUTING = frozenset(
    {KernelKind.GEMM, KernelKind.CONVOLUTION, KernelKind.ATTENTION, KernelKind.SORT, KernelKind.OTHER}
)
_BY_SHAPE = frozenset(
    {
        KernelKind.GEMM,
        KernelKind.CONVOLUTION,
        KernelKind.ATTENTION,
        KernelKind.GATHER,
        KernelKind.SCATTER,
        KernelKind.SORT,
        KernelKind.OTHER,
    }
)
# How the family of a kernel with such a geometry is called, and where in it the kernel is.
_BY_GEOMETRY: dict[type, tuple[Callable[[Kernel], str], Callable[[Kernel, Device], Where]]] = {
    Gemm: (_gemm_family, _gemm),
    Convolution: (_convolution_family, _convolution),
    Attention: (_attention_family, _attention),
    Indexed: (lambda kernel: kernel.kind.value, _indexed),
    SortGeometry: (_sort_family, _sort),
    Window: (lambda kernel: "window", _window),
    Transform: (lambda kernel: "transform", _transform),
}
