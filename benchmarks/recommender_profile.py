"""Profiles whole recommender steps of `embeddings.py` on the GPU that PyTorch finds: every kernel, and the host by phase.

    python benchmarks/recommender_profile.py OUT.jsonl [--seconds 120] [--device cuda]

Cases are those of the half that may be looked at (`half` is `fit`), unlike ones first. A line of JSON each: `host_ms` by
phase of the step while the device is asleep, so that nothing waits for it (the median of eleven); `calls`, how often the
host is asked for which operator; `kernels` of one step with the host ahead, in order: the operator that launched it, the
kernel's name, its grid and block, microseconds, and the shapes of the operator's tensors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from embeddings import Bench, Case, Trained, shrunk, step_cases, tagged, trained


def chosen() -> Iterator[Case]:
    """The cases that may be looked at, those of a kind not yet seen first."""
    seen: Counter[tuple[Any, ...]] = Counter()
    cases = []
    for case in map(tagged, step_cases()):
        if case["half"] == "fit":
            kind = (case["model"], case["tables"], case["precision"])
            cases.append((seen[kind], len(cases), case))
            seen[kind] += 1
    yield from (case for _, _, case in sorted(cases, key=lambda each: each[:2]))


def host_by_phase(bench: Bench, step: Trained) -> dict[str, float]:
    """Milliseconds of the host for every phase, with the device asleep meanwhile."""
    found: dict[str, list[float]] = {}
    for number in range(11):
        if bench.cuda:
            torch.cuda._sleep(60_000_000)
        names, clocks = [], []
        for name in step.phases(number % 2):
            names.append(name)
            clocks.append(time.perf_counter())
        clocks.append(time.perf_counter())
        bench.wait()
        for name, begun, ended in zip(names, clocks, clocks[1:], strict=False):
            found.setdefault(name, []).append(1e3 * (ended - begun))
    return {name: round(statistics.median(each), 4) for name, each in found.items()}


def kernels(bench: Bench, step: Trained) -> dict[str, Any]:
    """What one step launches, with the host ahead."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if bench.cuda else []
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        if bench.cuda:
            torch.cuda._sleep(60_000_000)
        step.once(0)
        bench.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    operators = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    found = []
    for event in sorted(work, key=lambda each: float(each["ts"])):
        args = event["args"]
        caller = operators.get(args.get("External id"), {})
        shapes = caller.get("args", {}).get("Input Dims", [])
        found.append([
            caller.get("name", ""), event["name"][:160], args.get("grid"), args.get("block"), float(event["dur"]), shapes,
        ])  # fmt: skip
    calls = Counter(e["name"] for e in events if e.get("cat") == "cpu_op")
    return {"kernels": found, "calls": dict(calls)}


def main() -> None:
    """Profiles until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    cuda = given.device == "cuda"
    bench = Bench(given.device, 56 * 2**30 if cuda else 2**26)
    with given.out.open("a") as file:
        for case in chosen():
            if time.monotonic() > end:
                break
            row = dict(case)
            try:
                step = trained(bench, case if cuda else shrunk(case))
                for which in (0, 1, 0):
                    step.once(which)
                bench.wait()
                row |= {"host_ms": host_by_phase(bench, step), "step_host_ms": host_in_a_row(bench, step)}
                row |= kernels(bench, step)
            except Exception as error:
                row["error"] = repr(error)[:400]
                if cuda and "illegal" in str(error):
                    raise
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(round(end - time.monotonic()), json.dumps(row)[:300], flush=True)


def host_in_a_row(bench: Bench, step: Trained) -> list[float]:
    """Milliseconds of the host for each of some steps, one after another, with nothing waited for in between."""
    found = []
    for number in range(12):
        begun = time.perf_counter()
        step.once(number % 2)
        found.append(round(1e3 * (time.perf_counter() - begun), 4))
    bench.wait()
    return found


if __name__ == "__main__":
    main()
