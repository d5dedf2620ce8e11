"""CPU time of points of which only the hardware differs, warm, in one process: the figures of `docs/exploring.md`.

python benchmarks/points.py [--points 20]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.explore.evaluating import evaluate  # noqa: E402
from meshcast.explore.point import Point  # noqa: E402

JOBS = (
    ("gpt2-tiny", "h100-sxm", "mbs=2", {"batch": "4"}),
    ("gpt2-small", "dgx-h100", "dp=8", {"batch": "64"}),
    ("llama3-8b", "dgx-h100", "fsdp=8", {"batch": "16"}),
    ("gpt3-175b", "dgx-h100", "tp=8,sp=1,pp=8,dp=2,remat=full,zero=1", {"batch": "64"}),
)
CHANGES = {"memory.bandwidth": "{:.1f}GB/s", "nvlink.link_bandwidth": "{:.3f}GB/s"}
FIRST = {"memory.bandwidth": 3000.0, "nvlink.link_bandwidth": 20.0}
WARM = 2


def main() -> None:
    """Prints milliseconds of CPU time a point: the median, and the least, which other programs disturb least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20)
    count = parser.parse_args().points
    for model, on, plan, settings in JOBS:
        for key, text in CHANGES.items():
            taken: list[float] = []
            for number in range(WARM + count):
                changed = f"{on}+{key}={text.format(FIRST[key] * (1 + 0.002 * number))}"
                asked = {"on": changed, "plan": plan, "settings": settings, "fidelity": "analytical"}
                started = time.process_time()
                found = evaluate(Point(number=number, target=model, asked=asked))
                taken.append(time.process_time() - started)
                assert found.answered, found.error
            warm = [1e3 * seconds for seconds in taken[WARM:]]
            print(f"{model} {plan}, {key}: {statistics.median(warm):.1f} ms, least {min(warm):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
