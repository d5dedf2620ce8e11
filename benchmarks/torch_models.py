"""Measures steps of PyTorch models on the GPU that torch finds, eager and compiled, as `meshcast validate torch` reads them.

    python benchmarks/torch_models.py FOLDER OUT [--warm 6] [--only NAME ...]

FOLDER has `cases.py` (`CASES`, `build`). OUT gets `measurements.jsonl`, a row for each case and mode as it is done; cases that
have both rows are left out, so that an interrupted run goes on. Every case has a process of its own, which makes the module,
compiles it and waits; `--warm` processes do that at a time, and nothing is timed meanwhile. Then one after the other is asked
for its steps, eager and compiled, and ends: `wall_us` (a loop of steps, host clock), `event_us`, `busy_us`, `kernel_count` and
`kernels` (three profiled steps), `peak_bytes` and `reserved_bytes` of the caching allocator, and `host_us`: the host's time of
each phase of a step whose device is idle when the phase begins (median of 11), which is what it takes to issue the phase
wherever that is fewer launches than a stream holds. A host's pace changes within seconds: `plain_us` is one addition of two
small tensors, timed before and after each loop of steps in the same process, `plain_phase_us` the same around the phases.
Both modes are timed before either is profiled: Kineto leaves CUPTI subscribed (unless `TEARDOWN_CUPTI=1`), which adds 40 % to an
addition in all that follows.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

MODES = ("eager", "compiled")
LOOPS, STEPS, PROFILED, ISSUED = 2, 10, 3, 11
Mark = Callable[[str], None]  # called with the name of a phase when the host has issued it
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


def unmarked(phase: str) -> None:
    """Takes no note."""


def steps_of(cases: ModuleType, name: str) -> dict[str, Callable[..., Any]]:
    """One step of the case, eager and compiled: forward, or forward, backward and optimizer."""
    import torch
    import torch.nn.functional as F

    case = cases.CASES[name]
    module, args, named, targets = cases.build(name, "cuda")
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not case.train:
        optimizer: Any = None
    elif case.optimizer == "sgd":
        optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)

    def infer(called: Any, mark: Mark = unmarked) -> Any:
        with torch.no_grad():
            found = called(*args, **named)
        mark("forward")
        return found

    def train(called: Any, mark: Mark = unmarked) -> Any:
        optimizer.zero_grad(set_to_none=True)
        mark("zero")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.autocast is not None):
            found = called(*args, **named)
            loss = F.cross_entropy(found, *targets) if targets else found
        mark("forward")
        loss.backward()
        mark("backward")
        optimizer.step()
        mark("optimizer")
        return loss

    step = train if case.train else infer
    return {"eager": partial(step, module), "compiled": partial(step, torch.compile(module))}


def issued(step: Callable[..., Any], plain: Callable[[], float]) -> tuple[dict[str, float], float]:
    """Microseconds of the host for each phase, begun with the device idle; and of an addition between the steps."""
    import torch

    spent: dict[str, list[float]] = defaultdict(list)
    paces = []
    began = 0.0

    def mark(phase: str) -> None:
        nonlocal began
        spent[phase].append(time.perf_counter() - began)
        torch.cuda.synchronize()
        began = time.perf_counter()

    for _ in range(ISSUED):
        paces.append(plain())
        torch.cuda.synchronize()
        began = time.perf_counter()
        step(mark)
    found = {phase: round(1e6 * statistics.median(each), 1) for phase, each in spent.items()}
    return found, round(statistics.median(paces), 2)


def timed(step: Callable[..., Any]) -> dict[str, Any]:
    """The figures of one step that no profiler tells, warm."""
    import torch
    from torch_phases import plain_us  # beside this script

    plain = plain_us("cuda")
    began = time.perf_counter()
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    warm_s = time.perf_counter() - began
    plain()
    torch.cuda.reset_peak_memory_stats()
    walls, events, paces = [], [], [plain()]
    for _ in range(LOOPS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        began = time.perf_counter()
        first.record()
        for _ in range(STEPS):
            step()
        last.record()
        torch.cuda.synchronize()
        walls.append(1e6 * (time.perf_counter() - began) / STEPS)
        events.append(1e3 * first.elapsed_time(last) / STEPS)
        paces.append(statistics.median(plain() for _ in range(3)))
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    host_us, phase_pace = issued(step, plain)
    return {
        "wall_us": statistics.mean(walls),
        "wall_loops_us": [round(each, 1) for each in walls],
        "event_us": statistics.mean(events),
        "plain_us": [round(each, 2) for each in paces],
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "host_us": host_us,
        "plain_phase_us": phase_pace,
        "warm_s": round(warm_s, 1),
    }


def profiled(step: Callable[..., Any]) -> dict[str, Any]:
    """The figures of one step that a profiler tells."""
    import torch
    from torch.profiler import ProfilerActivity, profile

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
        "busy_us": busy_ns / 1e3 / PROFILED,
        "kernel_count": len(spans) / PROFILED,
        "kernels": [
            {"kernel": name[:160], "count": len(us) / PROFILED, "us": round(sum(us) / PROFILED, 2)}
            for name, us in longest
        ],
    }


def one(folder: Path, name: str) -> None:
    """Makes and compiles a case, says `ready` and the modes that work, and prints the row of each mode that is asked for."""
    import torch

    works = []
    steps = steps_of(cases_of(folder), name)
    for mode, step in steps.items():
        try:
            for _ in range(2):
                step()
            torch.cuda.synchronize()
            works.append(mode)
        except Exception as error:
            print(f"{name} {mode}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
    torch.cuda.empty_cache()
    print("ready", *works, flush=True)
    times: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        times = times or {mode: timed(steps[mode]) for mode in works}
        row = {"id": name, "mode": line.strip(), **times[line.strip()], **profiled(steps[line.strip()])}
        row |= {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
        print(json.dumps(row), flush=True)


class Waiting:
    """A case's process."""

    def __init__(self, command: list[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._asks, self._answers = self._child.stdin, self._child.stdout

    def line(self, begins: str) -> str:
        """The next line that begins so, empty where the process ended or took more than `CASE_S`."""
        late = threading.Timer(CASE_S, self._child.kill)
        late.start()
        try:
            return next((line.strip() for line in self._answers if line.startswith(begins)), "")
        finally:
            late.cancel()

    def row(self, mode: str) -> str:
        """The row of a mode."""
        try:
            print(mode, file=self._asks, flush=True)
        except BrokenPipeError:
            return ""
        return self.line("{")

    def end(self) -> str:
        """Ends the process; what it said last of errors."""
        self._child.kill()
        self._child.wait()
        self._errors.seek(0)
        return "".join(self._errors.read().splitlines()[-1:])


def main() -> None:
    """Reads the arguments and measures what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--warm", type=int, default=6, help="processes that compile at a time")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        one(asked.folder, asked.one)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "measurements.jsonl"
    done = (
        {(row["id"], row["mode"]) for row in map(json.loads, kept.read_text().splitlines())} if kept.exists() else set()
    )
    names = [
        name
        for name in cases_of(asked.folder).CASES
        if (asked.only is None or name in asked.only) and any((name, mode) not in done for mode in MODES)
    ]

    def ready(name: str) -> tuple[Waiting, list[str]]:
        child = Waiting([sys.executable, __file__, str(asked.folder), str(asked.out), "--one", name])
        return child, child.line("ready").split()[1:]

    with kept.open("a") as rows:
        began = time.perf_counter()
        with ThreadPoolExecutor(asked.warm) as pool:
            children = list(pool.map(ready, names))
        print(f"compiled after {time.perf_counter() - began:.0f} s", flush=True)
        for name, (child, works) in zip(names, children, strict=True):
            for mode in works:
                if (name, mode) not in done and (row := child.row(mode)):
                    rows.write(row + "\n")
                    rows.flush()
                    done.add((name, mode))
                    print(f"{name} {mode}: {json.loads(row)['wall_us']:.0f} us", flush=True)
            said = child.end()
            if any((name, mode) not in done for mode in MODES):
                print(f"{name}: {said}", flush=True)


if __name__ == "__main__":
    main()
