"""Multi-output fusion: kernels over the same elements that read the same data become one launch.

A later kernel joins an earlier one when everything it reads exists before the earlier one runs, or is written by it:
then it cannot depend on anything in between, and the merged kernel takes the earlier one's place. Both must run over
the same number of elements, and share a read of that size or pass one on; what is shared is read once. XLA calls
the two cases sibling and producer-consumer multi-output fusion. On TPUs a product hosts what reads its result as well: the
sums of a batch norm come out of the convolution's own kernel.

XLA:GPU has rules of its own (`merged_outputs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.lower.fused_kernels.fused_kernel import merged
from meshcast.lower.kernel import Kernel, KernelKind, Step
from meshcast.workload import Reduction, Tensor

# Operands and results of one kernel; XLA:GPU stops at its limit on kernel arguments.
MAX_VALUES = 64
_MERGED_KINDS = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION})
_PRODUCTS = frozenset({KernelKind.GEMM, KernelKind.CONVOLUTION})
_GATHER = "stablehlo.gather"


def merge_siblings(
    steps: Sequence[Step],
    tensors: Sequence[Tensor],
    *,
    into_products: bool = False,
    passing_on: bool = True,
    gathers_alone: bool = False,
) -> list[Step]:
    """The steps, with sibling fusions merged into one kernel.

    Args:
        steps: The steps of a block, in order.
        tensors: Types of all values.
        into_products: Merge also into the product whose result they read.
        passing_on: Merge also into the kernel whose result they read.
        gathers_alone: Leave kernels that end in a gather as they are.
    """
    hosts = _PRODUCTS if into_products else frozenset[KernelKind]()
    return _Merging(steps, tensors, hosts, passing_on=passing_on, gathers_alone=gathers_alone).result()


class _Merging:
    def __init__(
        self,
        steps: Sequence[Step],
        tensors: Sequence[Tensor],
        hosts: frozenset[KernelKind],
        *,
        passing_on: bool,
        gathers_alone: bool,
    ) -> None:
        self._passing_on = passing_on
        self._gathers_alone = gathers_alone
        self._hosts = hosts  # kinds that take others in and are never taken in
        self._steps: list[Step | None] = list(steps)
        self._tensors = tensors
        self._written: dict[int, int] = {}  # value -> position of the step that writes it
        self._touching: dict[int, list[int]] = {}  # value -> positions of kernels that read or write it
        self._spaces: dict[int, int] = {}  # position -> elements the kernel there runs over

    def result(self) -> list[Step]:
        for position, step in enumerate(self._steps):
            assert step is not None
            place = position
            if isinstance(step, Kernel) and (space := self._space(step)):
                only_host = step.kind in self._hosts
                host = None if only_host else self._host(step, space)
                if host is not None:
                    place = host
                    first = self._steps[place]
                    assert isinstance(first, Kernel)
                    self._steps[place], self._steps[position] = merged(first, step), None
                self._spaces[place] = space
                for value in (*(() if only_host else step.reads), *(step.writes if self._passing_on else ())):
                    if self._tensors[value].elements == space:
                        self._touching.setdefault(value, []).append(place)
            for value in step.writes:
                self._written[value] = place
        return [step for step in self._steps if step is not None]

    def _space(self, kernel: Kernel) -> int:
        """Elements a kernel runs over; 0 for one that never merges."""
        if (
            kernel.kind not in _MERGED_KINDS | self._hosts
            or kernel.updates
            or not kernel.writes
            or kernel.ops == ("copy",)
            or (self._gathers_alone and kernel.ops[-1:] == (_GATHER,))
        ):
            return 0
        if kernel.kind is KernelKind.REDUCTION:
            return math.prod(kernel.geometry.shape) if isinstance(kernel.geometry, Reduction) else 0
        return self._tensors[kernel.writes[0]].elements

    def _host(self, kernel: Kernel, space: int) -> int | None:
        """The position of the earlier kernel that saves most by taking this one in."""
        saved: dict[int, int] = {}
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            for position in self._touching.get(value, ()):
                if self._spaces[position] == space:
                    saved[position] = saved.get(position, 0) + size
        if not saved:
            return None
        made = [(self._written[value], value) for value in kernel.reads if value in self._written]
        fits = [position for position in saved if self._can_host(position, kernel, space, made)]
        return max(fits, key=lambda position: saved[position], default=None)

    def _can_host(self, position: int, kernel: Kernel, space: int, made: Sequence[tuple[int, int]]) -> bool:
        host = self._steps[position]
        assert isinstance(host, Kernel)
        if len(host.reads) + len(host.writes) + len(kernel.reads) + len(kernel.writes) > MAX_VALUES:
            return False
        # What the host itself writes is at hand only element by element, not once reduced.
        return all(
            at < position or (self._passing_on and at == position and self._tensors[value].elements == space)
            for at, value in made
        )
