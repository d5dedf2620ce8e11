"""CPU time of points of which only the hardware differs, warm, in one process: the figures of `docs/exploring.md`.

python benchmarks/points.py [--points 20] [--side 8] [--only gpt2-small]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.base import kept_for_good  # noqa: E402
from meshcast.explore.evaluating import evaluate  # noqa: E402
from meshcast.explore.point import Point  # noqa: E402

JOBS = (
    ("gpt2-tiny", "h100-sxm", "mbs=2", {"batch": "4"}),
    ("gpt2-small", "dgx-h100", "dp=8", {"batch": "64"}),
    ("llama3-8b", "dgx-h100", "fsdp=8", {"batch": "16"}),
    ("gpt3-175b", "dgx-h100", "tp=8,sp=1,pp=8,dp=2,remat=full,zero=1", {"batch": "64"}),
)
CHANGES = {
    "memory.bandwidth": "{:.1f}GB/s", "nvlink.link_bandwidth": "{:.3f}GB/s", "infiniband.link_bandwidth": "{:.3f}GB/s",
}  # fmt: skip
FIRST = {"memory.bandwidth": 3000.0, "nvlink.link_bandwidth": 20.0, "infiniband.link_bandwidth": 40.0}
WARM = 2


def point(job: tuple[str, str, str, dict[str, str]], number: int, places: dict[str, int]) -> Point:
    """A job on hardware of which each named number has its place-th value."""
    model, on, plan, settings = job
    for key, place in places.items():
        on += f"+{key}={CHANGES[key].format(FIRST[key] * (1 + 0.002 * place))}"
    return Point(
        number=number, target=model, asked={"on": on, "plan": plan, "settings": settings, "fidelity": "analytical"}
    )


def cpu_seconds(points: Iterable[Point]) -> list[float]:
    """What each point takes behind the first ones, which load everything; collections then leave it alone, as in workers."""
    taken: list[float] = []
    for number, each in enumerate(points):
        started = time.process_time()
        found = evaluate(each)
        taken.append(time.process_time() - started)
        assert found.answered, found.error
        if number + 1 == WARM:
            kept_for_good()
    return taken[WARM:]


def unit() -> float:
    """CPU seconds of a fixed piece of Python, by which a busy machine can be told from an idle one."""
    started = time.process_time()
    total = 0
    for number in range(300_000):
        total += number * number
    return time.process_time() - started


def main() -> None:
    """Prints milliseconds of CPU time a point: the median, and the least, which other programs disturb least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20, help="of one axis")
    parser.add_argument("--side", type=int, default=8, help="values of each axis of a grid")
    parser.add_argument("--only", help="a model")
    asked = parser.parse_args()
    print(f"300,000 turns of a loop in Python: {1e3 * min(unit() for _ in range(9)):.1f} ms")
    for job in JOBS:
        if asked.only not in (None, job[0]):
            continue
        keys = [key for key in CHANGES if job[1] != "h100-sxm" or key == "memory.bandwidth"]
        for key in keys:
            taken = cpu_seconds(point(job, number, {key: number}) for number in range(WARM + asked.points))
            milliseconds = [1e3 * seconds for seconds in taken]
            told = f"{statistics.median(milliseconds):.1f} ms, least {min(milliseconds):.1f} ms"
            print(f"{job[0]} {job[2]}, {key}: {told}", flush=True)
        if len(keys) > 1:
            # Other values than those of the axes; all of its points count, those that find nothing kept, too.
            places = [range(1000, 1000 + asked.side)] * len(keys)
            grid = (dict(zip(keys, at, strict=True)) for at in itertools.product(*places))
            warm = ({key: -1 - number for key in keys} for number in range(WARM))
            taken = cpu_seconds(point(job, number, at) for number, at in enumerate(itertools.chain(warm, grid)))
            told = f"{1e3 * sum(taken) / len(taken):.1f} ms on average"
            print(f"{job[0]} {job[2]}, a grid of {len(taken)} points over all three: {told}", flush=True)


if __name__ == "__main__":
    main()
