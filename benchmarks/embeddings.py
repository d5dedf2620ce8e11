"""Measures embedding tables on the GPU that PyTorch finds: pooled look-ups, their exact fused update, whole recommender steps.

    python benchmarks/embeddings.py OUT.jsonl [--seconds 400] [--device cuda]

One line of JSON per case, written as it is done. Cases come in a random order that is always the same, so that whatever was
measured when time ran out is a spread over the whole grid. `half` says which half a case belongs to by a hash of its settings:
parameters are fitted on `fit`, errors stated on `apart`.

A `tables` row has milliseconds by way and phase: `batched` is the table-batched kernels of `embedding_kernels.py` (`forward`;
`linear`, `sort`, `runs`, `update`, and all four as `backward`), `bag` torch's `embedding_bag` with sparse gradients and its
Adagrad. Before each run L2 is filled with other data and the device made to wait, so that the host is ahead and kernels stand
back to back; `warm` repeats a look-up at once. A `step` row is a whole training step: `step_ms` one after another, `queued_ms`
with the host ahead, `host_ms` of the host.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

try:
    from embedding_kernels import LONG, Batched
except ImportError:
    Batched = None  # type: ignore[assignment, misc]

Case = dict[str, Any]
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SPREADER = 2654435761  # a prime: ranks times it, modulo the rows, puts the frequent rows all over a table
LONGEST_S = 2.0  # of one case

# Rows of Criteo Terabyte's 26 tables, as facebookresearch/dlrm lists them for --max-ind-range=40000000 (bench/run_and_time.sh,
# torchrec_dlrm/README.MD), and the pooling factors that MLPerf's multi-hot variant gives them.
CRITEO = [
    40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14,
    40000000, 40000000, 40000000, 590152, 12973, 108, 36,
]  # fmt: skip
MULTI_HOT = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]


class Bench:
    """The device, its buffers, and how runs are timed."""

    def __init__(self, device: str, table_bytes: int) -> None:
        self.device, self.cuda = device, device == "cuda"
        self.pool = torch.empty(table_bytes // 4, dtype=torch.float32, device=device)
        for part in self.pool.split(2**28):
            part.normal_(0, 0.01)
        self.states = torch.full((table_bytes // 16,), 0.1, device=device)
        self.other = torch.zeros(2**26 if self.cuda else 1, device=device)
        self.draw = torch.Generator(device=device).manual_seed(7)

    def wait(self) -> None:
        """Until the device is done."""
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, phases: list[tuple[str, Callable[[], Any]]], *, cold: bool = True) -> dict[str, Any]:
        """Median milliseconds of each phase, run in turn with the host ahead, and of the host for all of them."""
        for _, run in phases:
            run()
        self.wait()
        found: list[list[float]] = []
        hosts: list[float] = []
        begun = time.perf_counter()
        while len(found) < 9 and (len(found) < 3 or time.perf_counter() - begun < LONGEST_S / 8):
            took = []
            if self.cuda:
                torch.cuda._sleep(1_500_000)
                if cold:
                    self.other.sum()
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(phases) + 1)]
                start = time.perf_counter()
                marks[0].record()
                for mark, (_, run) in zip(marks[1:], phases, strict=True):
                    run()
                    mark.record()
                hosts.append(1e3 * (time.perf_counter() - start))
                self.wait()
                took = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
            else:
                for _, run in phases:
                    start = time.perf_counter()
                    run()
                    took.append(1e3 * (time.perf_counter() - start))
                hosts.append(sum(took))
            found.append(took)
        medians = {
            name: round(statistics.median(t), 5) for (name, _), t in zip(phases, zip(*found, strict=True), strict=True)
        }
        return medians | {"host": round(statistics.median(hosts), 5), "repeats": len(found)}

    def ranks(self, rows: int, skew: float, count: int) -> torch.Tensor:
        """Indices by a Zipf distribution over all rows, the frequent ones spread over the table."""
        if not skew:
            return torch.randint(0, rows, (count,), device=self.device, generator=self.draw)
        weights = torch.arange(1, rows + 1, device=self.device, dtype=torch.float64).pow_(-skew)
        edges = weights.cumsum_(0)
        at = torch.rand(count, device=self.device, dtype=torch.float64, generator=self.draw) * edges[-1]
        return (torch.searchsorted(edges, at).clamp_(max=rows - 1) * SPREADER) % rows

    def lengths(self, batch: int, pooling: int, spread: bool) -> torch.Tensor:
        """Indices of each sample: all alike, or anything from none to twice as many."""
        if not spread:
            return torch.full((batch,), pooling, device=self.device)
        return torch.randint(0, 2 * pooling + 1, (batch,), device=self.device, generator=self.draw)

    def look_ups(self, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices and offsets of one batch into all tables."""
        lengths = [self.lengths(case["batch"], pooling, case["spread"]) for pooling in case["pooling"]]
        counts = [int(each.sum()) for each in lengths]
        indices = [self.ranks(rows, case["zipf"], n) for rows, n in zip(case["rows"], counts, strict=True)]
        every = torch.cat(lengths)
        return torch.cat(indices), torch.cat([every.new_zeros(1), every.cumsum(0)])

    def tables(self, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and accumulators of all tables, out of the buffers."""
        rows, dtype = sum(case["rows"]), DTYPES[case["dtype"]]
        return self.pool.view(dtype)[: rows * case["dim"]], self.states[:rows]


def batched(bench: Bench, case: Case) -> dict[str, Any]:
    """The table-batched kernels, and what the indices were."""
    indices, offsets = bench.look_ups(case)
    weights, states = bench.tables(case)
    rows = torch.tensor(case["rows"], device=bench.device)
    tables = Batched(weights, states, rows, case["dim"], case["batch"])
    kept: dict[str, Any] = {}

    def keep(name: str, run: Callable[[], Any]) -> None:
        kept[name] = run()

    keep("gradients", lambda: torch.randn(tables.bags, case["dim"], device=bench.device).to(weights.dtype))
    phases = [
        ("linear", lambda: keep("linear", lambda: tables.linear(indices, offsets))),
        ("sort", lambda: keep("sort", lambda: torch.sort(kept["linear"][0]))),
        ("runs", lambda: keep("runs", lambda: tables.runs(kept["sort"][0]))),
        ("update", lambda: tables.update(kept["gradients"], *kept["sort"], kept["linear"][1], *kept["runs"])),
    ]
    forward = bench.timed([("forward", lambda: tables.forward(indices, offsets))])
    warm = bench.timed([("forward", lambda: tables.forward(indices, offsets))], cold=False)
    split = bench.timed(phases)
    whole = bench.timed([("backward", lambda: tables.backward(kept["gradients"], indices, offsets))])
    different = int(kept["runs"][0][-1])
    lengths = kept["runs"][1][: different + 1].diff()
    return {
        "batched": {"forward": forward["forward"], "forward_host": forward["host"], "warm": warm["forward"]}
        | {name: split[name] for name, _ in phases}
        | {"backward": whole["backward"], "backward_host": whole["host"], "repeats": whole["repeats"]},
        "indices": len(indices),
        "different": different,
        "hottest": int(lengths.max()),
        "long_runs": int((lengths > LONG).sum()),
        "in_long_runs": int(lengths[lengths > LONG].sum()),
    }


def bags(bench: Bench, case: Case) -> dict[str, Any]:
    """Torch's own kernels, a launch and more a table."""
    indices, offsets = bench.look_ups(case)
    weights, _ = bench.tables(case)
    batch, dim = case["batch"], case["dim"]
    tables, inputs, first = [], [], 0
    for number, rows in enumerate(case["rows"]):
        of_table = offsets[number * batch : (number + 1) * batch + 1]
        start, end = int(of_table[0]), int(of_table[-1])
        tables.append(weights[first * dim : (first + rows) * dim].view(rows, dim).requires_grad_())
        inputs.append((indices[start:end].contiguous(), (of_table[:-1] - start).contiguous()))
        first += rows
    look_up = partial(F.embedding_bag, mode="sum", sparse=True)

    def forward() -> list[torch.Tensor]:
        return [look_up(i, table, o) for table, (i, o) in zip(tables, inputs, strict=True)]

    out = forward()
    gradients = [torch.randn_like(each) for each in out]

    def backward() -> None:
        found = torch.autograd.grad(out, tables, gradients, retain_graph=True)
        for table, gradient in zip(tables, found, strict=True):
            table.grad = gradient

    timings = bench.timed([("forward", forward), ("backward", backward)])
    small = sum(case["rows"]) * dim < 2e9
    if small:  # its Adagrad keeps an accumulator an element
        optimizer = torch.optim.Adagrad(tables, lr=1e-6)
        timings |= {"adagrad": bench.timed([("adagrad", optimizer.step)])["adagrad"]}
    return {"bag": timings}


def table_cases(seed: int = 21) -> Iterator[Case]:
    """Random spread of the grid, endless."""
    draw = random.Random(seed)
    powers = [round(10 ** (k / 2)) for k in range(4, 17)]
    while True:
        tables = draw.choice([1, 1, 1, 2, 4, 8, 26, 64, 200])
        dim = draw.choice([16, 32, 64, 128, 256])
        dtype = draw.choice(["float32", "float32", "float16"])
        batch = draw.choice([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
        alike = tables == 1 or draw.random() < 0.5
        rows = [draw.choice(powers)] * tables if alike else [draw.choice(powers[:11]) for _ in range(tables)]
        poolings = [1, 2, 5, 10, 20, 50, 100, 200]
        most = draw.choice(poolings)
        pooling = [most] * tables if alike else [draw.choice([p for p in poolings if p <= most]) for _ in range(tables)]
        size = 4 if dtype == "float32" else 2
        looked_up = batch * sum(pooling)
        fits = sum(rows) * dim * size <= 56e9 and sum(rows) <= 3.5e9 and 512 <= looked_up <= 2e7
        if not fits or looked_up * dim * size > 1.2e10 or batch * tables * dim * size > 6e9:
            continue
        yield {
            "what": "tables", "rows": rows, "dim": dim, "dtype": dtype, "batch": batch, "pooling": pooling,
            "zipf": draw.choice([0.0, 0.0, 0.6, 0.9, 1.05, 1.2]), "spread": draw.random() < 0.3,
        }  # fmt: skip


def step_cases(seed: int = 22) -> Iterator[Case]:
    """Whole steps: DLRM and DCNv2 on Criteo's tables, cut to sizes that fit."""
    draw = random.Random(seed)
    cases = [
        {
            "what": "step",
            "model": model,
            "tables": way,
            "batch": batch,
            "dim": dim,
            "precision": precision,
            "hots": hots,
        }
        for model in ("dlrm", "dcnv2")
        for way in ("batched", "bag")
        for batch in (2048, 8192, 32768)
        for dim in (32, 128)
        for precision in ("float32", "tf32", "bfloat16")
        for hots in ("one", "multi")
        if not (hots == "multi" and way == "bag")
    ]
    draw.shuffle(cases)
    for case in cases:
        yield case | {"most_rows": draw.choice([100_000, 2_000_000, 10_000_000]), "zipf": draw.choice([0.0, 1.05])}


class Cross(torch.nn.Module):
    """DCNv2's cross layers of low rank: `x = x0 * (W (V x) + b) + x`."""

    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.v = torch.nn.ModuleList(torch.nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.w = torch.nn.ModuleList(torch.nn.Linear(rank, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All layers."""
        first = x
        for v, w in zip(self.v, self.w, strict=True):
            x = first * w(v(x)) + x
        return x


class Dots(torch.nn.Module):
    """DLRM's dot products of every pair of features, behind the dense one."""

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.features, self.dim = features, dim
        self.register_buffer("pairs", torch.tril_indices(features, features, offset=-1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, features * dim) in, (B, dim + pairs) out."""
        stacked = x.view(len(x), self.features, self.dim)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return torch.cat([stacked[:, 0], products[:, self.pairs[0], self.pairs[1]]], dim=1)


def dense_layers(widths: list[int], last: bool) -> torch.nn.Sequential:
    """Linear layers with ReLU between them, and after the last one where asked."""
    layers: list[torch.nn.Module] = []
    for number, (n, m) in enumerate(itertools.pairwise(widths)):
        layers += (
            [torch.nn.Linear(n, m), torch.nn.ReLU()] if last or number < len(widths) - 2 else [torch.nn.Linear(n, m)]
        )
    return torch.nn.Sequential(*layers)


class Looked(torch.autograd.Function):
    """Table-batched look-ups whose backward pass updates the tables."""

    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, tables: Any, indices: torch.Tensor, offsets: torch.Tensor
    ) -> torch.Tensor:
        """(bags, dim)."""
        ctx.tables, ctx.inputs = tables, (indices, offsets)
        return tables.forward(indices, offsets)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """No gradient of a table leaves here."""
        ctx.tables.backward(gradient.contiguous(), *ctx.inputs)
        return torch.zeros(1, device=gradient.device), None, None, None


@dataclass
class Trained:
    """One training step, phase by phase; `parameters` are those of its dense part."""

    bench: Bench
    optimizers: list[Any]
    look_up: Callable[[int], torch.Tensor]
    below: Callable[[], torch.Tensor]
    above: Callable[[torch.Tensor], torch.Tensor]
    labels: torch.Tensor
    narrow: bool
    parameters: int

    def phases(self, which: int) -> Iterator[str]:
        """Runs the step with one of two batches; says before each phase what it is."""
        yield "zero"
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.bench.device, dtype=torch.bfloat16, enabled=self.narrow):
            yield "look_up"
            pooled = self.look_up(which)
            yield "dense"
            dense = self.below()
            read = torch.cat([dense[:, None], pooled.to(torch.bfloat16) if self.narrow else pooled], dim=1)
            click = self.above(read.reshape(len(dense), -1))
        yield "loss"
        loss = F.binary_cross_entropy_with_logits(click.squeeze(1).float(), self.labels)
        yield "backward"
        loss.backward()
        yield "optimizer"
        for optimizer in self.optimizers:
            optimizer.step()

    def once(self, which: int) -> None:
        """The whole step."""
        for _ in self.phases(which):
            pass


def trained(bench: Bench, case: Case) -> Trained:
    """One training step: dense part by PyTorch, Adagrad for all."""
    rows = [min(r, case["most_rows"]) for r in CRITEO]
    pooling = MULTI_HOT if case["hots"] == "multi" else [1] * len(rows)
    drawn = case | {"rows": rows, "pooling": pooling, "dtype": "float32", "spread": False}
    batch, dim, features = case["batch"], case["dim"], len(rows) + 1
    inputs = [bench.look_ups(drawn) for _ in range(2)]
    weights, states = bench.tables(drawn)
    bottom = dense_layers([13, 512, 256, dim], last=True).to(bench.device)
    if case["model"] == "dlrm":
        middle: torch.nn.Module = Dots(features, dim).to(bench.device)
        width = dim + features * (features - 1) // 2
    else:
        width = features * dim
        middle = Cross(width, 3, 512).to(bench.device)
    top = dense_layers([width, 1024, 1024, 512, 256, 1], last=False).to(bench.device)
    dense = [*bottom.parameters(), *middle.parameters(), *top.parameters()]
    optimizers = [torch.optim.Adagrad(dense, lr=1e-4)]
    x = torch.randn(batch, 13, device=bench.device)
    labels = torch.randint(0, 2, (batch,), device=bench.device).float()
    if case["tables"] == "batched":
        tables = Batched(weights, states, torch.tensor(rows, device=bench.device), dim, batch)
        anchor = torch.zeros(1, device=bench.device, requires_grad=True)

        def look_up(which: int) -> torch.Tensor:
            pooled = Looked.apply(anchor, tables, *inputs[which])
            return pooled.view(len(rows), batch, dim).transpose(0, 1)
    else:
        starts = [0, *itertools.accumulate(rows)]
        each = [weights[a * dim : b * dim].view(-1, dim).requires_grad_() for a, b in itertools.pairwise(starts)]
        optimizers.append(torch.optim.SGD(each, lr=1e-4))
        ids = [[part.contiguous() for part in i.split(batch)] for i, _ in inputs]
        start = torch.arange(batch, device=bench.device)

        def look_up(which: int) -> torch.Tensor:
            found = [
                F.embedding_bag(i, w, start, mode="sum", sparse=True) for i, w in zip(ids[which], each, strict=True)
            ]
            return torch.stack(found, dim=1)

    narrow = case["precision"] == "bfloat16"
    torch.backends.cuda.matmul.allow_tf32 = case["precision"] == "tf32"
    return Trained(
        bench=bench, optimizers=optimizers, look_up=look_up, below=lambda: bottom(x), above=lambda read: top(middle(read)),
        labels=labels, narrow=narrow, parameters=sum(p.numel() for p in dense),
    )  # fmt: skip


def step(bench: Bench, case: Case) -> dict[str, Any]:
    """Times of one training step."""
    step = trained(bench, case)
    once = step.once
    for which in (0, 1, 0):
        once(which)
    bench.wait()
    row: dict[str, Any] = {}
    if bench.cuda:
        marks, hosts = [torch.cuda.Event(enable_timing=True) for _ in range(17)], []
        marks[0].record()
        for number, mark in enumerate(marks[1:]):
            start_s = time.perf_counter()
            once(number % 2)
            hosts.append(1e3 * (time.perf_counter() - start_s))
            mark.record()
        bench.wait()
        steps = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)][4:]
        row["step_ms"], row["host_ms"] = round(statistics.median(steps), 5), round(statistics.median(hosts[4:]), 5)
        queued = []
        for number in range(5):
            torch.cuda._sleep(60_000_000)  # 30 ms, in which the host gets ahead
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            once(number % 2)
            end.record()
            bench.wait()
            queued.append(begin.elapsed_time(end))
        row["queued_ms"] = round(statistics.median(queued), 5)
    else:
        start_s = time.perf_counter()
        once(0)
        row["step_ms"] = 1e3 * (time.perf_counter() - start_s)
    row["parameters"] = step.parameters
    return row


def tagged(case: Case) -> Case:
    """The case with its half, by a hash of its settings."""
    digest = hashlib.sha256(json.dumps(case, sort_keys=True).encode()).digest()
    return case | {"half": ("fit", "apart")[digest[0] & 1]}


def measured(bench: Bench, case: Case) -> Case:
    """A row: every way of running the case, or why it did not run."""
    row = tagged(case)
    if case["what"] == "step":
        ways: dict[str, Callable[[Bench, Case], Case]] = {"step": step}
    else:
        ways = {"batched": batched} if Batched is not None else {}
        own = len(case["rows"]) <= 8 and int(hashlib.sha256(json.dumps(case).encode()).hexdigest(), 16) % 3 == 0
        ways |= {"bag": bags} if own or not ways else {}
    for name, way in ways.items():
        try:
            row |= way(bench, case)
        except Exception as error:
            row[f"{name}_error"] = repr(error)[:400]
            if bench.cuda and "illegal" in str(error):
                raise
    return row


def mixed(tables: Iterator[Case], steps: Iterator[Case]) -> Iterator[Case]:
    """A whole step after every tenth case of tables, then tables alone."""
    for number, case in enumerate(tables):
        yield case
        if number % 10 == 4:
            yield from itertools.islice(steps, 1)


def shrunk(case: Case) -> Case:
    """A case that a CPU can run in no time."""
    small = case | {"batch": min(case["batch"], 32)}
    if case["what"] == "step":
        return small | {"most_rows": 1000}
    tables = min(4, len(case["rows"]))
    pooling = [min(p, 200) for p in case["pooling"][:tables]]
    return small | {"rows": [min(r, 1000) for r in case["rows"][:tables]], "pooling": pooling}


def main() -> None:
    """Measures until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    cuda = given.device == "cuda"
    bench = Bench(given.device, 56 * 2**30 if cuda else 2**26)
    header: Case = {"what": "run", "torch": torch.__version__, "device": given.device, "triton": Batched is not None}
    if cuda:
        header["name"] = torch.cuda.get_device_name()
    try:
        import fbgemm_gpu  # type: ignore[import-not-found]

        header["fbgemm"] = str(getattr(fbgemm_gpu, "__version__", True))
    except Exception:
        header["fbgemm"] = None
    done = 0
    with given.out.open("a") as file:

        def out(row: Case) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        out(header)
        for case in mixed(table_cases(), step_cases()):
            if time.monotonic() > end:
                break
            begun = time.monotonic()
            row = measured(bench, case if cuda else shrunk(case))
            row["took_s"] = round(time.monotonic() - begun, 3)
            out(row)
            done += 1
            if done % 25 == 1 or any(name.endswith("_error") for name in row):
                print(done, round(end - time.monotonic()), json.dumps(row)[:500], flush=True)
            gc.collect()
            if cuda and torch.cuda.memory_reserved() > 110e9:
                torch.cuda.empty_cache()
    print(f"{done} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
