"""How fast a machine's host issues PyTorch's calls: what `predict --host TIME` takes.

    meshcast calibrate --torch-host
    python pace.py                      # this file alone, on a machine that has torch and nothing else

Two tensors of 64 x 64 are added again and again without gradients, 32 times after every synchronisation, so that the device is
always done before the host: the time of one addition is the host's. Kinds of calls keep their ratios to it
(`data/measured/h200-torch-host`), while the addition itself changes by 1.6 times within seconds on one machine: the middle
of three seconds is told, with the range of nine tenths of them. No profiler may have run in the process, since Kineto's
subscription stays and adds 40 %.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS, ADDITIONS, WIDTH = 3.0, 32, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPace:
    """Microseconds in which a host issues the addition of two small tensors: the middle, and where nine in ten lie."""

    addition_us: float
    low_us: float
    high_us: float

    @property
    def host(self) -> str:
        """As `--host` takes it."""
        return f"{self.addition_us:.3g}us"


def pace_of(
    chain: Callable[[], float], seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter
) -> HostPace:
    """The pace by chains of additions.

    Args:
        chain: Runs a chain; gives the microseconds of one addition of it.
        seconds: For how long.
        clock: Tells the seconds.
    """
    for _ in range(20):
        chain()
    found: list[float] = []
    end = clock() + seconds
    while not found or clock() < end:
        found.append(chain())
    found.sort()
    low, high = (found[min(len(found) - 1, int(len(found) * share))] for share in (0.05, 0.95))
    return HostPace(addition_us=statistics.median(found), low_us=low, high_us=high)


def has_gpu() -> bool:
    """Whether torch is there and finds a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def additions() -> Callable[[], float]:
    """A chain of additions on the GPU that torch finds."""
    import torch

    x, y = (torch.randn(WIDTH, WIDTH, device="cuda") for _ in range(2))

    def chain() -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.no_grad():
            made = x
            for _ in range(ADDITIONS):
                made = made + y
        return 1e6 * (time.perf_counter() - began) / ADDITIONS

    return chain


def pace_told(pace: HostPace) -> str:
    """A line for people."""
    return (
        f"one addition takes the host {pace.addition_us:.1f} us ({pace.low_us:.1f} to {pace.high_us:.1f}): "
        f"meshcast predict ... --host {pace.host}"
    )


if __name__ == "__main__":
    print(pace_told(pace_of(additions())))
