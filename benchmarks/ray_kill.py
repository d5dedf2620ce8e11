"""A sweep on a Ray cluster of four local nodes, two of which are killed on the way: every point once, with its own value.

    python benchmarks/ray_kill.py [--points 20000]

Needs the extra `ray`. Nodes are processes of this machine; Ray starts its workers with a low priority, which
RAY_worker_niceness=0 changes where other things run beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from meshcast.explore.engines import Engine, engine_named  # noqa: E402
from meshcast.explore.point import Outcome, Point  # noqa: E402
from meshcast.explore.work import SearchWork  # noqa: E402

NODES = 4


def works(count: int) -> Iterator[SearchWork]:
    """Points that differ in the bandwidth of memory."""
    for number in range(count):
        on = f"h100-sxm+memory.bandwidth={3000 + number}GB/s"
        asked = {"on": on, "settings": {"batch": "4"}, "plan": "mbs=2", "fidelity": "roofline"}
        yield SearchWork(kind="point", point=Point(number=number, target="gpt2-tiny", asked=asked), family="one")


def main() -> None:
    """Sweeps twice and compares.

    Raises:
        SystemExit: A point is missing, there twice, or has another value.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    count = parser.parse_args().points
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES - 1)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    engine = engine_named("ray", workers=NODES)
    found: dict[int, float | None] = {}
    started, twice = time.perf_counter(), 0
    for number, outcome in engine.answers(works(count)):
        assert isinstance(outcome, Outcome)
        twice += number in found
        found[number] = outcome.step_time_s
        if len(found) in (count // 3, count // 2):
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print(f"a node is killed after {len(found)} points", flush=True)
    spent = time.perf_counter() - started
    engine.close()
    alone: Engine = engine_named("in-process")
    different = [
        number
        for number, outcome in alone.answers(works(count))
        if found.get(number) != getattr(outcome, "step_time_s", 0)
    ]
    print(f"{len(found)} of {count} points in {spent:.1f} s, {twice} twice, {len(different)} with another value")
    ray.shutdown()
    if len(found) != count or twice or different:
        raise SystemExit("the sweeps differ")


if __name__ == "__main__":
    main()
