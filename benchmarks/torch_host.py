"""Measures what PyTorch's host spends on calls, eager and compiled, on the GPU that torch finds.

    python benchmarks/torch_host.py > host.jsonl

Tensors are so small that the device is always done before the host: the wall time of back-to-back runs is the host's. Each line:
`what`, `count` (how many of it are in a run) and `us` (a run, the median of five averages); with `--kernels` also `kernels` of a
run by a profile, after which every launch takes longer (Kineto leaves CUPTI subscribed: 1.4 times an addition). What
one of it takes is the slope over `count`; what a run takes anyway is the rest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

Run = Callable[[], Any]
COUNTS = (4, 32)
WIDTH = 64


def wall_us(run: Run) -> float:
    """Median of five averages over back-to-back runs."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    runs = max(5, min(200, int(0.1 / (time.perf_counter() - start))))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / runs)
    return statistics.median(times) * 1e6


def kernels_of(run: Run) -> int:
    """Launches of a run."""
    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        run()
        torch.cuda.synchronize()
    events = taken.profiler.kineto_results.events()  # type: ignore[union-attr]
    return sum(str(event.device_type()).endswith("CUDA") and event.duration_ns() > 0 for event in events)


class Chain(nn.Module):
    """So many layers one after the other."""

    def __init__(self, layers: list[nn.Module], step: Callable[[nn.Module, Any], Any] | None = None) -> None:
        """Keeps them."""
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.step = step or (lambda layer, x: layer(x))

    def forward(self, x: Any) -> Any:
        """Through all."""
        for layer in self.layers:
            x = self.step(layer, x)
        return x


class Sums(nn.Module):
    """Two sums that no one kernel does."""

    def forward(self, x: Any) -> Any:
        """Down columns and along rows."""
        x = x - x.sum(0, keepdim=True)
        return x - x.sum(1, keepdim=True)


def linear(*, bias: bool, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """A small layer."""
    return nn.Linear(WIDTH, WIDTH, bias=bias, device="cuda", dtype=dtype)


def convolution() -> nn.Module:
    """A small convolution."""
    return nn.Conv2d(32, 32, 3, padding=1, bias=False, device="cuda", dtype=torch.bfloat16)


def eager_calls() -> Iterator[tuple[str, int, Run]]:
    """Calls and views, with and without gradients."""
    x, y = (torch.randn(WIDTH, WIDTH, device="cuda") for _ in range(2))
    weight = torch.randn(WIDTH, WIDTH, device="cuda", requires_grad=True)

    def repeated(step: Callable[[Any], Any], start: Any, count: int, *, grad: bool) -> Run:
        def run() -> Any:
            with torch.set_grad_enabled(grad):
                made = start
                for _ in range(count):
                    made = step(made)
            return made

        return run

    for count in COUNTS:
        yield "eager add", count, repeated(lambda z: z + y, x, count, grad=False)
        yield "eager add with gradients", count, repeated(lambda z: z + y, weight, count, grad=True)
        yield "eager view", count, repeated(lambda z: z.view(WIDTH, WIDTH), x, count, grad=False)
        yield "eager view with gradients", count, repeated(lambda z: z.view(WIDTH, WIDTH), weight, count, grad=True)
        yield "eager product", count, repeated(lambda z: z @ y, x, count, grad=False)
        yield "eager identity module", count, forward(Chain([nn.Identity() for _ in range(count)]), x)


def forward(module: nn.Module, x: Any, *, autocast: bool = False) -> Run:
    """Inference."""

    def run() -> Any:
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            return module(x)

    return run


def backward(module: nn.Module, called: Any, x: Any, *, autocast: bool = False) -> Run:
    """Forward and backward pass."""

    def run() -> Any:
        for each in module.parameters():
            each.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            made = called(x)
        made.sum().backward()
        return made

    return run


def modules() -> Iterator[tuple[str, int, Run]]:
    """Layers, eager and compiled, with parameters of their own or one for all, forward and with gradients."""
    rows = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    images = torch.randn(2, 32, 16, 16, device="cuda", dtype=torch.bfloat16)
    kinds: dict[str, tuple[Callable[[], nn.Module], Any]] = {
        "linear": (lambda: linear(bias=True), rows),
        "convolution": (convolution, images),
        "layer norm": (lambda: nn.LayerNorm(WIDTH, device="cuda", dtype=torch.bfloat16), rows),
    }
    for count in COUNTS:
        for name, (make, x) in kinds.items():
            made = Chain([make() for _ in range(count)])
            yield f"eager {name}", count, forward(made, x)
            yield f"eager {name}, trained", count, backward(made, made, x)
            torch._dynamo.reset()
            compiled = torch.compile(made)
            yield f"compiled {name}", count, forward(compiled, x)
            yield f"compiled {name}, trained", count, backward(made, compiled, x)
        shared = linear(bias=False)
        torch._dynamo.reset()
        yield "compiled linear, one weight", count, forward(torch.compile(Chain([shared] * count)), rows)
        yield "compiled sums", 2 * count, forward(torch.compile(Chain([Sums() for _ in range(count)])), rows.float())
        cast = Chain([linear(bias=False, dtype=torch.float32) for _ in range(count)])
        yield "eager linear, autocast", count, forward(cast, rows.float(), autocast=True)


def optimizers() -> Iterator[tuple[str, int, Run]]:
    """Updates of many small parameters."""
    for count in (16, 64, 256):
        held = [nn.Parameter(torch.randn(WIDTH, device="cuda")) for _ in range(count)]
        for each in held:
            each.grad = torch.randn_like(each)
        yield "AdamW fused", count, torch.optim.AdamW(held, lr=1e-5, fused=True).step
        yield "SGD with momentum", count, torch.optim.SGD(held, lr=1e-5, momentum=0.9).step


def main() -> None:
    """Prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without layers, which compile")
    parser.add_argument("--kernels", action="store_true", help="counts launches, which slows what comes after")
    asked = parser.parse_args()
    for group in (eager_calls, optimizers) if asked.quick else (eager_calls, modules, optimizers):
        for what, count, run in group():
            line: dict[str, Any] = {"what": what, "count": count, "us": round(wall_us(run), 2)}
            line |= {"kernels": kernels_of(run)} if asked.kernels else {}
            print(json.dumps(line | {"torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
