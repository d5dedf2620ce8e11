"""Measures whole recommender steps of `embeddings.py` again, with the host's speed beside each, on the GPU that PyTorch finds.

    python benchmarks/recommender_host.py OUT.jsonl [--seconds 190] [--device cuda] [--rounds 3] [--steps 24]

Eager steps of small batches take as long as the host needs to issue them, and a host is not equally fast from one minute to
the next. So every case is measured in rounds, before and after each of which a reference step is: a small training step of
dense layers whose kernels are next to nothing, and which makes the same calls whatever the case. `rounds` has, for each, the
reference's milliseconds before and after (`before`, `after`), and of the case `step` (one after another) and `host`, medians;
`step_ms`, `host_ms`, `probe_ms` are the medians of all rounds, `queued_ms` the step with the host ahead. A host changes its pace
within tenths of a second too: more and shorter rounds (`--rounds 10 --steps 8`) have the reference nearer to the steps. Of every
round the first sixth is left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from embeddings import Bench, Case, Trained, dense_layers, shrunk, step_cases, tagged, trained

LEFT_OUT = 6  # a first part in so many of a round's steps, in which the host is not ahead yet


def reference(bench: Bench) -> Callable[[], None]:
    """A training step of four dense layers on 64 samples, Adagrad over lists."""
    layers = dense_layers([13, 512, 256, 128, 1], last=False).to(bench.device)
    optimizer = torch.optim.Adagrad(layers.parameters(), lr=1e-4)
    x = torch.randn(64, 13, device=bench.device)
    labels = torch.randint(0, 2, (64,), device=bench.device).float()

    def once() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(layers(x).squeeze(1), labels).backward()
        optimizer.step()

    return once


def probed(bench: Bench, once: Callable[[], None], count: int) -> float:
    """Milliseconds of one reference step, the median."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        once()
        found.append(1e3 * (time.perf_counter() - begun))
    bench.wait()
    return statistics.median(found[count // LEFT_OUT :])


def one_round(bench: Bench, step: Trained, count: int) -> dict[str, float]:
    """Milliseconds of a step among steps one after another, and of the host."""
    marks, hosts = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)], []
    marks[0].record()
    for number, mark in enumerate(marks[1:]):
        begun = time.perf_counter()
        step.once(number % 2)
        hosts.append(1e3 * (time.perf_counter() - begun))
        mark.record()
    bench.wait()
    steps = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    first = count // LEFT_OUT
    return {"step": statistics.median(steps[first:]), "host": statistics.median(hosts[first:])}


def queued(bench: Bench, step: Trained) -> float:
    """Milliseconds of a step with the host ahead."""
    found = []
    for number in range(3):
        torch.cuda._sleep(60_000_000)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step.once(number % 2)
        end.record()
        bench.wait()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def measured(bench: Bench, case: Case, probe: Callable[[], None], rounds_asked: int, steps: int) -> Case:
    """A row: so many rounds of so many steps, and as many of the reference before and after each."""
    row = dict(case)
    step = trained(bench, case if bench.cuda else shrunk(case))
    for which in (0, 1, 0):
        step.once(which)
    bench.wait()
    if not bench.cuda:
        return row | {"probe_ms": probed(bench, probe, steps)}
    rounds: list[dict[str, Any]] = []
    for _ in range(rounds_asked):
        before = probed(bench, probe, steps)
        rounds.append({"before": before, **one_round(bench, step, steps), "after": probed(bench, probe, steps)})
    every = [each[name] for each in rounds for name in ("before", "after")]
    return row | {
        "step_ms": statistics.median(each["step"] for each in rounds),
        "host_ms": statistics.median(each["host"] for each in rounds),
        "probe_ms": statistics.median(every),
        "queued_ms": queued(bench, step),
        "rounds": rounds,
    }


def main() -> None:
    """Measures until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=190)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    cuda = given.device == "cuda"
    bench = Bench(given.device, 56 * 2**30 if cuda else 2**26)
    probe = reference(bench)
    for _ in range(5):
        probe()
    with given.out.open("a") as file:
        for case in map(tagged, step_cases()):
            if time.monotonic() > end:
                break
            try:
                row = measured(bench, case, probe, given.rounds, given.steps)
            except Exception as error:
                row = {**case, "error": repr(error)[:400]}
                if cuda and "illegal" in str(error):
                    raise
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(round(end - time.monotonic()), json.dumps(row)[:200], flush=True)


if __name__ == "__main__":
    main()
