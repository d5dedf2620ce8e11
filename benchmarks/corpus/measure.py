"""Measures the programs of a corpus on the GPU that JAX finds: times by kernel, step time, memory, and XLA's optimized HLO.

    python benchmarks/corpus/measure.py FOLDER OUT [--seconds 560] [--threads 12] [--quick] [--only ID ...]

FOLDER is what `python -m benchmarks.corpus` wrote (`programs/ID.mlir.gz`, `index.jsonl`). OUT gets `measurements.jsonl`, a line a
program as it is done, and `hlo-N.tar`; programs that OUT already has a line of are left out, so that an interrupted run goes on.
Nothing but jax is needed. Each program is compiled twice: as XLA does it by default, for the step time (`wall_us`, the median of
averages over back-to-back runs), and without CUDA graphs, so that the profiler names the instruction of every launch. `--quick`
compiles once, without graphs and with cuBLAS alone for products: XLA otherwise compiles dozens of Triton kernels for each, to
time them, which takes minutes for a large model. A batch is compiled, many programs at a time, before any of it is timed;
order the index by size, as a batch waits for its slowest program.

A child process does the work. One that a program keeps for longer than `LONGEST_S` is ended, the program is noted as too long,
and a new child goes on behind it; so does one with compilations that do not end.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Launch = tuple[float, float, str, str]  # start and end in ns, instruction, kernel
BATCH = 24
COMPILED_S = 70.0  # that the programs of a batch may take to be compiled
LONGEST_S = 40.0  # that one program may take once it is compiled
TAR_BYTES = 12 << 20
NO_GRAPHS: dict[str, str | bool] = {"xla_gpu_enable_command_buffer": ""}
QUICK: dict[str, str | bool] = {**NO_GRAPHS, "xla_gpu_enable_triton_gemm": False}
MEASURED_S = 0.25  # of back-to-back runs
AVERAGES = 10
PROFILED_RUNS = 4
LONG_S = 0.3  # a run that takes longer is measured fewer times
_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_DONATED = re.compile(r"(tf\.aliasing_output = \d+ : i32|jax\.buffer_donor = true)(, )?")
_NAMES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i1": "bool", "i4": "int4", "ui4": "uint4",
    "i8": "int8", "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32", "i64": "int64",
    "ui64": "uint64", "complex<f32>": "complex64", "complex<f64>": "complex128", "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}  # fmt: skip


def main() -> None:
    """Reads the arguments and measures, as the child that does the work or as the process that watches it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="kernels alone, products by cuBLAS")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.child:
        work(asked)
    else:
        watch(asked)


def watch(asked: argparse.Namespace) -> None:
    """Runs children until all is measured or the time is over; ends one that does not come back."""
    end = time.monotonic() + asked.seconds
    alive = asked.out / "alive"
    while time.monotonic() < end and left(asked):
        alive.write_text("starting")
        child = subprocess.Popen([sys.executable, *sys.argv, "--child", "--seconds", str(end - time.monotonic())])
        while child.poll() is None:
            time.sleep(0.5)
            what = alive.read_text()
            if time.monotonic() > end + 10:
                child.kill()
            elif what.startswith("run ") and time.time() - alive.stat().st_mtime > LONGEST_S:
                child.kill()
                note(asked.out, {"id": what[4:], "error": f"did not end within {LONGEST_S:.0f} s"})
                alive.write_text("ended")
        if child.returncode and (what := alive.read_text()).startswith("run "):
            note(asked.out, {"id": what[4:], "error": f"the process ended with {child.returncode}"})
    alive.unlink(missing_ok=True)


def measured_rows(out: Path) -> list[Row]:
    """The rows that are there."""
    path = out / "measurements.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def note(out: Path, row: Row) -> None:
    """Adds a row."""
    with (out / "measurements.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def left(asked: argparse.Namespace) -> list[Row]:
    """Rows of the index that have no measurement; programs that end on data are left out."""
    done = {row["id"] for row in measured_rows(asked.out)}
    rows = [json.loads(line) for line in (asked.folder / "index.jsonl").read_text().splitlines()]
    chosen = [row for row in rows if asked.only is None or row["id"] in asked.only]
    return [row for row in chosen if row["id"] not in done and not row.get("ends_on_data")]


class Ready:
    """A compiled program: `run` as XLA compiles it by default, `plain` without CUDA graphs."""

    def __init__(self, row: Row, folder: Path, *, quick: bool) -> None:
        self.row = row
        text = gzip.decompress((folder / "programs" / f"{row['id']}.mlir.gz").read_bytes()).decode()
        text = _DONATED.sub("", _MODULE.sub("module @corpus", text, count=1))
        self.types = arguments(text)
        start = time.perf_counter()
        self.plain = compiled(text, QUICK if quick else NO_GRAPHS)
        self.run = self.plain if quick else compiled(text, {})
        self.compile_s = time.perf_counter() - start


def arguments(text: str) -> list[str]:
    """Types of the arguments of `main`, as they are written: `8x128xbf16`."""
    head = re.search(r"func\.func public @main\((.*?)\)\s*->", text, re.DOTALL)
    if head is None:
        raise ValueError("no function main")
    return re.findall(r"%arg\d+: tensor<((?:[^<>]|<[^<>]*>)*)>", head[1])


def compiled(text: str, flags: dict[str, str | bool]) -> Any:
    """The program, loaded on the first device."""
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    if flags:
        options.env_option_overrides = list(flags.items())
    with mlir.make_ir_context():
        devices = tuple(jax.devices()[:1])
        return devices[0].client.compile_and_load(ir.Module.parse(text), _jax.DeviceList(devices), options)


def filled(kind: str, below: int | None, seed: int) -> Any:
    """An argument: small numbers of all bits, or integers below a bound."""
    import jax
    import jax.numpy as jnp

    match = re.fullmatch(r"((?:\d+x)*)(.+)", kind)
    assert match
    sizes = tuple(map(int, match[1].split("x")[:-1]))
    dtype = jnp.dtype(_NAMES[match[2]])
    key = jax.random.key(seed, impl="rbg")
    if dtype == jnp.bool_:
        return jax.random.bits(key, sizes, jnp.uint8) > 127
    if jnp.issubdtype(dtype, jnp.integer):
        bits = jax.random.bits(key, sizes, jnp.uint32)
        if not below and match[2] == "ui32":  # the key of a generator, most likely
            return bits
        return (bits % jnp.uint32(below or (4 if dtype.itemsize == 1 else 1000))).astype(dtype)
    normal = jax.random.normal(key, sizes, jnp.float32)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.lax.complex(normal, normal * 0.5).astype(dtype)
    return (jnp.abs(normal) * 0.05 + 1e-3).astype(dtype)


def work(asked: argparse.Namespace) -> None:
    """Measures what is left, batch by batch, until the time is over."""
    import jax

    jax.config.update("jax_enable_x64", True)
    alive = asked.out / "alive"
    end = time.monotonic() + asked.seconds
    rows = left(asked)
    pool = ThreadPoolExecutor(asked.threads)

    def prepare(row: Row) -> Ready | Row | None:
        if time.monotonic() > end - 15:
            return None
        try:
            return Ready(row, asked.folder, quick=asked.quick)
        except Exception as error:  # whatever the compiler says
            return {"id": row["id"], "error": f"compile: {short(error)}"}

    for first in range(0, len(rows), BATCH):
        if time.monotonic() > end - 20:
            break
        batch = rows[first : first + BATCH]
        alive.write_text("compiling")
        start = time.monotonic()
        futures = [pool.submit(prepare, row) for row in batch]
        waited = wait(futures, timeout=min(COMPILED_S, max(1.0, end - 12 - time.monotonic())))
        ready = [future.result() for future in futures if future in waited.done]
        late = [row for future, row in zip(futures, batch, strict=True) if future in waited.not_done]
        print(f"compiled {len(ready)} of {len(batch)} in {time.monotonic() - start:.0f} s", flush=True)
        for item in ready:
            if item is None or time.monotonic() > end - 3:
                continue
            if isinstance(item, dict):
                note(asked.out, item)
                continue
            alive.write_text("run " + item.row["id"])
            try:
                row = measured(item, quick=asked.quick)
                keep_hlo(asked.out, item)
            except Exception as error:  # out of memory, or a kernel that the device refuses
                row = {"id": item.row["id"], "error": f"run: {short(error)}"}
            note(asked.out, row)
            del item.run, item.plain
        alive.write_text("done")
        for row in late:
            note(asked.out, {"id": row["id"], "error": f"compile: did not end within {COMPILED_S:.0f} s"})
        if late:
            os._exit(0)  # their threads would disturb what is measured next


def short(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def keep_hlo(out: Path, item: Ready) -> None:
    """Adds the optimized HLO to a tar that is not full."""
    text = gzip.compress(item.plain.hlo_modules()[0].to_string().encode(), mtime=0)
    number = 0
    while (path := out / f"hlo-{number}.tar").exists() and path.stat().st_size + len(text) > TAR_BYTES:
        number += 1
    with tarfile.open(path, "a") as tar:
        entry = tarfile.TarInfo(f"{item.row['id']}.opt.hlo.gz")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))


def measured(item: Ready, *, quick: bool) -> Row:
    """The row of a program."""
    import jax

    below = {int(place): bound for place, bound in (item.row.get("below") or {}).items()}
    args = [jax.block_until_ready(filled(kind, below.get(i), i + 1)) for i, kind in enumerate(item.types)]

    def ran(program: Any, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            results = program.execute_sharded(args).disassemble_into_single_device_arrays()
        jax.block_until_ready(results)
        return time.perf_counter() - start

    ran(item.run, 2)
    single = ran(item.run, 1)
    share = MEASURED_S / AVERAGES / (4 if quick else 1)
    many = max(3, min(200, round(share / max(single, 1e-6)))) if single <= LONG_S else 1
    averages = [ran(item.run, many) / many for _ in range(AVERAGES if single <= LONG_S else 3)]
    runs = PROFILED_RUNS if single <= LONG_S else 1
    ran(item.plain, 2)
    busy, kernels = summarised(profiled(lambda: ran(item.plain, runs)), runs)
    graph_busy, graph_kernels = (busy, kernels) if quick else summarised(profiled(lambda: ran(item.run, runs)), runs)
    stats = item.run.get_compiled_memory_stats()
    memory = {
        "args": stats.argument_size_in_bytes, "out": stats.output_size_in_bytes, "temp": stats.temp_size_in_bytes,
        "alias": stats.alias_size_in_bytes,
    }  # fmt: skip
    said = {key: item.row.get(key) for key in ("id", "library", "part", "origin", "mode", "dtype", "group")}
    return said | {
        "wall_us": round(statistics.median(averages) * 1e6, 1),
        "busy_us": round(busy, 1),
        "graph_busy_us": round(graph_busy, 1),
        "kernel_count": sum(kernel["count"] for kernel in kernels),
        "graph_kernel_count": sum(kernel["count"] for kernel in graph_kernels),
        "iters": many,
        "compile_s": round(item.compile_s, 2),
        "quick": quick,
        "mem": memory,
        "kernels": kernels,
    }


def profiled(run: Callable[[], object]) -> list[Launch]:
    """Launches while `run` runs, by start."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 0
    found: list[Launch] = []
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        for path in Path(folder).rglob("*.xplane.pb"):
            planes = jax.profiler.ProfileData.from_file(str(path)).planes
            lines = [line for plane in planes if plane.name.startswith("/device:") for line in plane.lines]
            for line in lines:
                for event in line.events if line.name.startswith("Stream") else ():
                    op = str(dict(event.stats).get("hlo_op", ""))
                    found.append((event.start_ns, event.start_ns + event.duration_ns, op, event.name))
    return sorted(found)


def summarised(events: list[Launch], runs: int) -> tuple[float, list[Row]]:
    """Microseconds with a launch running, and the launches, of one run."""
    busy, until = 0.0, -math.inf
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for start, end, op, kernel in events:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
        times[op, kernel].append((end - start) / 1e3)
    rows: list[Row] = [
        {"hlo_op": op, "kernel": kernel[:160], "count": round(len(us) / runs, 3), "us": round(sum(us) / runs, 3)}
        for (op, kernel), us in times.items()
    ]
    return busy / runs / 1e3, sorted(rows, key=lambda row: -float(row["us"]))


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
