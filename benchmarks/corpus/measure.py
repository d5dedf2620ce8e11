"""Measures the programs of a corpus on the GPU that JAX finds: times by kernel, step time, memory, and XLA's optimized HLO.

    python benchmarks/corpus/measure.py FOLDER OUT [--seconds 560] [--compile-seconds 300] [--compilers 14] [--quick]
        [--only ID ...]

FOLDER is what `python -m benchmarks.corpus` wrote (`programs/ID.mlir.gz`, `index.jsonl`). OUT gets `measurements.jsonl`, a line a
program as it is done, and `hlo-N.tar`; programs that OUT already has a line of are left out, so that an interrupted run goes on.
Nothing but jax is needed. Each program is compiled twice: as XLA does it by default, for the step time (`wall_us`, the median of
averages over back-to-back runs), and without CUDA graphs, so that the profiler names the instruction of every launch. `--quick`
compiles once, without graphs and with cuBLAS alone for products: XLA otherwise compiles dozens of Triton kernels for each, to
time them, which takes minutes for a large model.

First many processes compile, in the order of the index, for as long as `--compile-seconds` says, and keep what they made in
OUT/compiled: threads of one process wait for each other in XLA. Nothing is compiled while anything is timed. Then one process
measures what is there. One that a program keeps for longer than `LONGEST_S` is ended, the program is noted as too long, and a new
process goes on behind it.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import pickle
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Launch = tuple[float, float, str, str]  # start and end in ns, instruction, kernel
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
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i1": "bool", "i2": "int2", "i4": "int4",
    "ui4": "uint4",
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
    parser.add_argument("--compile-seconds", type=float, default=300.0, help="of --seconds, that compiling may take")
    parser.add_argument("--compilers", type=int, default=14, help="processes that compile")
    parser.add_argument("--quick", action="store_true", help="kernels alone, products by cuBLAS")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--part", choices=("compile", "measure"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    (asked.out / "compiled").mkdir(parents=True, exist_ok=True)
    if asked.part == "compile":
        compile_all(asked)
    elif asked.part == "measure":
        measure_all(asked)
    else:
        end = time.monotonic() + asked.seconds
        compile_side_by_side(asked, min(end, time.monotonic() + asked.compile_seconds))
        watch(asked, end)


def compile_side_by_side(asked: argparse.Namespace, end: float) -> None:
    """Runs the processes that compile until all is compiled or the time is over."""
    for claim in (asked.out / "compiled").glob("*.claim"):
        claim.unlink()  # of an earlier run that was interrupted
    children = [subprocess.Popen([sys.executable, *sys.argv, "--part", "compile"]) for _ in range(asked.compilers)]
    while any(child.poll() is None for child in children) and time.monotonic() < end:
        time.sleep(0.5)
    for child in children:
        child.kill()
        child.wait()
    print(f"compiled {len(list((asked.out / 'compiled').glob('*.pickle')))} programs", flush=True)


def compile_all(asked: argparse.Namespace) -> None:
    """Compiles what is left and no other process has taken."""
    for row in left(asked):
        made = asked.out / "compiled" / f"{row['id']}.pickle"
        try:
            os.close(os.open(made.with_suffix(".claim"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        if made.exists():
            continue
        try:
            text = pickle.dumps(compile_program(row, asked.folder, quick=asked.quick))
        except Exception as error:  # whatever the compiler says
            note(asked.out, {"id": row["id"], "error": f"compile: {short(error)}"})
            continue
        half = made.with_suffix(".half")
        half.write_bytes(text)
        half.rename(made)


def watch(asked: argparse.Namespace, end: float) -> None:
    """Runs the process that measures until all is measured or the time is over; ends one that does not come back."""
    alive = asked.out / "alive"
    while time.monotonic() < end and ready(asked):
        alive.write_text("starting")
        said = ["--part", "measure", "--seconds", str(end - time.monotonic())]
        child = subprocess.Popen([sys.executable, *sys.argv, *said])
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


def ready(asked: argparse.Namespace) -> list[Row]:
    """Rows that are compiled and have no measurement."""
    return [row for row in left(asked) if (asked.out / "compiled" / f"{row['id']}.pickle").exists()]


@dataclass(frozen=True)
class Compiled:
    """A compiled program as bytes: `run` as XLA compiles it by default, `plain` without CUDA graphs."""

    types: list[str]
    plain: bytes
    run: bytes
    hlo: str
    memory: dict[str, int]
    seconds: float


def compile_program(row: Row, folder: Path, *, quick: bool) -> Compiled:
    """The program of a row, compiled."""
    text = gzip.decompress((folder / "programs" / f"{row['id']}.mlir.gz").read_bytes()).decode()
    text = _DONATED.sub("", _MODULE.sub("module @corpus", text, count=1))
    start = time.perf_counter()
    plain = compiled(text, QUICK if quick else NO_GRAPHS)
    run = plain if quick else compiled(text, {})
    seconds = time.perf_counter() - start
    stats = run.get_compiled_memory_stats()
    memory = {
        "args": stats.argument_size_in_bytes, "out": stats.output_size_in_bytes, "temp": stats.temp_size_in_bytes,
        "alias": stats.alias_size_in_bytes,
    }  # fmt: skip
    as_bytes = plain.serialize()
    return Compiled(
        arguments(text),
        as_bytes,
        as_bytes if quick else run.serialize(),
        plain.hlo_modules()[0].to_string(),
        memory,
        seconds,
    )


def loaded(program: bytes) -> Any:
    """A compiled program, loaded on the first device."""
    import jax
    from jax._src import compiler
    from jaxlib import _jax

    devices = tuple(jax.devices()[:1])
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    return devices[0].client.deserialize_executable(program, _jax.DeviceList(devices), options)


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
    import ml_dtypes
    import numpy as np

    match = re.fullmatch(r"((?:\d+x)*)(.+)", kind)
    assert match
    sizes = tuple(map(int, match[1].split("x")[:-1]))
    name = _NAMES[match[2]]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    random = np.random.default_rng(seed)
    if dtype == np.bool_:
        made = random.integers(0, 2, sizes, np.uint8)
    elif np.issubdtype(dtype, np.integer) or "int" in name:
        key = not below and match[2] == "ui32"  # of a generator, most likely
        made = random.integers(0, 1 << 32 if key else below or (4 if dtype.itemsize == 1 else 1000), sizes, np.uint32)
    else:
        normal = random.standard_normal(sizes, np.float32)
        made = normal + 0.5j * normal if "complex" in name else np.abs(normal) * 0.05 + 1e-3
    return jax.device_put(np.asarray(made).astype(dtype))


def measure_all(asked: argparse.Namespace) -> None:
    """Measures what is compiled, until the time is over."""
    import jax

    jax.config.update("jax_enable_x64", True)
    alive = asked.out / "alive"
    end = time.monotonic() + asked.seconds
    for row in ready(asked):
        if time.monotonic() > end - 5:
            break
        alive.write_text("run " + row["id"])
        made = pickle.loads((asked.out / "compiled" / f"{row['id']}.pickle").read_bytes())
        try:
            found = measured(row, made, quick=asked.quick)
            keep_hlo(asked.out, row["id"], made.hlo)
        except Exception as error:  # out of memory, or a kernel that the device refuses
            found = {"id": row["id"], "error": f"run: {short(error)}"}
        note(asked.out, found)
        alive.write_text("done")


def short(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def keep_hlo(out: Path, name: str, hlo: str) -> None:
    """Adds the optimized HLO to a tar that is not full."""
    text = gzip.compress(hlo.encode(), mtime=0)
    number = 0
    while (path := out / f"hlo-{number}.tar").exists() and path.stat().st_size + len(text) > TAR_BYTES:
        number += 1
    with tarfile.open(path, "a") as tar:
        entry = tarfile.TarInfo(f"{name}.opt.hlo.gz")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))


def measured(row: Row, made: Compiled, *, quick: bool) -> Row:
    """The row of a program."""
    import jax

    below = {int(place): bound for place, bound in (row.get("below") or {}).items()}
    args = [jax.block_until_ready(filled(kind, below.get(i), i + 1)) for i, kind in enumerate(made.types)]

    plain = loaded(made.plain)
    run = plain if quick else loaded(made.run)

    def ran(program: Any, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            results = program.execute_sharded(args).disassemble_into_single_device_arrays()
        jax.block_until_ready(results)
        return time.perf_counter() - start

    ran(run, 2)
    single = ran(run, 1)
    share = MEASURED_S / AVERAGES / (4 if quick else 1)
    many = max(3, min(200, round(share / max(single, 1e-6)))) if single <= LONG_S else 1
    averages = [ran(run, many) / many for _ in range(AVERAGES if single <= LONG_S else 3)]
    runs = PROFILED_RUNS if single <= LONG_S else 1
    ran(plain, 2)
    busy, kernels = summarised(profiled(lambda: ran(plain, runs)), runs)
    graph_busy, graph_kernels = (busy, kernels) if quick else summarised(profiled(lambda: ran(run, runs)), runs)
    said = {key: row.get(key) for key in ("id", "library", "part", "origin", "mode", "dtype", "group")}
    return said | {
        "wall_us": round(statistics.median(averages) * 1e6, 1),
        "busy_us": round(busy, 1),
        "graph_busy_us": round(graph_busy, 1),
        "kernel_count": sum(kernel["count"] for kernel in kernels),
        "graph_kernel_count": sum(kernel["count"] for kernel in graph_kernels),
        "iters": many,
        "compile_s": round(made.seconds, 2),
        "quick": quick,
        "mem": made.memory,
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
