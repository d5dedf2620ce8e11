"""Measures steps of PyTorch models on the GPU that torch finds, eager and compiled, as `meshcast validate torch` reads them.

    python benchmarks/torch_models.py FOLDER OUT [--warm 6] [--only NAME ...]

FOLDER has `cases.py` (`CASES`, `build`). OUT gets `measurements.jsonl`, a row for each case and mode as it is done; rows that are
there are left out, so that an interrupted run goes on. Every case has a process of its own. First `--warm` processes at a time
compile (Inductor keeps on disk what it makes); nothing is timed meanwhile. Then one case after the other is measured:
`wall_us` (a loop of steps, host clock), `event_us`, `busy_us`, `kernel_count` and `kernels` (three profiled steps), `peak_bytes`
and `reserved_bytes` of the caching allocator.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

STEPS, PROFILED = 20, 3
CASE_S = 240.0  # that one case may take in one stage


def cases_of(folder: Path) -> ModuleType:
    """The folder's cases.py."""
    found = importlib.util.spec_from_file_location("cases", folder / "cases.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["cases"] = module
    found.loader.exec_module(module)
    return module


def step_of(cases: ModuleType, name: str, *, compiled: bool) -> Callable[[], Any]:
    """One step of the case: forward, or forward, backward and optimizer."""
    import torch
    import torch.nn.functional as F

    case = cases.CASES[name]
    module, args, named, targets = cases.build(name, "cuda")
    called = torch.compile(module) if compiled else module
    if not case.train:

        def infer() -> Any:
            with torch.no_grad():
                return called(*args, **named)

        return infer
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if case.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.autocast is not None):
            found = called(*args, **named)
            loss = F.cross_entropy(found, *targets) if targets else found
        loss.backward()
        optimizer.step()
        return loss

    return train


def measured(step: Callable[[], Any]) -> dict[str, Any]:
    """The figures of one step, warm."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    began = time.perf_counter()
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    warm_s = time.perf_counter() - began
    torch.cuda.reset_peak_memory_stats()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    first.record()
    for _ in range(STEPS):
        step()
    last.record()
    torch.cuda.synchronize()
    wall_s = time.perf_counter() - began
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    by_name: dict[str, list[float]] = defaultdict(list)
    spans = []
    for event in taken.profiler.kineto_results.events():  # type: ignore[union-attr]
        if str(event.device_type()).endswith("CUDA") and event.duration_ns() > 0:
            by_name[event.name()].append(event.duration_ns() / 1e3)
            spans.append((event.start_ns(), event.start_ns() + event.duration_ns()))
    busy_ns, end = 0, 0
    for start, stop in sorted(spans):
        busy_ns += max(0, stop - max(start, end))
        end = max(end, stop)
    longest = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:80]
    return {
        "wall_us": 1e6 * wall_s / STEPS,
        "event_us": 1e3 * first.elapsed_time(last) / STEPS,
        "busy_us": busy_ns / 1e3 / PROFILED,
        "kernel_count": len(spans) / PROFILED,
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "warm_s": round(warm_s, 1),
        "kernels": [
            {"kernel": name[:160], "count": len(us) / PROFILED, "us": round(sum(us) / PROFILED, 2)}
            for name, us in longest
        ],
    }


def one(folder: Path, name: str, mode: str, *, warm: bool) -> None:
    """Measures or only compiles one case, and prints its row."""
    import torch

    step = step_of(cases_of(folder), name, compiled=mode == "compiled")
    if warm:
        for _ in range(2):
            step()
        torch.cuda.synchronize()
        return
    row = {
        "id": name,
        "mode": mode,
        **measured(step),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
    }
    print(json.dumps(row))


def main() -> None:
    """Reads the arguments and measures what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--warm", type=int, default=6, help="processes that compile at a time")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, mode, stage = asked.one
        one(asked.folder, name, mode, warm=stage == "warm")
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "measurements.jsonl"
    done = (
        {(row["id"], row["mode"]) for row in map(json.loads, kept.read_text().splitlines())} if kept.exists() else set()
    )
    names = [name for name in cases_of(asked.folder).CASES if asked.only is None or name in asked.only]

    def child(name: str, mode: str, stage: str) -> str:
        command = [sys.executable, __file__, str(asked.folder), str(asked.out), "--one", name, mode, stage]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=CASE_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"{name} {mode} {stage}: more than {CASE_S:.0f} s", flush=True)
            return ""
        if found.returncode:
            print(f"{name} {mode} {stage}: {found.stderr.strip().splitlines()[-1:]}", flush=True)
            return ""
        return found.stdout

    with kept.open("a") as rows:
        began = time.perf_counter()
        with ThreadPoolExecutor(asked.warm) as pool:
            list(
                pool.map(lambda name: child(name, "compiled", "warm") if (name, "compiled") not in done else "", names)
            )
        print(f"compiled after {time.perf_counter() - began:.0f} s", flush=True)
        for mode in ("eager", "compiled"):
            for name in names:
                if (name, mode) in done:
                    continue
                if row := child(name, mode, "measure").strip():
                    rows.write(row.splitlines()[-1] + "\n")
                    rows.flush()
                    print(f"{name} {mode}: {json.loads(row.splitlines()[-1])['wall_us']:.0f} us", flush=True)


if __name__ == "__main__":
    main()
