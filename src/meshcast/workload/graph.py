"""The op graph of one device's program: blocks of ops over numbered values, loops with trip counts, collectives.

Everything here is hardware-free. FLOPs follow XLA's convention (a multiply-add is 2, elementwise arithmetic is 1 per
output element, transcendental functions are counted apart); bytes are what the op alone would move, before any fusion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from meshcast.base import Group, made_quickly
from meshcast.workload.made_launches import CompiledLaunch
from meshcast.workload.shapes import SortGeometry, Transform, Window
from meshcast.zoo import ALIKE_SCOPE

AttentionLibrary = Literal["cudnn", "flash-2", "flash-1"]
Routine = Literal["cholesky", "lu", "qr", "q", "svd", "svd-qr", "eigh", "eig", "triangular"]
_ALIKE = re.compile(rf"\b{ALIKE_SCOPE}([1-9]\d*)\b")

# Bits per element by MLIR element type name. Sub-byte types are packed: rounding to bytes is per tensor.
DTYPE_BITS: dict[str, int] = {
    "i1": 8,  # XLA stores predicates as bytes
    **{f"{sign}{bits}": bits for sign in ("i", "ui", "si") for bits in (2, 4, 8, 16, 32, 64)},
    **{"bf16": 16, "f16": 16, "f32": 32, "f64": 64, "tf32": 32},
    **dict.fromkeys(
        ("f8E4M3FN", "f8E5M2", "f8E4M3", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ", "f8E3M4", "f8E8M0FNU"), 8
    ),
    **{"f4E2M1FN": 4, "f6E2M3FN": 6, "f6E3M2FN": 6, "complex<f32>": 64, "complex<f64>": 128, "token": 0},
}

ALIGNMENT = 16  # bytes that rows must be a multiple of for vector loads and TMA


def element_bytes(dtype: str) -> float:
    """Bytes of one element, fractions for sub-byte types; 4 for a type that is not known."""
    return DTYPE_BITS.get(dtype, 32) / 8


@dataclass(frozen=True)
class Tensor:
    """Shape and element type of a value, as one device holds it. No slots: sizes are asked for often and kept."""

    shape: tuple[int, ...]
    dtype: str

    @cached_property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def bytes(self) -> int:
        """Bytes in memory, sub-byte types packed."""
        return (self.elements * DTYPE_BITS[self.dtype] + 7) // 8

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class OpKind(StrEnum):
    """What an op does, as far as a performance model cares."""

    ELEMENTWISE = "elementwise"
    GEMM = "gemm"
    CONVOLUTION = "convolution"
    REDUCE = "reduce"
    WINDOW = "window"  # reduce_window, select_and_scatter
    SCAN = "scan"  # associative scans: cumsum and the like
    GATHER = "gather"
    SCATTER = "scatter"
    SLICE = "slice"  # slice, dynamic_slice: reads only what it returns
    UPDATE = "update"  # dynamic_update_slice: writes only the update
    MOVE = "move"  # pad, concatenate, reverse: every byte in and out
    TRANSPOSE = "transpose"
    BROADCAST = "broadcast"
    GENERATE = "generate"  # constant, iota: no operands worth reading
    VIEW = "view"  # reshape, bitcast, tuple plumbing, barriers: no work
    SORT = "sort"
    RNG = "rng"
    FFT = "fft"
    LINALG = "linalg"  # factorisations, triangular solves
    CUSTOM = "custom"
    COLLECTIVE = "collective"
    LOOP = "loop"
    BRANCH = "branch"
    HOST = "host"  # infeed, outfeed


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`out[b,m,n] = sum_k lhs[b,m,k] * rhs[b,k,n]`; layouts say which operand dimension is contiguous."""

    batch: int
    m: int
    n: int
    k: int
    lhs_dtype: str
    rhs_dtype: str
    out_dtype: str
    lhs_contracting_minor: bool  # the contracted dimension is lhs's innermost
    rhs_contracting_minor: bool
    precision: str = "DEFAULT"  # DEFAULT | HIGH | HIGHEST, or a dot algorithm's name
    groups: int = 1  # grouped GEMM (chlo.ragged_dot): groups that share out the rows
    split: int = 1  # likewise, groups that share out what is summed over; they count in `batch` and `k` already
    stored_dtype: str = ""  # of weights that the product itself widens to its operands' type
    padded: bool = True  # whether rows that are not aligned are padded where that is faster

    @property
    def row_bytes(self) -> tuple[float, float, float]:
        """Bytes of one contiguous row of lhs, rhs and out."""
        lhs = self.k if self.lhs_contracting_minor else self.m
        rhs = self.k if self.rhs_contracting_minor else self.n
        sizes = (lhs, self.lhs_dtype), (rhs, self.rhs_dtype), (self.n, self.out_dtype)
        left, right, out = (count * element_bytes(dtype) for count, dtype in sizes)
        return left, right, out

    @property
    def reads_aligned(self) -> bool:
        """Whether rows of both operands are aligned."""
        lhs, rhs, _ = self.row_bytes
        return not (lhs % ALIGNMENT or rhs % ALIGNMENT)

    @property
    def writes_aligned(self) -> bool:
        """Whether rows of the result are aligned."""
        return not self.row_bytes[2] % ALIGNMENT

    @property
    def alignment(self) -> int:
        """The largest power of two, up to `ALIGNMENT`, that the bytes of every row are a multiple of."""
        return min(math.gcd(ALIGNMENT, int(row)) for row in self.row_bytes)

    @property
    def operand_bytes(self) -> float:
        """Bytes of both operands, each read once."""
        sides = self.m * element_bytes(self.lhs_dtype) + self.n * element_bytes(self.rhs_dtype)
        return self.batch * self.k * sides

    def __str__(self) -> str:
        return f"{f'{self.batch}x ' if self.batch > 1 else ''}{self.m}x{self.n}x{self.k} {self.lhs_dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution's geometry in its own dimension order; `macs` excludes multiplications with padding."""

    batch: int
    in_channels: int
    out_channels: int
    in_spatial: tuple[int, ...]
    out_spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int
    macs: int
    lhs_dtype: str
    rhs_dtype: str
    out_dtype: str
    layout: str  # e.g. "b01f,01io->b01f"
    precision: str = "DEFAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """Which dimensions of `shape` are reduced; rows are contiguous when the innermost one is among them."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def reduces_minor(self) -> bool:
        """True for a row reduction (the innermost dimension goes)."""
        return bool(self.dims) and max(self.dims) == len(self.shape) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A gather or scatter: `count` slices of `slice_shape` each, picked by indices from `table`.

    Indices are spread evenly, or by a Zipf law of exponent `skew`: the slice of rank r is picked as often as `r^-skew`.
    `extremum`: a scatter keeps the larger or the smaller, so that most updates of one place change nothing.
    `counts`: how often each slice is picked, the most frequent first, where the program computes its indices of constants alone.
    """

    table: Tensor
    slice_shape: tuple[int, ...]
    count: int
    unique: bool = False
    is_sorted: bool = False
    skew: float = 0.0
    extremum: bool = False
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A fused attention call: queries `[batch, heads, q_len, head_dim]` against `kv_len` keys."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    dtype: str
    causal: bool
    backward: bool
    window: int = 0  # keys that a query sees at most; 0: all that the mask leaves
    block: int = 0  # queries, and keys, that a kernel takes at once, where it says so
    pages: int = 0  # pieces that keys and values lie in, each to be fetched on its own; 0: they lie in one
    library: AttentionLibrary = "cudnn"  # whose kernel runs it on a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Factorisation:
    """A dense solver's call: `batch` matrices of `rows` x `columns`, for a triangular solve with `right` right-hand sides.

    `q` forms the orthogonal factor of a QR; `svd` goes by Jacobi rotations, `svd-qr` by QR iterations.
    """

    routine: Routine
    batch: int
    rows: int
    columns: int
    right: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Communication inside one group; bytes are what one device holds before and after."""

    kind: str  # all_reduce | all_gather | reduce_scatter | all_to_all | collective_permute | collective_broadcast
    group: Group
    input_bytes: int
    output_bytes: int
    reason: str = ""  # why the partitioner put it there, where it is not the user's own
    # Of an all-to-all: as many of its rows are copies of one, and no part of a network is sent two of them.
    copies: int = 1
    # Of a permutation whose pairs are given: all sources, then all targets (`mesh.pairs_of`); else every group is a ring.
    # As bytes, which are hashed once: there are as many pairs as devices.
    pairs: bytes = field(default=b"", repr=False)

    @property
    def payload_bytes(self) -> int:
        """The whole buffer of the operation: the larger side (gathered output, unscattered input)."""
        return max(self.input_bytes, self.output_bytes)

    @property
    def sent_bytes(self) -> float:
        """Bytes each device must send: the bandwidth bound, 2(n-1)/n of the buffer for an all-reduce."""
        n = self.group.size
        if n <= 1:
            return 0.0
        if self.kind in ("collective_permute", "collective_broadcast"):
            return float(self.payload_bytes)
        share = (n - 1) / n * self.payload_bytes
        return 2 * share if self.kind == "all_reduce" else share


Geometry = (
    Gemm
    | Convolution
    | Reduction
    | Indexed
    | Window
    | SortGeometry
    | Attention
    | Factorisation
    | Transform
    | Collective
)


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one op before fusion: FLOPs, bytes, geometry.

    `matrix_flops` run on the matrix engine at `dtype`'s rate (the operands' type, not the accumulator's);
    `vector_flops` and `transcendentals` on the vector units. `operand_bytes[i]` is what is really read of operand i
    (a slice reads only its slice), `written_bytes` what is written.
    """

    kind: OpKind
    dtype: str = ""
    matrix_flops: float = 0.0
    # Of them, those that are none of the model's own: what a fused backward pass computes again, products with masked rows.
    recomputed_flops: float = 0.0
    vector_flops: float = 0.0
    transcendentals: float = 0.0
    operand_bytes: tuple[int, ...] = ()
    written_bytes: int = 0
    geometry: Geometry | None = None
    guessed: bool = (
        False  # nobody has a model of the call: its author's estimate, its code or (--approximate) its bytes
    )
    # A product: the dimension order it needs each operand in, outermost first; empty where any will do as it lies.
    # A transpose: its permutation. Numbers that count up: the dimension along which they do.
    # A broadcast of an array: the result's dimension that each of the operand's is.
    orders: tuple[tuple[int, ...], ...] = ()
    strides: tuple[int, ...] = ()  # a slice's steps along each dimension, where one is more than 1
    # Where a slice begins along each dimension, where that is no value; where a pad's operand does.
    starts: tuple[int, ...] = ()
    run: int = 0  # of a gather: elements of its table that lie side by side in its result, too; 0: nobody knows
    # A product: of each operand, the dimensions of its batch, its own rows or columns, and those that are summed over.
    parts: tuple[tuple[tuple[int, ...], ...], ...] = ()


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op of the graph; values are indices into `Workload.tensors`."""

    name: str
    cost: Cost
    operands: tuple[int, ...]
    results: tuple[int, ...]
    blocks: tuple[Block, ...] = ()  # loop: (body,); branch: one per branch
    trip_count: int = 1
    location: str = ""
    recomputed: bool = False  # inside a rematerialised region (jax.checkpoint's backward pass)
    launch: CompiledLaunch | None = None  # in a program that a compiler has scheduled
    equal: tuple[int, ...] = ()  # results of an earlier op of its block that computes the same
    asks: str = ""  # label of the loop that ends on data whose condition it is a part of

    @property
    def recomputed_flops(self) -> float:
        """Matrix FLOPs that a backward pass computes again: all of a rematerialised op, of a fused kernel its share."""
        return self.cost.matrix_flops if self.recomputed else self.cost.recomputed_flops

    @property
    def counted(self) -> Block | None:
        """The block of the op whose cost is counted: a loop's body, the costliest branch."""
        several = len(self.blocks) > 1
        return max(self.blocks, key=lambda block: block.weight) if several else next(iter(self.blocks), None)

    @property
    def redundant_flops(self) -> float:
        """Matrix FLOPs beside the model's own: F_again + (F - F_again) (1 - 1/n) where n devices compute the op alike."""
        total, again = self.cost.matrix_flops, self.recomputed_flops
        alike = _ALIKE.search(self.location) if total and ALIKE_SCOPE in self.location else None
        return again + (total - again) * (1 - 1 / int(alike[1])) if alike else again


@dataclass(frozen=True, kw_only=True)
class Block:
    """A straight run of ops. A loop body's inputs and outputs correspond one to one (the carried values)."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ops: tuple[Op, ...] = field(repr=False)

    def walk(self) -> Iterator[tuple[Op, int]]:
        """Every op with how often it runs, loops multiplied; of branches only the costlier one."""
        waiting: list[tuple[Iterator[Op], int]] = [(iter(self.ops), 1)]
        while waiting:
            ops, count = waiting.pop()
            for op in ops:
                yield op, count
                if op.blocks and (counted := op.counted) is not None:
                    waiting += (ops, count), (iter(counted.ops), count * op.trip_count)
                    break

    @cached_property
    def matrix_flops(self) -> float:
        """On the matrix engine, of all it runs."""
        nested = [op.trip_count * inner.matrix_flops for op in self.ops if (inner := op.counted)]
        return sum([op.cost.matrix_flops for op in self.ops]) + sum(nested)

    @cached_property
    def weight(self) -> float:
        """A hardware-free size, to tell the costlier of several blocks: FLOPs at 100 per byte."""
        total = 0.0
        for op, cost in [(op, op.cost) for op in self.ops]:
            total += cost.matrix_flops + cost.vector_flops + 100.0 * (sum(cost.operand_bytes) + cost.written_bytes)
            total += op.trip_count * inner.weight if (inner := op.counted) else 0.0
        return total
