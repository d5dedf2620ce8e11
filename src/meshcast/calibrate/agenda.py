"""What is measured next: batches of a few probes that are slow to compile and many that are not."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence

from meshcast.calibrate.probe import Probe
from meshcast.calibrate.suite import is_slow

SLOW, QUICK = 24, 80
MOST_QUICK = 320
PLAIN = 32  # on backends that tune nothing
QUICK_SHARE = 0.6  # of the time, within which all quick ones should have had their turn


class Agenda:
    """Batches in the suite's order.

    Compiling for a GPU, XLA tunes products and convolutions on the device for seconds each, and nothing can be measured
    meanwhile: a batch holds `SLOW` of those and as many others as it takes to be through with them in `QUICK_SHARE` of
    the time. Suspects, in whose batch the process died, come last and one by one.
    """

    def __init__(self, probes: Sequence[Probe], platform: str, suspects: Collection[str] = ()) -> None:
        tunes = platform == "gpu"
        trusted = [item for item in probes if item.id not in suspects]
        self._slow = deque(item for item in trusted if tunes and is_slow(item))
        self._quick = deque(item for item in trusted if not (tunes and is_slow(item)))
        self._suspects = deque(item for item in probes if item.id in suspects)
        self._tunes = tunes
        self._count = QUICK if tunes else PLAIN

    def paced(self, batch_s: float, left_s: float) -> None:
        """Sets how many quick ones a batch takes, after one that took `batch_s` with `left_s` to go."""
        if self._tunes and self._slow:
            to_come = max(1.0, QUICK_SHARE * left_s / max(batch_s, 1e-3))
            self._count = min(MOST_QUICK, max(QUICK, math.ceil(len(self._quick) / to_come)))

    def take(self) -> list[Probe]:
        """The next batch, slow ones first; empty at the end."""
        batch = [self._slow.popleft() for _ in range(min(SLOW, len(self._slow)))]
        batch += [self._quick.popleft() for _ in range(min(self._count, len(self._quick)))]
        if not batch and self._suspects:
            batch.append(self._suspects.popleft())
        return batch
