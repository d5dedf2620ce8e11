"""CPU time that fidelity `simulated` takes for a kernel on a GPU: `python benchmarks/simulated_kernels.py`, part of `make bench`.

Kernels of training steps and of a sweep of square products, of equal ones one, each asked for alone by a simulator that has seen
none of them before. CPU time and not wall time, and without the collector's pauses, which the programs that were lowered make
long: what else the machine and the process do has little part in it. A first kernel, which pays for what is loaded, is not
counted. Exits with 1 where one takes longer than is promised (docs/gpu-simulator.md).
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import defaultdict

import jax
import jax.numpy as jnp

from meshcast import Options, capture
from meshcast.estimate import load_simulator
from meshcast.estimate.chain import unique_kernels
from meshcast.hardware import resolve
from meshcast.jobs import prepare
from meshcast.lower import Kernel, LoweredProgram

MOST_MS = 20.0
DEVICES = ("a100-sxm-80gb", "h200", "b200")
MODELS = ("gpt2-small", "resnet50", "llama3-8b", "bert-large")
SIDES = tuple(2**power for power in range(5, 15))


def programs(device: str) -> dict[str, LoweredProgram]:
    """The lowered steps and products by name."""
    options = Options(on=device, lowering="modelled")
    found = {model: prepare(model, options).lowered for model in MODELS}
    for side in SIDES:
        square = jax.ShapeDtypeStruct((side, side), jnp.bfloat16)
        product = capture(lambda x, w: x @ w, square, square, name=f"product of {side}")
        found[product.name] = prepare(product, options).lowered
    return found


def milliseconds(kernel: Kernel, device_name: str) -> float | None:
    """CPU time of one kernel, played by a simulator of its own; None where it does not play such kernels."""
    device = resolve(device_name).device
    simulator = load_simulator(None, device)
    if simulator.supports(kernel, device).level == "no":
        return None
    start = time.process_time()
    simulator.estimate([kernel], device)
    return (time.process_time() - start) * 1e3


def main() -> int:
    """Prints a Markdown table; the exit code says whether every kernel keeps the promise."""
    worst = 0.0
    print("| on | kind | kernels | median ms | 99 % ms | worst ms |\n|---|---|---:|---:|---:|---:|")
    counts = []
    for device in DEVICES:
        lowered = programs(device)
        kinds: dict[str, list[float]] = defaultdict(list)
        played = {key: kernel for each in lowered.values() for key, kernel in unique_kernels(each).items()}
        gc.collect()
        gc.disable()
        milliseconds(next(iter(played.values())), device)
        for kernel in played.values():
            taken = milliseconds(kernel, device)
            if taken is not None:
                kinds[kernel.kind.value].append(taken)
                kinds["all"].append(taken)
        gc.enable()
        for kind, taken_ms in sorted(kinds.items(), key=lambda item: (item[0] == "all", item[0])):
            ordered = sorted(taken_ms)
            most = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
            print(
                f"| {device} | {kind} | {len(ordered)} | {statistics.median(ordered):.1f} | {most:.1f} | {ordered[-1]:.1f} |"
            )
        worst = max(worst, *kinds["all"])
        run = sum(
            int(times) for each in lowered.values() for kernel, times in each.schedule.walk() if not kernel.collective
        )
        counts.append(f"{device}: {run} kernels run, {len(played)} are different, and each of these is asked for once.")
    print("\n" + "\n".join(counts))
    print(f"\nworst {worst:.1f} ms, promised {MOST_MS:g} ms")
    return int(worst > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
