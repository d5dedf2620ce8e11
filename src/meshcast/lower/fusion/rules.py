"""What sets the fusion of one backend apart from another's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from meshcast.workload import OpKind

# May be computed inside the kernel that consumes them.
FUSIBLE_PRODUCERS = frozenset(
    {
        OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.GENERATE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE,
        OpKind.GATHER, OpKind.RNG, OpKind.VIEW,
    }
)  # fmt: skip
# Write into the buffer of their first operand: whatever produces that must have written it to memory.
IN_PLACE = frozenset({OpKind.UPDATE, OpKind.SCATTER})
# May compute their producers on the way in.
FUSIBLE_CONSUMERS = FUSIBLE_PRODUCERS | IN_PLACE | {OpKind.REDUCE}
PRODUCTS = frozenset({OpKind.GEMM, OpKind.CONVOLUTION})

# Who fuses: a compiler whatever it may, or nobody beyond the ops of a framework.
Fusion = Literal["compiler", "eager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What sets a backend's fusion apart."""

    consumers: frozenset[OpKind]  # may compute their producers on the way in
    joining: frozenset[OpKind]  # beside the plain producers, may be computed inside the kernel that reads them
    plain_epilogues: bool  # whether a product's epilogue must be plain arithmetic
    repeats_functions: bool  # whether a slow function is always computed again in each of several readers
    alone: frozenset[OpKind] = (
        frozenset()
    )  # of the plain producers, those that are never computed inside another kernel
    tensors: int = 0  # of full size that a kernel may read; 0: any number
    timed: bool = False  # whether XLA:GPU's cost model says what is computed again

    def repeats(self, read: int, written: int, readers: frozenset[OpKind]) -> bool:
        """Whether several readers of such kinds each compute a slow function from so many bytes to so many.

        XLA:TPU computes it once, unless its operand takes clearly fewer bytes than its result. A softmax's exponential is
        computed again where a product reads it, however wide: libtpu 0.0.42.1 sums it in one kernel and divides it on the
        way into the product, and writes it nowhere (training steps, in bf16 on v3, in f32 on v4, v5e and v5p).
        """
        if self.repeats_functions:
            return True
        softmax = (
            OpKind.REDUCE in readers and not readers.isdisjoint(PRODUCTS) and readers <= PRODUCTS | {OpKind.REDUCE}
        )
        return read <= written if softmax else 3 * read <= 2 * written


GPU = Rules(
    consumers=FUSIBLE_CONSUMERS | {OpKind.WINDOW},  # XLA:GPU's loop emitter computes windows (IsUniversallyLoopFusible)
    joining=frozenset({OpKind.REDUCE, OpKind.GEMM, OpKind.WINDOW}),
    plain_epilogues=True,
    repeats_functions=True,
    timed=True,
)
EAGER = replace(GPU, consumers=FUSIBLE_CONSUMERS, joining=frozenset({OpKind.REDUCE}), tensors=2, timed=False)
# XLA:TPU picks slices by copies, in a kernel of their own (`kCustom`, libtpu 0.0.42): readers find them written down.
TPU = Rules(
    consumers=FUSIBLE_CONSUMERS | PRODUCTS,
    joining=PRODUCTS,
    plain_epilogues=False,
    repeats_functions=False,
    alone=frozenset({OpKind.GATHER}),
)
