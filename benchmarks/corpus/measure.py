"""Measures the programs of a corpus on the GPU that JAX finds: times by kernel, step time, memory, and XLA's optimized HLO.

    python benchmarks/corpus/measure.py FOLDER OUT [--seconds 560] [--threads 12] [--only ID ...]

FOLDER is what `python -m benchmarks.corpus` wrote (`programs/ID.mlir.gz`, `index.jsonl`). OUT gets `measurements.jsonl`, a line a
program as it is done, and `hlo-N.tar`; programs that OUT already has a line of are left out, so that an interrupted run goes on.
Nothing but jax is needed. Each program is compiled twice: as XLA does it by default, for the step time (`wall_us`, the median of
averages over back-to-back runs), and without CUDA graphs, so that the profiler names the instruction of every launch. A batch is
compiled, many at a time, before any of it is timed.

A child process does the work; where one program keeps it longer than `LONGEST_S` it is ended, the program is noted as too long,
and a new child goes on behind it.
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
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

BATCH = 30
COMPILED_S = 75.0  # that the programs of a batch may take to be compiled
LONGEST_S = 90.0  # that one program may take once it is compiled
TAR_BYTES = 12 << 20
NO_GRAPHS = {"xla_gpu_enable_command_buffer": ""}
QUICK = {**NO_GRAPHS, "xla_gpu_enable_triton_gemm": False}  # no candidates are compiled to be timed
MEASURED_S = 0.25  # of back-to-back runs, at least ten averages
PROFILED_RUNS = 4
_MODULE = re.compile(r"^module @\S+", re.MULTILINE)
_DONATED = re.compile(r"(tf\.aliasing_output = \d+ : i32|jax\.buffer_donor = true)(, )?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=560.0)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--quick", action="store_true", help="kernels alone: one compilation, products by cuBLAS without Triton's candidates")
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
        command = [sys.executable, *sys.argv, "--child", "--seconds", str(end - time.monotonic())]
        child = subprocess.Popen(command)
        while child.poll() is None:
            time.sleep(0.5)
            what = alive.read_text()
            if time.monotonic() > end + 10:
                child.kill()
            elif what.startswith("run ") and time.time() - alive.stat().st_mtime > LONGEST_S:
                child.kill()
                note(asked.out, {"id": what[4:], "error": f"did not end within {LONGEST_S:.0f} s"})
        if child.returncode and alive.read_text().startswith("run "):
            known = {json.loads(line)["id"] for line in lines(asked.out)}
            if (name := alive.read_text()[4:]) not in known:
                note(asked.out, {"id": name, "error": f"the process ended with {child.returncode}"})
    alive.unlink(missing_ok=True)


def lines(out: Path) -> list[str]:
    path = out / "measurements.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def note(out: Path, row: dict[str, Any]) -> None:
    with (out / "measurements.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def left(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the index that have no measurement, those that end on data left out."""
    done = {json.loads(line)["id"] for line in lines(asked.out)}
    rows = [json.loads(line) for line in (asked.folder / "index.jsonl").read_text().splitlines()]
    return [
        row
        for row in rows
        if row["id"] not in done and not row.get("ends_on_data") and (asked.only is None or row["id"] in asked.only)
    ]


class Ready:
    """A compiled program: `run` with CUDA graphs, `plain` without them."""

    def __init__(self, row: dict[str, Any], number: int, folder: Path, *, quick: bool) -> None:
        import jax

        self.row, self.number = row, number
        text = gzip.decompress((folder / "programs" / f"{row['id']}.mlir.gz").read_bytes()).decode()
        text = _DONATED.sub("", _MODULE.sub(f"module @corpus_{number}", text, count=1))
        client = jax.devices()[0].client
        start = time.perf_counter()
        self.types = arguments(text)
        self.plain = compiled(client, text, QUICK if quick else NO_GRAPHS)
        self.run = self.plain if quick else compiled(client, text, {})
        self.compile_s = time.perf_counter() - start


def arguments(text: str) -> list[str]:
    """Types of the arguments of `main`, as they are written."""
    head = re.search(r"func\.func public @main\((.*?)\)\s*->", text, re.DOTALL)
    assert head
    return re.findall(r"%arg\d+: tensor<([^>]*(?:<[^>]*>)?[^>]*)>", head[1])


def compiled(client: Any, text: str, flags: dict[str, Any]) -> Any:
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir as jax_mlir
    from jaxlib.mlir import ir

    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    if flags:
        options.env_option_overrides = list(flags.items())
    from jaxlib import _jax as xc

    with jax_mlir.make_ir_context():
        module = ir.Module.parse(text)
        devices = xc.DeviceList(tuple(jax.devices()[:1]))
        return client.compile_and_load(module, devices, options)


DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i1": "bool", "i8": "int8", "ui8": "uint8",
          "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32", "i64": "int64", "ui64": "uint64",
          "complex<f32>": "complex64", "complex<f64>": "complex128", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
          "i4": "int4", "ui4": "uint4"}  # fmt: skip


def filled(kind: str, below: int | None, seed: int) -> Any:
    """An argument: small numbers of all bits, or integers below a bound."""
    import jax
    import jax.numpy as jnp

    *shape, dtype = kind.split("x") if not kind.startswith("complex") else [kind]
    if "complex" in kind:
        dtype = kind[kind.index("complex") :]
        shape = [s for s in kind[: kind.index("complex")].split("x") if s]
    sizes = tuple(map(int, shape))
    name = jnp.dtype(DTYPES[dtype])
    key = jax.random.key(seed, impl="rbg")
    if name == jnp.bool_:
        return jax.random.bits(key, sizes, jnp.uint8) > 127
    if jnp.issubdtype(name, jnp.integer):
        if below:
            return (jax.random.bits(key, sizes, jnp.uint32) % jnp.uint32(below)).astype(name)
        small = 4 if name.itemsize == 1 else 1000
        wide = dtype == "ui32"  # a key, most likely
        bits = jax.random.bits(key, sizes, jnp.uint32)
        return bits.astype(name) if wide else (bits % jnp.uint32(small)).astype(name)
    if jnp.issubdtype(name, jnp.complexfloating):
        return (jax.random.normal(key, sizes, jnp.float32) + 1j * jax.random.normal(key, sizes, jnp.float32)).astype(name)
    return (jnp.abs(jax.random.normal(key, sizes, jnp.float32)) * 0.05 + 1e-3).astype(name)


def work(asked: argparse.Namespace) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    alive = asked.out / "alive"
    end = time.monotonic() + asked.seconds
    rows = left(asked)
    pool = ThreadPoolExecutor(asked.threads)
    shard = len(list(asked.out.glob("hlo-*.tar")))
    for first in range(0, len(rows), BATCH):
        if time.monotonic() > end - 20:
            break
        batch = rows[first : first + BATCH]
        alive.write_text("compiling")
        start = time.monotonic()

        def prepare(item: tuple[int, dict[str, Any]]) -> Any:
            if time.monotonic() > end - 15:
                return None
            try:
                return Ready(item[1], first + item[0], asked.folder, quick=asked.quick)
            except Exception as error:
                return {"id": item[1]["id"], "error": f"compile: {type(error).__name__}: {' '.join(str(error).split())[:400]}"}

        futures = [pool.submit(prepare, item) for item in enumerate(batch)]
        waited = wait(futures, timeout=min(COMPILED_S, max(1.0, end - 12 - time.monotonic())))
        ready = [future.result() for future in futures if future in waited.done]
        late = [row for future, row in zip(futures, batch, strict=True) if future in waited.not_done]
        print(f"compiled {len(ready)} of {len(batch)} in {time.monotonic() - start:.0f} s", flush=True)
        start = time.monotonic()
        for item in ready:
            if item is None or time.monotonic() > end - 3:
                continue
            if isinstance(item, dict):
                print(item["id"], item["error"][:150], flush=True)
                note(asked.out, item)
                continue
            alive.write_text("run " + item.row["id"])
            try:
                row = measured(item, quick=asked.quick)
            except Exception as error:
                row = {"id": item.row["id"], "error": f"run: {type(error).__name__}: {' '.join(str(error).split())[:400]}"}
                print(item.row["id"], row["error"][:150], flush=True)
            else:
                text = gzip.compress(item.plain.hlo_modules()[0].to_string().encode(), mtime=0)
                while (path := asked.out / f"hlo-{shard}.tar").exists() and path.stat().st_size + len(text) > TAR_BYTES:
                    shard += 1
                with tarfile.open(path, "a") as tar:
                    entry = tarfile.TarInfo(f"{item.row['id']}.opt.hlo.gz")
                    entry.size = len(text)
                    tar.addfile(entry, io.BytesIO(text))
            note(asked.out, row)
            item.run = item.plain = None
        print(f"measured in {time.monotonic() - start:.0f} s", flush=True)
        if late:
            for row in late:
                print(row["id"], "compiles too long", flush=True)
                note(asked.out, {"id": row["id"], "error": f"compile: did not end within {COMPILED_S:.0f} s"})
            alive.write_text("done")
            os._exit(0)  # its threads would disturb what is measured next


def measured(item: Ready, *, quick: bool) -> dict[str, Any]:
    import jax

    below = {int(k): v for k, v in (item.row.get("below") or {}).items()}
    args = [jax.block_until_ready(filled(kind, below.get(i), i + 1)) for i, kind in enumerate(item.types)]

    def once(program: Any) -> Any:
        return program.execute_sharded(args).disassemble_into_single_device_arrays()

    def ran(program: Any, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            results = once(program)
        jax.block_until_ready(results)
        return time.perf_counter() - start

    ran(item.run, 2)
    single = ran(item.run, 1)
    many = max(3, min(200, round(MEASURED_S / (40 if quick else 10) / max(single, 1e-6))))
    if single > 0.3:
        many = 1
    averages = [ran(item.run, many) / many for _ in range(10 if single < 0.3 else 3)]
    runs = PROFILED_RUNS if single < 0.3 else 1
    ran(item.plain, 2)
    events = profiled(lambda: ran(item.plain, runs))
    busy, kernels = summarised(events, runs)
    graph_busy, graph_kernels = (busy, kernels) if quick else summarised(profiled(lambda: ran(item.run, runs)), runs)
    stats = item.run.get_compiled_memory_stats()
    memory = {
        "args": stats.argument_size_in_bytes, "out": stats.output_size_in_bytes, "temp": stats.temp_size_in_bytes,
        "alias": stats.alias_size_in_bytes,
    }  # fmt: skip
    row = {key: item.row.get(key) for key in ("id", "library", "part", "origin", "mode", "dtype", "group")}
    return row | {
        "wall_us": statistics.median(averages) * 1e6,
        "busy_us": busy,
        "graph_busy_us": graph_busy,
        "kernel_count": sum(k["count"] for k in kernels),
        "graph_kernel_count": sum(k["count"] for k in graph_kernels),
        "iters": many,
        "compile_s": round(item.compile_s, 2),
        "quick": quick,
        "mem": memory,
        "kernels": kernels,
    }


def profiled(run: Any) -> list[tuple[float, float, str, str]]:
    """Launches while `run` runs: start, end (ns), instruction, kernel."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 0
    found = []
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            run()
        finally:
            jax.profiler.stop_trace()
        for path in Path(folder).rglob("*.xplane.pb"):
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
                if not plane.name.startswith("/device:"):
                    continue
                for line in plane.lines:
                    if line.name.startswith("Stream"):
                        for event in line.events:
                            stats = dict(event.stats)
                            found.append((event.start_ns, event.start_ns + event.duration_ns, str(stats.get("hlo_op", "")), event.name))
    return sorted(found)


def summarised(events: list[tuple[float, float, str, str]], runs: int) -> tuple[float, list[dict[str, Any]]]:
    """Microseconds with a launch running, and the launches, of one run."""
    busy, until = 0.0, -math.inf
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for start, end, op, kernel in events:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
        times[op, kernel].append((end - start) / 1e3)
    rows = [
        {"hlo_op": op, "kernel": kernel[:160], "count": round(len(v) / runs, 3), "us": round(sum(v) / runs, 3)}
        for (op, kernel), v in times.items()
    ]
    return busy / runs / 1e3, sorted(rows, key=lambda row: -float(row["us"]))


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
