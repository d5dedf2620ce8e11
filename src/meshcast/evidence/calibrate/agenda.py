"""What is measured next: batches of probes that take about as long to compile, with many quick ones among them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence

from meshcast.evidence.calibrate.probe import Probe
from meshcast.evidence.calibrate.suite import Compiling, compiling

# On a GPU, how many a batch takes of each, and what one is thought to take before the first has been seen.
SIZES = {Compiling.LONG: 20, Compiling.TUNED: 28, Compiling.QUICK: 80}
GUESSED_S = {Compiling.LONG: 90.0, Compiling.TUNED: 25.0, Compiling.QUICK: 0.0}
LONG_EVERY = 4  # batches
MOST_QUICK = 320
PLAIN = 32  # on backends that tune nothing
QUICK_SHARE = 0.6  # of the time, within which all quick ones should have had their turn


class Agenda:
    """Batches in the suite's order.

    Compiling for a GPU, XLA tunes products and convolutions on the device, and nothing can be measured meanwhile: a
    batch takes as long as its slowest probe. So those that take long are put together, every few batches, and quick
    ones go along with any, as many as it takes to be through with them in `QUICK_SHARE` of the time. Suspects, in
    whose batch the process died, come last and one by one.
    """

    def __init__(self, probes: Sequence[Probe], platform: str, suspects: Collection[str] = ()) -> None:
        self._tunes = platform == "gpu"
        self._queues: dict[Compiling, deque[Probe]] = {kind: deque() for kind in Compiling}
        for item in probes:
            if item.id not in suspects:
                self._queues[compiling(item) if self._tunes else Compiling.QUICK].append(item)
        self._suspects = deque(item for item in probes if item.id in suspects)
        self._quick = SIZES[Compiling.QUICK] if self._tunes else PLAIN
        self._longest = dict(GUESSED_S)
        self._taken = 0
        self._kind = Compiling.QUICK

    def take(self, left_s: float) -> list[Probe]:
        """The next batch that should end within `left_s`, the slowest to compile first; empty if there is none."""
        self._taken += 1
        kinds = [Compiling.TUNED, Compiling.LONG, Compiling.QUICK]
        if self._taken % LONG_EVERY == 0:
            kinds[:2] = reversed(kinds[:2])
        for kind in kinds:
            if self._queues[kind] and left_s > self._longest[kind]:
                self._kind = kind
                slow = self._popped(kind, SIZES[kind]) if kind is not Compiling.QUICK else []
                return slow + self._popped(Compiling.QUICK, self._quick)
        if left_s > 0 and not any(self._queues.values()) and self._suspects:
            return [self._suspects.popleft()]
        return []

    def _popped(self, kind: Compiling, most: int) -> list[Probe]:
        queue = self._queues[kind]
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    def took(self, batch_s: float, left_s: float) -> None:
        """Learns from the batch that was taken last: `batch_s`, with `left_s` to go."""
        # The longest counts, but not for ever: the first batch also loads libraries.
        seen = self._longest[self._kind] if self._longest[self._kind] != GUESSED_S[self._kind] else 0.0
        self._longest[self._kind] = max(0.5 * seen, batch_s)
        if self._tunes:
            to_come = max(1.0, QUICK_SHARE * left_s / max(batch_s, 1e-3))
            wanted = math.ceil(len(self._queues[Compiling.QUICK]) / to_come)
            self._quick = min(MOST_QUICK, max(SIZES[Compiling.QUICK], wanted))
