"""Measures what PyTorch's host takes to issue calls of many kinds, forward and backward, against a plain call of the same moment.

    python benchmarks/torch_phases.py > phases.jsonl        # on the GPU that torch finds
    python benchmarks/torch_phases.py --quick --device cpu  # tries the script

Tensors are tiny, so that the device is done before the host. A host's pace changes within minutes by more than calls of
different kinds differ, so that every chain of calls is timed in turns with a chain of 32 additions (`plain_us`, of one of
them): `us / plain_us` is what carries over. Each phase begins with the device idle. Lines: `what`, `count` (how many of it a
chain has), `mode`, and for each phase the median of `us` and of its ratio to `plain_us`; `kernels` of a whole run by a profile.
What one of a kind takes is the slope over `count`. Kineto leaves CUPTI subscribed after the first profile: launches of all
lines but the first, additions too, take 3 to 5 us more than in a process without a profiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

COUNTS = (4, 36)
ROUNDS = 15
WIDTH = 64
PLAIN = 32
BF16 = torch.bfloat16
Step = Callable[[Any, Any], Any]  # of a layer and what it is given


class Chain(nn.Module):
    """So many layers one after the other."""

    def __init__(self, layers: list[nn.Module], step: Step) -> None:
        """Keeps them."""
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.step = step

    def forward(self, x: Any) -> Any:
        """Through all."""
        for layer in self.layers:
            x = self.step(layer, x)
        return x


class Held(nn.Module):
    """A parameter, or none."""

    def __init__(self, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        """Makes it."""
        super().__init__()
        self.value = nn.Parameter(torch.ones(shape, dtype=dtype)) if shape else None


def synchronise() -> None:
    """Waits for the device, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def plain_us(device: str) -> Callable[[], float]:
    """A chain of additions; gives the microseconds of one of them."""
    x, y = (torch.randn(WIDTH, WIDTH, device=device) for _ in range(2))

    def run() -> float:
        synchronise()
        began = time.perf_counter()
        with torch.no_grad():
            made = x
            for _ in range(PLAIN):
                made = made + y
        return 1e6 * (time.perf_counter() - began) / PLAIN

    return run


def phases(module: nn.Module, called: Any, x: Any, *, train: bool, cast: bool, device: str) -> dict[str, float]:
    """Microseconds of each phase of one run, begun with the device idle."""
    spent = {}
    if train:
        for each in module.parameters():
            each.grad = None
    synchronise()
    began = time.perf_counter()
    with torch.set_grad_enabled(train), torch.autocast(device, dtype=BF16, enabled=cast):
        made = called(x)
    spent["forward"] = 1e6 * (time.perf_counter() - began)
    if train:
        loss = made.sum()
        synchronise()
        began = time.perf_counter()
        loss.backward()
        spent["backward"] = 1e6 * (time.perf_counter() - began)
    return spent


def kernels_of(run: Callable[[], Any]) -> int:
    """Launches of a run."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        run()
        synchronise()
    events = taken.profiler.kineto_results.events()  # type: ignore[union-attr]
    return sum(str(event.device_type()).endswith("CUDA") and event.duration_ns() > 0 for event in events)


def kinds(device: str) -> dict[str, tuple[Callable[[], nn.Module], Step, Any, bool]]:
    """By name: a layer, how it is called, what on, and whether under autocast."""
    rows = torch.randn(WIDTH, WIDTH, device=device, dtype=BF16)
    whole = rows.float()
    images = torch.randn(2, 32, 16, 16, device=device, dtype=BF16)
    heads = torch.randn(1, 2, 64, 64, device=device, dtype=BF16)

    def layer(_: nn.Module, x: Any) -> Any:
        return _(x)

    def normed(held: Any, x: Any) -> Any:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return held.value * wide.to(x.dtype)

    def fan(held: Any, x: Any) -> Any:
        return x + held.value

    return {
        "identity module": (nn.Identity, layer, rows, False),
        "scale": (Held, lambda _, x: x * 1.5, whole.requires_grad_(), False),
        "weight": (lambda: Held(WIDTH), fan, whole, False),
        "view": (Held, lambda _, x: x.view(WIDTH, WIDTH), whole, False),
        "transpose": (Held, lambda _, x: x.transpose(0, 1), whole, False),
        "gelu": (Held, lambda _, x: F.gelu(x), whole, False),
        "softmax": (Held, lambda _, x: x.softmax(-1), whole, False),
        "cast": (Held, lambda _, x: x.to(BF16).to(torch.float32), whole, False),
        "join": (Held, lambda _, x: torch.cat((x, x), -1)[:, :WIDTH], whole, False),
        "linear": (lambda: nn.Linear(WIDTH, WIDTH, bias=False, dtype=BF16), layer, rows, False),
        "linear with bias": (lambda: nn.Linear(WIDTH, WIDTH, dtype=BF16), layer, rows, False),
        "linear, autocast": (lambda: nn.Linear(WIDTH, WIDTH), layer, whole, True),
        "layer norm": (lambda: nn.LayerNorm(WIDTH, dtype=BF16), layer, rows, False),
        "layer norm, autocast": (lambda: nn.LayerNorm(WIDTH), layer, whole, True),
        "rms norm": (lambda: Held(WIDTH, dtype=BF16), normed, rows, False),
        "attention": (Held, lambda _, x: F.scaled_dot_product_attention(x, x, x), heads.requires_grad_(), False),
        "convolution": (lambda: nn.Conv2d(32, 32, 3, padding=1, bias=False, dtype=BF16), layer, images, False),
        "batch norm": (lambda: nn.BatchNorm2d(32, dtype=BF16), layer, images, False),
        "dropout": (lambda: nn.Dropout(0.1), layer, whole, False),
    }


COMPILED = ("weight", "linear", "linear with bias", "attention", "convolution", "rms norm", "batch norm")


def lines(device: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """A line for each kind, count and way to run it."""
    plain = plain_us(device)
    for _ in range(20):
        plain()
    for compiled in (False, True):
        for what, (make, step, x, cast) in kinds(device).items():
            if compiled and (quick or what not in COMPILED):
                continue
            for train in (False, True):
                for count in COUNTS:
                    try:
                        yield line(what, make, step, x, cast, count, train, compiled, device, plain)
                    except Exception as error:
                        print(f"{what}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)


def line(
    what: str, make: Callable[[], nn.Module], step: Step, x: Any, cast: bool, count: int, train: bool, compiled: bool,
    device: str, plain: Callable[[], float],
) -> dict[str, Any]:  # fmt: skip
    """The figures of one chain."""
    with torch.device(device):
        module = Chain([make() for _ in range(count)], step)
    module.train(train)
    torch._dynamo.reset()
    called = torch.compile(module) if compiled else module

    def run() -> dict[str, float]:
        return phases(module, called, x, train=train, cast=cast, device=device)

    for _ in range(4):
        run()
    found: dict[str, list[float]] = {"plain": []}
    for _ in range(ROUNDS):
        before = plain()
        for phase, us in run().items():
            found.setdefault(phase, []).append(us)
        found["plain"].append((before + plain()) / 2)
    made: dict[str, Any] = {"what": what, "count": count, "mode": "compiled" if compiled else "eager", "train": train}
    made["plain_us"] = round(statistics.median(found["plain"]), 2)
    for phase in ("forward", "backward"):
        if phase in found:
            ratios = [us / each for us, each in zip(found[phase], found["plain"], strict=True)]
            made[phase] = {
                "us": round(statistics.median(found[phase]), 1),
                "plain": round(statistics.median(ratios), 2),
            }
    return made | {"kernels": kernels_of(run) if device == "cuda" else 0, "torch": torch.__version__}


def main() -> None:
    """Prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="nothing that compiles")
    asked = parser.parse_args()
    for each in lines(asked.device, quick=asked.quick):
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()
