"""A space that nobody could hold, walked: what the driver of a sweep takes of time and memory, with answers that cost nothing.

python benchmarks/streaming.py [--points 1000000]

Points differ in two numbers of the network. Prints CPU time a point and the memory of the process after every tenth of them: it
must not grow. The exit code is 1 where it has grown by more than `MORE` from the first tenth, by when everything is loaded, to
the last.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.explore.asking import explore  # noqa: E402
from meshcast.explore.point import Outcome  # noqa: E402
from meshcast.explore.space import HARDWARE, Space, SpaceAxis  # noqa: E402
from meshcast.explore.work import Answer, SearchWork  # noqa: E402

MORE = 64  # MiB: points that are held until there are too many of them (`explore.keeping`)
PARTS = {"compute": 0.6, "memory": 0.2, "exposed_communication": 0.1, "overhead": 0.05, "idle": 0.05}


class Instantly:
    """An engine that makes answers up, and says now and then how much memory the process has."""

    def __init__(self, points: int) -> None:
        self.held: list[float] = []
        self._tenth = max(1, points // 10)
        self._started = time.process_time()

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and a step between one and two seconds."""
        for number, _ in enumerate(works, start=1):
            step = 1 + (number * 7919 % 10007) / 10007
            yield (
                number - 1,
                Outcome(
                    status="answered", step_time_s=step, units_per_s=1e5 / step, unit="tokens", mfu=0.5 / step, devices=8,
                    device="h100-sxm", memory_bytes=2**34, capacity_bytes=80 * 2**30, energy_j=1e3 * step,
                    breakdown_s={name: share * step for name, share in PARTS.items()}, fidelity="analytical",
                ),
            )  # fmt: skip
            if number % self._tenth == 0:
                self.held.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
                taken = time.process_time() - self._started
                print(f"{number:,} points: {1e3 * taken / number:.3f} ms each, {self.held[-1]:.0f} MiB", flush=True)

    def close(self) -> None:
        """Nothing was started."""


def main() -> None:
    """Walks the space.

    Raises:
        SystemExit: Memory grows with the points.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    count = parser.parse_args().points
    side = math.isqrt(count)
    space = Space(
        model="gpt2-tiny",
        asked={"on": "dgx-h100", "plan": "dp=8", "settings": {"batch": "8"}, "fidelity": "analytical"},
        axes=(
            SpaceAxis(
                name=f"{HARDWARE}nvlink.link_bandwidth", values=tuple(f"{20 + at / 64:g}GB/s" for at in range(side))
            ),
            SpaceAxis(name=f"{HARDWARE}infiniband.latency", values=tuple(f"{1000 + at}ns" for at in range(side))),
        ),
    )
    engine = Instantly(len(space))
    found = explore(space, engine=engine, search="exhaustive", top=3)
    print(f"{found.tally.evaluated:,} of {len(space):,} points; the best: {found.best[0].outcome.step_time_s:.4f} s")
    if engine.held[-1] - engine.held[0] > MORE:
        raise SystemExit(f"memory grew by {engine.held[-1] - engine.held[0]:.0f} MiB")


if __name__ == "__main__":
    main()
