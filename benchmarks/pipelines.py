"""`make bench`: pipelines and large meshes: a training step on 131,072 devices from nothing, schedules, rank classes."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from meshcast.base.mesh import Mesh, group_numbers
from meshcast.simulate.classes import refine
from meshcast.simulate.pipelines import SCHEDULES, PartCosts, StepCosts, make_schedule, simulate_pipeline

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "pipeline" / "gpt_175b.toml"
STAGES, MICROBATCHES = 16, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure beside its budget; memory where a process of its own was measured."""

    what: str
    seconds: float
    limit_seconds: float
    peak_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def kept(self) -> bool:
        """Whether the budget is kept."""
        fits = self.peak_bytes is None or self.limit_bytes is None or self.peak_bytes <= self.limit_bytes
        return fits and self.seconds <= self.limit_seconds


def figures(repeats: int) -> Iterator[Figure]:
    """Every figure, as soon as it is measured; the one that looks at its children's memory first."""
    yield training_step(repeats)
    for name in SCHEDULES:
        yield schedule(name)
    yield straggler()


def training_step(repeats: int) -> Figure:
    """TP8 x PP16 x DP1024, GPT of 175 billion parameters: trace, partition, predict, in a process of its own."""
    command = [sys.executable, "-m", "meshcast", "predict", str(EXAMPLE), "--on", "dgx-h100", "--json"]
    best = min(seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(repeats))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    floor = min(
        seconds(lambda: subprocess.run([sys.executable, "-c", "import jax"], check=True)) for _ in range(repeats)
    )
    processor = (used.ru_utime + used.ru_stime) / repeats
    return Figure(
        what=f"training step on 131,072 devices (TP8 x PP16 x DP1024), cold, best of {repeats} "
        f"({best / floor:.1f} x import jax; {processor:.1f} s of processor time)",
        seconds=best,
        limit_seconds=5.0,
        peak_bytes=used.ru_maxrss * 1024,
        limit_bytes=2 * 10**9,
    )


def schedule(name: str) -> Figure:
    """A step of 16 stages and 1,024 microbatches."""
    chunks = 2 if name == "interleaved" else 1
    part = PartCosts(forward_s=1.0, backward_s=1.0, weight_s=1.0, forward_send_s=0.1, backward_send_s=0.1)
    costs = StepCosts(parts=(part,) * (STAGES * chunks))

    def run() -> None:
        simulate_pipeline(make_schedule(name, stages=STAGES, microbatches=MICROBATCHES, chunks=chunks), costs)

    return Figure(
        what=f"{name}, {STAGES} stages x {MICROBATCHES:,} microbatches", seconds=seconds(run), limit_seconds=1.0
    )


def straggler() -> Figure:
    """The classes of 131,072 ranks of which one is slow."""
    mesh = Mesh.of({"pipeline": 16, "data": 1024, "tensor": 8})
    start = np.arange(mesh.size) // (mesh.size // 16) * 2
    start[12345] += 1

    def run() -> None:
        refine(start, [group_numbers(mesh.group([axis]), mesh.size) for axis in ("data", "tensor")])

    return Figure(what="classes of 131,072 ranks, one of them slow", seconds=seconds(run), limit_seconds=1.0)


def seconds(run: Callable[[], object]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Prints the figures for people, or as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for figure in figures(options.repeats):
        if options.json:
            print(json.dumps({**asdict(figure), "kept": figure.kept}), flush=True)
            continue
        memory = f" and {figure.peak_bytes / 1e9:.2f} GB" if figure.peak_bytes is not None else ""
        limit = f" and {figure.limit_bytes / 1e9:.0f} GB" if figure.limit_bytes is not None else ""
        verdict = "" if figure.kept else "  MISSED"
        print(
            f"{figure.what}: {figure.seconds:.2f} s{memory}; budget {figure.limit_seconds:g} s{limit}{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
