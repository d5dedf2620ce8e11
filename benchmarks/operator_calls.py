"""What operators take the host beside each other: PyTorch on a CPU, with tensors of a few elements that compute next to nothing.

python benchmarks/operator_calls.py      # needs torch, and no GPU

Prints CPU microseconds of a call, the least of some rounds, and how many calls of `mul` and how many views that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

ROUNDS, CALLS = 15, 200


def micros(call: Callable[[], object]) -> float:
    """CPU microseconds of a call."""
    least = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time_ns()
        for _ in range(CALLS):
            call()
        least = min(least, (time.process_time_ns() - begun) / CALLS / 1e3)
    return least


def main() -> None:
    """Prints a line an operator."""
    torch.set_num_threads(1)
    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
    deep = torch.ones(2, 5, 5, requires_grad=True)
    first, second = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3])
    calls: dict[str, Callable[[], object]] = {
        "mul": lambda: x * w, "view": lambda: x.view(16), "mm": lambda: torch.mm(x, w), "bmm": lambda: torch.bmm(deep, deep),
        "relu": lambda: torch.relu(x), "cat of 2": lambda: torch.cat([x, x], 1), "cat of 27": lambda: torch.cat([x] * 27, 1),
        "index": lambda: deep[:, first, second], "to": lambda: x.to(torch.bfloat16), "sum": lambda: x.sum(0),
    }  # fmt: skip
    found = {name: micros(call) for name, call in calls.items()}
    with torch.no_grad():
        found["mul, not recorded"] = micros(calls["mul"])
    print("| operator | us | of mul | views |\n|---|---:|---:|---:|")
    for name, each in found.items():
        print(f"| {name} | {each:.2f} | {each / found['mul']:.2f} | {each / found['view']:.2f} |")


if __name__ == "__main__":
    main()
