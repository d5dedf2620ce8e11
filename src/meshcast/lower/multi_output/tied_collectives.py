"""Which collectives steps wait for and lead to, so that fusion makes none of them wait for another.

The update of a weight waits for the reduction of its gradient; the backward pass reads the same weight and leads to the
reductions of earlier layers. As one kernel both would have every reduction wait for the one before it, and none could be joined
with another or run beside the backward pass. Frameworks and XLA have no such kernels: optimizers are kernels of their own there,
and what a backward convolution reads otherwise than it lies is inside the library's call.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.lower.kernel import Kernel, Step
from meshcast.lower.schedule.step_dependencies import dependencies


class TiedCollectives:
    """Sets of collectives, as bits of a number, by the place of a step."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Of a block's steps, in order."""
        numbers = {
            index: 1 << number
            for number, index in enumerate(
                index for index, step in enumerate(steps) if isinstance(step, Kernel) and step.collective is not None
            )
        }
        self._behind = [0] * len(steps)  # collectives that a step waits for
        self._ahead = [0] * len(steps)  # those that wait for it
        if len(numbers) < 2:
            return
        before = dependencies(steps)
        for index, waits in enumerate(before):
            for earlier in waits:
                self._behind[index] |= self._behind[earlier] | numbers.get(earlier, 0)
        for index in range(len(steps) - 1, -1, -1):
            for earlier in before[index]:
                self._ahead[earlier] |= self._ahead[index] | numbers.get(index, 0)

    def ties(self, one: int, other: int) -> bool:
        """Whether, as one kernel, a collective would wait for another that it does not wait for now."""
        return self._adds(one, other) or self._adds(other, one)

    def merge(self, host: int, guest: int) -> None:
        """What two steps wait for and lead to is the host's from now on."""
        self._behind[host] |= self._behind[guest]
        self._ahead[host] |= self._ahead[guest]

    def _adds(self, waiting: int, leading: int) -> bool:
        return bool(self._behind[waiting] & ~self._behind[leading] and self._ahead[leading] & ~self._ahead[waiting])
