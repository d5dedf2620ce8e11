"""Measures products, fused attention and layers of a Llama as PyTorch runs them on the GPU that it finds.

    python benchmarks/torch_kernels.py OUT.jsonl [products] [attention] [step]

One line of JSON per case: its sizes, and for each way of running it milliseconds, SM clock (MHz) and power (W). `burst` is the
median of a few runs after a pause, `sustained` the mean over seconds without one, when the power cap has settled the clock.
`step` rows have the launches of a profile by name. Rows are written as they are done.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
PAUSE_S, SUSTAINED_S, STEP_S = 0.25, 1.0, 8.0


class Meter:
    """SM clock and power, read in a thread as often as the driver answers."""

    def __init__(self) -> None:
        query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits"]
        self.process = subprocess.Popen([*query, "-lms", "50"], stdout=subprocess.PIPE, text=True)
        self.read: list[tuple[float, float, float, float]] = []
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self) -> None:
        """Reads as long as the driver answers."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            clock, watts, degrees = (float(part) for part in line.split(","))
            self.read.append((time.time(), clock, watts, degrees))

    def between(self, start: float, end: float) -> dict[str, float]:
        """Means of the later half: the driver's power is itself a mean over the last tenths of a second."""
        late = [row for row in self.read if (start + end) / 2 < row[0] < end]
        names = ("mhz", "watts", "celsius")
        return {name: round(sum(r[i] for r in late) / len(late), 1) for i, name in enumerate(names, 1)} if late else {}


def timed(run: Callable[[], Any], meter: Meter, seconds: float = SUSTAINED_S) -> dict[str, Any]:
    """Milliseconds of one run: short and cool, then without a pause."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    time.sleep(PAUSE_S)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
    for mark in marks:
        mark.record()
        run()
    torch.cuda.synchronize()
    bursts = sorted(a.elapsed_time(b) for a, b in itertools.pairwise(marks))
    burst = bursts[len(bursts) // 2]
    batch = max(1, int(50 / burst))
    start, runs, first, last = time.time(), 0, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    half = 0
    while (now := time.time()) < start + seconds:
        if not half and now > start + seconds / 2:
            first.record()
            half = 1
        for _ in range(batch):
            run()
        runs += batch * half
        torch.cuda.synchronize()
    last.record()
    torch.cuda.synchronize()
    sustained = first.elapsed_time(last) / max(1, runs)
    return {"burst_ms": round(burst, 5), "sustained_ms": round(sustained, 5), **meter.between(start, time.time())}


def narrow(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Values in a narrow format by their own largest one, and the scale that undoes it."""
    scale = LARGEST[dtype] / torch.amax(torch.abs(x)).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype), scale.reciprocal()


def scaled(a: Any, b: Any, fast: bool) -> torch.Tensor:
    """The product of (rows, scale) and (columns, scale) in bf16."""
    return torch._scaled_mm(a[0], b[0], scale_a=a[1], scale_b=b[1], out_dtype=torch.bfloat16, use_fast_accum=fast)


PRODUCTS = [
    *((n, n, n) for n in (1024, 2048, 4096, 8192, 16384)),
    (16384, 6144, 4096), (16384, 4096, 4096), (16384, 14336, 4096), (16384, 4096, 14336), (16384, 128256, 4096),
    (4096, 14336, 16384), (8192, 28672, 8192), (8192, 10240, 8192), (8192, 8192, 28672), (4096, 53248, 16384),
    (2048, 14336, 4096),
]  # fmt: skip


def products(out: Any, meter: Meter) -> None:
    """bf16 and fp8 by cuBLASLt, both operands K-major; sums in fp32 or in the engine's shorter registers (`fast`)."""
    for m, n, k in PRODUCTS:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        row: dict[str, Any] = {
            "what": "product",
            "m": m,
            "n": n,
            "k": k,
            "bf16": timed(partial(torch.matmul, a, b.t()), meter),
        }
        for name, left, right, fast in (
            ("e4m3-fast", E4M3, E4M3, True),
            ("e4m3", E4M3, E4M3, False),
            ("e5m2", E5M2, E4M3, False),
        ):
            x, w = narrow(a, left), narrow(b, right)
            row[name] = timed(partial(scaled, x, (w[0].t(), w[1]), fast), meter)
        out(row)


ATTENTION = [
    *((b, 32, 8, s, 128, True) for b, s in ((16, 1024), (8, 2048), (4, 4096), (2, 8192), (1, 16384), (1, 32768))),
    *((b, 32, 32, s, 128, False) for b, s in ((8, 2048), (2, 8192))),
    *((b, 16, 16, s, 64, c) for b, s in ((32, 1024), (8, 4096), (2, 16384)) for c in (True, False)),
    (1, 8, 1, 8192, 128, True), (4, 12, 12, 512, 64, True), (2, 64, 8, 8192, 128, True), (4, 32, 32, 2048, 80, True),
]  # fmt: skip


def attention(out: Any, meter: Meter) -> None:
    """FlashAttention-2, which `scaled_dot_product_attention` takes by itself, and cuDNN's kernels; forward and backward."""
    for batch, heads, kv_heads, length, width, causal in ATTENTION:
        row: dict[str, Any] = {"what": "attention", "batch": batch, "heads": heads, "kv_heads": kv_heads}
        row |= {"length": length, "width": width, "causal": causal}
        for name, backend in (("flash2", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
            make = partial(torch.randn, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            q, k, v = (make(batch, length, h, width) for h in (heads, kv_heads, kv_heads))
            x = [each.transpose(1, 2) for each in (q, k, v)]
            try:
                with sdpa_kernel(backend):
                    run = partial(F.scaled_dot_product_attention, *x, is_causal=causal, enable_gqa=heads != kv_heads)
                    y = run()
                    g = torch.randn_like(y)
                    with torch.no_grad():
                        row[f"{name}-forward"] = timed(run, meter, 0.5)
                    back = partial(torch.autograd.grad, y, x, g, retain_graph=True)
                    row[f"{name}-backward"] = timed(back, meter, 0.5)
            except RuntimeError as error:
                row[name] = str(error)[:200]
        out(row)


class Narrow(torch.autograd.Function):
    """A product in fp8 with the scale of the values themselves: inputs in E4M3, gradients in E5M2."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """`x w^T`."""
        ctx.save_for_backward(x, w)
        nx, nw = narrow(x, E4M3), narrow(w, E4M3)
        return scaled(nx, (nw[0].t(), nw[1]), True)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Both gradients; every operand in the order that its product wants."""
        x, w = ctx.saved_tensors
        nx, nw, ng = narrow(x, E4M3), narrow(w, E4M3), narrow(gradient, E5M2)
        dx = scaled(ng, (nw[0].t().contiguous().t(), nw[1]), False)
        dw = scaled((ng[0].t().contiguous(), ng[1]), (nx[0].t().contiguous().t(), nx[1]), False)
        return dx, dw


class Block(torch.nn.Module):
    """A layer of Llama-3-8B."""

    def __init__(self, fp8: bool) -> None:
        super().__init__()
        sizes = {"q": (4096, 4096), "k": (1024, 4096), "v": (1024, 4096), "o": (4096, 4096)}
        sizes |= {"gate": (14336, 4096), "up": (14336, 4096), "down": (4096, 14336)}
        self.w = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.randn(*s) * 0.02) for n, s in sizes.items()})
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(4096, eps=1e-5) for _ in range(2))
        self.fp8 = fp8

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """A product with one of the weights."""
        w = self.w[name]
        return Narrow.apply(x.flatten(0, 1), w).view(*x.shape[:-1], -1) if self.fp8 else F.linear(x, w)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """The layer as torchtitan writes it: heads of keys repeated, rotations as complex numbers."""
        batch, length, _ = x.shape
        h = self.norms[0](x)
        q, k, v = (self.linear(h, n).view(batch, length, -1, 128) for n in "qkv")
        q, k = (
            torch.view_as_real(torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2)) * rotation)
            .flatten(3)
            .type_as(t)
            for t in (q, k)
        )
        k, v = (t[:, :, :, None, :].expand(batch, length, 8, 4, 128).reshape(batch, length, 32, 128) for t in (k, v))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.linear(y.transpose(1, 2).reshape(batch, length, -1), "o")
        h = self.norms[1](x)
        return x + self.linear(F.silu(self.linear(h, "gate")) * self.linear(h, "up"), "down")


def every_second_product() -> Any:
    """Keeps attention and every second product, as torchtitan's selective checkpointing by ops does."""
    counts: dict[bool, int] = defaultdict(int)
    kept = {
        torch.ops.aten.mm.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten.max.default,
    }

    def policy(ctx: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        product = op == torch.ops.aten.mm.default
        counts[ctx.is_recompute] += product
        keep = op in kept and not (product and counts[ctx.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def layer(block: Block, rotation: torch.Tensor, selective: bool, y: torch.Tensor) -> torch.Tensor:
    """A layer, with what it keeps for its backward pass."""
    if not selective:
        return block(y, rotation)
    return checkpoint(
        block, y, rotation, use_reentrant=False, preserve_rng_state=False, context_fn=every_second_product
    )


def pass_through(
    runs: list[Callable[[torch.Tensor], torch.Tensor]], head: torch.nn.Linear, x: torch.Tensor, tokens: torch.Tensor
) -> None:
    """Forward and backward; gradients are dropped."""
    y = x
    for run in runs:
        y = run(y)
    F.cross_entropy(head(y).flatten(0, 1).float(), tokens).backward()


# (name, compiled, in fp8, with selective checkpointing)
STEPS = (
    ("eager", False, False, True),
    ("compile", True, False, True),
    ("compile-fp8", True, True, True),
    ("compile-keep", True, False, False),
    ("compile-fp8-keep", True, True, False),
)


def step(out: Any, meter: Meter) -> None:
    """Four layers and the head of Llama-3-8B at 2 x 8192 tokens, forward and backward."""
    angles = torch.outer(torch.arange(8192), 500000 ** -(torch.arange(64) / 64))
    rotation = torch.polar(torch.ones_like(angles), angles)[None, :, None, :].cuda()
    tokens = torch.randint(0, 128256, (16384,), device="cuda")
    x = torch.randn(2, 8192, 4096, device="cuda", dtype=torch.bfloat16)
    for name, compiled, fp8, selective in STEPS:
        torch._dynamo.reset()
        blocks = [Block(fp8).bfloat16().cuda() for _ in range(4)]
        head = torch.nn.Linear(4096, 128256, bias=False).bfloat16().cuda()
        wrapped = torch.compile(layer) if compiled else layer
        once = partial(
            pass_through, [partial(wrapped, block, rotation, selective) for block in blocks], head, x, tokens
        )
        row: dict[str, Any] = {"what": "step", "name": name}
        try:
            row |= timed(partial(without_gradients, once, [*blocks, head]), meter, STEP_S)
            row["kernels"] = launches(once)
        except RuntimeError as error:  # a version of PyTorch may lack a way; the others still count
            row["error"] = repr(error)[:600]
        out(row)
        del blocks, head, once
        torch.cuda.empty_cache()


def without_gradients(run: Callable[[], None], modules: list[torch.nn.Module]) -> None:
    """A run whose gradients are not added to the last one's."""
    run()
    for module in modules:
        module.zero_grad(set_to_none=True)


def launches(run: Callable[[], None], times: int = 3) -> list[list[Any]]:
    """What a run launches, by name: count and microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(times):
            run()
        torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name[:140]][0] += 1 / times
            found[event.name[:140]][1] += event.self_device_time_total / times
    return sorted(([n, round(c, 2), round(us, 1)] for n, (c, us) in found.items()), key=lambda row: -row[2])


def main() -> None:
    """Runs the parts that are named."""
    path, *parts = sys.argv[1:]
    meter = Meter()
    with Path(path).open("a") as file:

        def out(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(json.dumps({k: v for k, v in row.items() if k != "kernels"}), flush=True)
            for kernel in row.get("kernels", [])[:14]:
                print("   ", kernel, flush=True)

        for part in parts or ("products", "attention", "step"):
            {"products": products, "attention": attention, "step": step}[part](out, meter)
    meter.process.terminate()


if __name__ == "__main__":
    main()
