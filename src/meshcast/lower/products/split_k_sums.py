"""Launches that split products bring along besides their own: sums of the parts.

A modelled lowering counts the sum into the product. In XLA's program it is a reduction over the parts, `[s, m, n]` to `[m, n]`:

- of fewer than 32 parts it is a loop in the thread of an element (`graph.reduction_stages`), which fuses into whatever reads the
  product, where all that do are passes over elements or reductions. `r` readers then load the parts once each, which must cost no
  more than a launch `t0` and the result: `r p <= t0 B + p + (1 + r) y` of `p` bytes of parts, `y` of the result and the rate `B`
  (`fusion.cost_model`). An epilogue is computed behind the sum, in its kernel;
- of 32 and more it is a kernel of its own, and an epilogue is another, unless such readers take that in.

Where K has no equal parts operands are padded, by kernels of the lowering's own (`padded_operands`).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshcast.lower.fusion.cost_model import BYTES_PER_S, LAUNCH_S
from meshcast.lower.graph.reduction_stages import WARP
from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, LoweredProgram, Schedule
from meshcast.lower.products.matrix_products import is_summed, is_tiny
from meshcast.lower.products.split_k import partial_bytes, split_parts
from meshcast.workload import Gemm

_ABSORBING = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION, KernelKind.SCATTER, KernelKind.TRANSPOSE})


def summing_launches(lowered: LoweredProgram, cores: int, architecture: str) -> int:
    """Launches that split products bring along in a modelled lowering; a compiler's shows them."""
    if lowered.lowering != "modelled" or lowered.backend != "xla-gpu":
        return 0
    split: list[tuple[Kernel, int, int]] = []
    for kernel, count in lowered.schedule.walk():
        shape = kernel.geometry
        if isinstance(shape, Gemm) and not is_summed(shape) and not is_tiny(shape):
            parts = split_parts(shape, cores, architecture)
            if parts > 1:
                split.append((kernel, count, parts))
    if not split:
        return 0
    uses = _Uses(lowered)
    return sum(count * uses.sums(kernel, parts) for kernel, count, parts in split)


class _Uses:
    """Who reads a program's values; None among readers is whatever is no kernel: loops, branches, results."""

    def __init__(self, lowered: LoweredProgram) -> None:
        self._readers: dict[int, list[Kernel | None]] = {}
        for block in _blocks(lowered.schedule):
            for step in block.steps:
                reader = step if isinstance(step, Kernel) else None
                for value in set(step.reads):
                    self._readers.setdefault(value, []).append(reader)
            for value in block.outputs:
                self._readers.setdefault(value, []).append(None)

    def sums(self, kernel: Kernel, parts: int) -> int:
        """Launches behind a product of so many parts that add them up, and compute its epilogue."""
        shape = kernel.geometry
        assert isinstance(shape, Gemm)
        readers = [reader for value in kernel.writes for reader in self._readers.get(value, [None])]
        absorbed = all(reader is not None and reader.kind in _ABSORBING for reader in readers)
        epilogue = len(kernel.ops) > 1
        if parts >= WARP:
            return 1 + (epilogue and not absorbed)
        if epilogue or not absorbed:
            return 1
        loaded, result = partial_bytes(shape, parts), kernel.written_bytes
        return int(len(readers) * loaded > LAUNCH_S * BYTES_PER_S + loaded + (1 + len(readers)) * result)


def _blocks(schedule: Schedule) -> Iterator[Schedule]:
    waiting = [schedule]
    while waiting:
        block = waiting.pop()
        yield block
        for step in block.steps:
            if isinstance(step, LoopStep):
                waiting.append(step.body)
            elif isinstance(step, BranchStep):
                waiting += step.bodies
