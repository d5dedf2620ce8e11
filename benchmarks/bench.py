"""`make bench`: how long predictions take on this machine, each as a ratio to a floor that no tool could beat.

Floors: the bare `import jax` of a cold process, or parsing the same module with MLIR alone. Figures are medians.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

GROUND_TRUTH = Path(__file__).resolve().parents[2] / "shared" / "groundtruth" / "h200" / "programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure beside its floor and its budget."""

    what: str
    seconds: float
    floor: str
    floor_seconds: float
    budget: str
    limit_seconds: float  # the budget as a number, to mark what misses it

    @property
    def ratio(self) -> float:
        """Our time over the floor's."""
        return self.seconds / self.floor_seconds


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cold(*arguments: str) -> Callable[[], object]:
    """A fresh Python process with these arguments."""
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def training_step(folder: Path) -> Path:
    """GPT-2 small's training step as a StableHLO file."""
    from meshcast import zoo
    from meshcast.programs import capture

    function, arguments, options = zoo.build("gpt2-small", batch=8)
    path = folder / "gpt2-small-train.mlir.gz"
    path.write_bytes(gzip.compress(capture(function, *arguments, name="gpt2", options=options).text.encode()))
    return path


def figures(repeats: int) -> Iterator[Figure]:
    """Every figure, as soon as it is measured."""
    with tempfile.TemporaryDirectory() as name:
        step = training_step(Path(name))
        yield from cold_figures(step, repeats)
        yield from warm_figures(step, repeats)
    yield from large_step_figures(repeats)
    yield partition_figure(repeats)
    yield large_figure()
    if GROUND_TRUTH.is_dir():
        yield many_figure()
    else:
        print("343 programs in one call: skipped, the ground truth is not beside this checkout", file=sys.stderr)


def cold_figures(step: Path, repeats: int) -> Iterator[Figure]:
    """One program in a cold process."""
    floor = median_seconds(cold("-c", "import jax"), repeats)
    ours = median_seconds(cold("-m", "meshcast", "predict", str(step), "--on", "h200", "--json"), repeats)
    yield Figure(
        what="predict one file, cold process",
        seconds=ours,
        floor="import jax",
        floor_seconds=floor,
        budget=f"at most 1 s over the floor (is {ours - floor:+.2f} s)",
        limit_seconds=floor + 1,
    )


def warm_figures(step: Path, repeats: int) -> Iterator[Figure]:
    """One program in a warm process."""
    from meshcast import predict
    from meshcast.jobs.program.lowering import forget_lowered
    from meshcast.programs import mlir

    def afresh() -> None:
        forget_lowered()
        predict(step, on="h200")

    text = gzip.decompress(step.read_bytes()).decode()
    floor = median_seconds(lambda: mlir.parse_module(text, where="floor"), 5 * repeats)
    predict(step, on="h200")
    yield Figure(
        what="predict GPT-2 small's training step, warm process, program not seen before",
        seconds=median_seconds(afresh, 5 * repeats),
        floor="MLIR parse alone",
        floor_seconds=floor,
        budget="50 ms",
        limit_seconds=0.05,
    )
    yield Figure(
        what="predict it again, on any device",
        seconds=median_seconds(lambda: predict(step, on="h200"), 5 * repeats),
        floor="MLIR parse alone",
        floor_seconds=floor,
        budget="50 ms",
        limit_seconds=0.05,
    )


def large_step_figures(repeats: int) -> Iterator[Figure]:
    """GPT-2-XL's training step, captured once, in both fidelities of GPUs."""
    import meshcast
    from meshcast import predict
    from meshcast.jobs.program.lowering import forget_lowered
    from meshcast.programs import mlir

    program = meshcast.load("gpt2-xl")
    text = program.text
    floor = median_seconds(lambda: mlir.parse_module(text, where="floor"), 5 * repeats)
    for fidelity in ("analytical", "profiled"):
        predict(program, on="h200", fidelity=fidelity)

        def afresh(fidelity: str = fidelity) -> None:
            forget_lowered()
            predict(program, on="h200", fidelity=fidelity)

        yield Figure(
            what=f"predict GPT-2-XL's training step, {fidelity}, warm process, lowered anew",
            seconds=median_seconds(afresh, 5 * repeats),
            floor="MLIR parse alone",
            floor_seconds=floor,
            budget="100 ms",
            limit_seconds=0.1,
        )


def partition_figure(repeats: int) -> Figure:
    """Llama-3 8B over 32,768 devices through Shardy."""
    from meshcast import zoo
    from meshcast.partition import partition
    from meshcast.programs import capture, mlir

    mesh = {"data": 64, "fsdp": 64, "tensor": 8}
    function, arguments, options = zoo.build("llama3-8b", mesh=mesh, batch=4096)
    program = capture(function, *arguments, name="llama3-8b", options=options)
    text = program.text
    partition(program)
    return Figure(
        what="partition Llama-3 8B for 32,768 devices",
        seconds=median_seconds(lambda: partition(program), repeats),
        floor="MLIR parse alone",
        floor_seconds=median_seconds(lambda: mlir.parse_module(text, where="floor"), repeats),
        budget="0.5 s",
        limit_seconds=0.5,
    )


def large_figure() -> Figure:
    """Llama-3 405B over 16,384 devices from nothing: capture, partition, predict, in a process of its own."""
    command = [
        sys.executable, "-m", "meshcast", "predict", "llama3-405b", "--on", "dgx-h100",
        "--mesh", "data=16,fsdp=128,tensor=8", "--set", "batch=2048", "--set", "seq=8192", "--json",
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    peak = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 2**20
    return Figure(
        what="Llama-3 405B over 16,384 devices: capture, partition, predict, cold",
        seconds=seconds,
        floor="import jax",
        floor_seconds=median_seconds(cold("-c", "import jax"), 1),
        budget=f"20 s and 4 GB (peak {peak:.2f} GiB)",
        limit_seconds=20.0,
    )


def many_figure() -> Figure:
    """All measured programs in one call."""
    from meshcast.programs import mlir

    paths = sorted(GROUND_TRUTH.glob("*.mlir.gz"))
    texts = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    floor = median_seconds(lambda: [mlir.parse_module(text, where="floor") for text in texts], 1)
    command = ["-m", "meshcast", "predict", *map(str, paths), "--on", "h200", "--json"]
    return Figure(
        what=f"predict {len(paths)} programs in one call",
        seconds=median_seconds(cold(*command), 1),
        floor="MLIR parse alone",
        floor_seconds=floor,
        budget="60 s",
        limit_seconds=60.0,
    )


def main() -> None:
    """Prints the figures for people, or as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    machine = f"{platform.node()}: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if not options.json:
        print(machine)
    for figure in figures(options.repeats):
        if options.json:
            print(json.dumps({"machine": machine, **asdict(figure), "ratio": figure.ratio}), flush=True)
        else:
            verdict = "" if figure.seconds <= figure.limit_seconds else "  MISSED"
            line = (
                f"{figure.what}: {figure.seconds:.3f} s = {figure.ratio:.1f} x {figure.floor}; budget {figure.budget}"
            )
            print(line + verdict, flush=True)


if __name__ == "__main__":
    main()
