"""Real sweeps by the engine that `meshcast explore` takes: CPU time a point, and what two cores do a second at that.

    python benchmarks/sweeps.py [--only hardware|programs] [--model llama3-8b] [--side 10] [--plans 48]

*Hardware*: grids over the memory's bandwidth, NVLink and the rate between hosts, of one program each, `side` values an axis.
*Programs*: plans of GPT-3 175B on 1,024 H100s, drawn by lot, and then, warm, the same plans on slower networks, for which the
programs of the stages are known; no point comes twice. Everything counts that is used behind the first points: whoever hands
points out, its workers and what these start. What is used up to there (interpreters, JAX, the first program of a worker, a first
point handed out) is told apart. CPU time is taken rather than the clock's: other work beside it would be measured, too.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.explore.asking import explore  # noqa: E402
from meshcast.explore.engines.processes import Processes  # noqa: E402
from meshcast.explore.space import HARDWARE, Space, SpaceAxis  # noqa: E402
from meshcast.explore.store import RunStore  # noqa: E402
from meshcast.explore.work import Answer, SearchWork  # noqa: E402

CORES = 2
GRIDS = (
    ("gpt2-small", "dp=8", {"batch": "64"}),
    ("llama3-8b", "fsdp=8", {"batch": "16"}),
    ("gpt3-175b", "tp=8,sp=1,pp=8,dp=2,remat=full,zero=1", {"batch": "64"}),
)
AXES = (
    ("memory.bandwidth", 3000, "GB/s"),
    ("nvlink.link_bandwidth", 20, "GB/s"),
    ("infiniband.link_bandwidth", 40, "GB/s"),
)
OTHERS = (
    ("compute.cores", 60, " SM"),
    ("compute.clock", 1200, "MHz"),
    ("nvlink.latency", 1, "us"),
    ("infiniband.latency", 3, "us"),
)
NODES = ("8", "16")  # devices of a node
TICKS = os.sysconf("SC_CLK_TCK")


def used_seconds() -> float:
    """CPU seconds of this process and of all that it has started, those that are still there among them."""
    mine = os.times()
    total = mine.user + mine.system + mine.children_user + mine.children_system
    parents: dict[int, int] = {}
    taken: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # has ended by now
            parents[int(entry.name)] = int(fields[1])
            taken[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    inside = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in inside} - inside:
        inside |= more
    return total + sum(taken[pid] for pid in inside - {os.getpid()})


class Watched:
    """Worker processes, with what had been used when the first `warm` works were answered, and `cold` ones by then."""

    def __init__(self, warm: int) -> None:
        self._engine, self._warm = Processes(workers=CORES), warm
        self.cold, self.before, self._warmed = 0, 0.0, not warm

    def warm_up(self, space: Space) -> None:
        """Has every worker predict the first point, so that all have its program, and this process hand it out."""
        point = next(space.points())
        works = [SearchWork(kind="point", point=point)] * CORES  # of no family: each worker gets one
        assert len(list(self._engine.answers(works))) == CORES
        first = Space(model=point.target, asked=point.asked)
        assert explore(first, engine=self._engine, search="exhaustive").tally.evaluated == 1
        self.before = used_seconds()

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come."""
        first = 0
        for found in self._engine.answers(works):
            first += found[0] < self._warm
            self.cold += not self._warmed
            if first == self._warm and not self._warmed:
                self.before, self._warmed = used_seconds(), True
            yield found

    def close(self) -> None:
        """Ends the processes."""
        self._engine.close()


def swept(what: str, space: Space, *, warm: int = 0) -> None:
    """Sweeps a space into a run folder, and tells what a point behind the first `warm` took."""
    engine = Watched(warm)
    started, at_start = time.perf_counter(), used_seconds()
    try:
        engine.warm_up(space)
        with tempfile.TemporaryDirectory(prefix="meshcast-sweep-") as folder:
            store = RunStore.opened(Path(folder) / "run", space, "", resume=False)
            found = explore(space, engine=engine, search="exhaustive", store=store)
            each = (used_seconds() - engine.before) / (found.tally.evaluated - engine.cold)
    finally:
        engine.close()
    print(
        f"{what}: {found.tally.evaluated:,} points, {1e3 * each:.2f} ms of CPU time each: {CORES / each:,.0f} a second on "
        f"{CORES} cores; {engine.before - at_start:.1f} s before that, "
        f"{time.perf_counter() - started:.0f} s by the clock; {found.failed} failed, {found.tally.infeasible} cannot run",
        flush=True,
    )


def hardware(side: int, only: str | None) -> None:
    """Grids of which only the hardware differs, of all models or of one."""
    for model, plan, settings in GRIDS:
        if only not in (None, model):
            continue
        asked = {"on": "dgx-h100", "plan": plan, "settings": settings, "fidelity": "analytical"}
        grids = (AXES[2:], AXES[1:2], AXES[:1], AXES[:2], AXES, *([each] for each in OTHERS), (OTHERS[0], AXES[0]))
        for names in grids:
            count = side if len(names) > 1 else 2 * side * side
            axes = [axis(*each, count) for each in names]
            told = [key.removesuffix(".link_bandwidth").removesuffix(".bandwidth") for key, _, _ in names]
            if names[0] is OTHERS[0] and len(names) > 1:
                axes.insert(0, SpaceAxis(name=f"{HARDWARE}nvlink.size", values=NODES))
                told.insert(0, "nvlink.size")
            swept(f"{model} {plan}, {' x '.join(told)}", Space(model=model, asked=asked, axes=tuple(axes)))


def axis(key: str, first: float, unit: str, count: int) -> SpaceAxis:
    """So many values of a number, up to half as much again; of cores whole ones, one after the other."""
    if "cores" in key:
        values = tuple(f"{first + at}{unit}" for at in range(count))
    else:
        values = tuple(f"{first * (1 + 0.5 * at / count):.4f}{unit}" for at in range(count))
    return SpaceAxis(name=f"{HARDWARE}{key}", values=values)


def programs(count: int) -> None:
    """Plans that differ in their programs, and again, warm, on slower networks."""
    settings = {"batch": "1536", "seq": "2048"}
    asked = {"on": "dgx-h100", "devices": 1024, "fidelity": "analytical", "settings": settings}
    every = [point.plan for point in Space(model="gpt3-175b", asked=asked, plans={}).points()]
    plans = tuple(filter(None, random.Random(18).sample(every, count)))
    for level in ("infiniband", "nvlink"):
        rates = SpaceAxis(name=f"{HARDWARE}{level}.link_bandwidth", values=("1x", "0.9x", "0.8x", "0.7x"))
        space = Space(model="gpt3-175b", asked=asked, axes=(rates, SpaceAxis(name="plan", values=plans)))
        swept(f"{count} plans of gpt3-175b, {level} slower", space, warm=count)


def main() -> None:
    """Prints a line for each sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("hardware", "programs"))
    parser.add_argument("--model", help="of the grids, one of " + ", ".join(model for model, _, _ in GRIDS))
    parser.add_argument("--side", type=int, default=10, help="values of each axis of a grid")
    parser.add_argument("--plans", type=int, default=48)
    asked = parser.parse_args()
    if asked.only != "programs":
        hardware(asked.side, asked.model)
    if asked.only != "hardware":
        programs(asked.plans)


if __name__ == "__main__":
    main()
