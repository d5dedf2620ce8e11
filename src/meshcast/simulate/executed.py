"""`Executed`: the kernels of a step that run, with how often; no time is in it, so that all hardware shares it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside
from meshcast.lower import Kernel
from meshcast.simulate.issue_order import BlockPlan


@dataclass(frozen=True)
class Executed:
    """Every kernel that runs with how often, in the order in which they start: loops multiplied, of branches the longer one."""

    kernels: tuple[tuple[Kernel, int], ...]

    @cached_property
    def computing(self) -> tuple[Kernel, ...]:
        """The compute kernels."""
        return tuple(kernel for kernel, _ in self.kernels if kernel.collective is None)

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """How often each of them runs."""
        return np.array([n for kernel, n in self.kernels if kernel.collective is None], dtype=np.float64)

    @cached_property
    def multiplying(self) -> tuple[tuple[Kernel, int], ...]:
        """Those with matrix products."""
        return tuple((kernel, n) for kernel, n in self.kernels if kernel.matrix_flops)

    @cached_property
    def sums_exactly(self) -> bool:
        """Whether sums of FLOPs are the same in any order: whole numbers, and no sum of them beyond what a float counts to."""
        parts = [(n, flops) for k, n in self.multiplying for flops in (k.matrix_flops, k.redundant_flops)]
        return all(float(flops).is_integer() for _, flops in parts) and sum(n * flops for n, flops in parts) < 2**53

    @cached_property
    def launches(self) -> int:
        """Kernels of a step that its schedule shows."""
        return sum(n for _, n in self.kernels)

    @cached_property
    def memory_bytes(self) -> float:
        """Bytes that compute kernels read and write."""
        return float(sum(n * (k.read_bytes + k.written_bytes) for k, n in self.kernels if k.collective is None))

    @cached_property
    def sent_bytes(self) -> int:
        """Bytes that a device sends in collectives."""
        return round(sum(n * k.collective.sent_bytes for k, n in self.kernels if k.collective is not None))


_EXECUTED: KeptBeside[Executed] = KeptBeside(of_program=8)  # times take few ways through each


def executed(plan: BlockPlan, taken: tuple[int, ...], walked: Callable[[], Iterable[tuple[Kernel, int]]]) -> Executed:
    """What runs of a plan, listed once for each way that times take through it.

    Args:
        plan: The plan.
        taken: That way: the orders and branches that were taken, by their places.
        walked: Lists the kernels of that way.
    """
    return _EXECUTED.of(plan, taken, lambda: Executed(tuple(walked())))
