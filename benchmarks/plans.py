"""`make bench`: large models under plans, from nothing in a process of their own, then with another microbatch and batch."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model under a plan, with two microbatches and two batches."""

    what: str
    model: str
    on: str
    plan: str
    batch: int
    seq: int
    cold_limit_s: float = 15.0
    warm_limit_s: float = 1.0


CASES = (
    Case(
        what="GPT of a trillion parameters on 3,072 A100s (Narayanan 2021)",
        model="megatron-1t",
        on="dgx-a100",
        plan="dp=6,tp=8,pp=64,remat=full",
        batch=3072,
        seq=2048,
    ),
    Case(
        what="Llama 3.1 405B on 16,384 H100s (the layout of Dubey 2024, table 4)",
        model="llama3-405b",
        on="dgx-h100",
        plan="dp=128,tp=8,sp=1,pp=16,vp=8,zero=1,attention=flash,remat=full,layers-per-stage=0+1x126+0",
        batch=4096,
        seq=8192,
    ),
)


def measure(case: Case) -> dict[str, float]:
    """Seconds of the first prediction with everything before it, and of the next with microbatches or batch doubled."""
    start = time.perf_counter()
    import meshcast

    def predicted(microbatch: int, batch: int = case.batch) -> float:
        settings = {"batch": str(batch), "seq": str(case.seq)}
        plan = f"{case.plan},mbs={microbatch}"
        step = meshcast.predict(case.model, on=case.on, plan=plan, settings=settings).step_time_s
        return -1.0 if step is None else step

    step = predicted(1)
    cold = time.perf_counter() - start
    start = time.perf_counter()
    other = predicted(2)
    warm = time.perf_counter() - start
    start = time.perf_counter()
    larger = predicted(1, 2 * case.batch)
    return {
        "step_s": step,
        "other_step_s": other,
        "larger_step_s": larger,
        "cold_s": cold,
        "warm_s": warm,
        "batch_s": time.perf_counter() - start,
    }


def main() -> None:
    """Prints the figures for people, or as JSON lines; `--case N` measures one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(CASES[options.case])))
        return
    for number, case in enumerate(CASES):
        command = [sys.executable, __file__, "--case", str(number)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        if options.json:
            print(json.dumps({"what": case.what, "plan": case.plan, **found}), flush=True)
            continue
        for which, how, limit in (
            ("cold", "cold", case.cold_limit_s),
            ("warm", "another microbatch", case.warm_limit_s),
            ("batch", "another batch", case.warm_limit_s),
        ):
            verdict = "" if found[f"{which}_s"] <= limit else "  MISSED"
            print(f"{case.what}, {how}: {found[f'{which}_s']:.2f} s; budget {limit:g} s{verdict}", flush=True)


if __name__ == "__main__":
    main()
