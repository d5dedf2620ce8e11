"""Measures reference models on the device that JAX finds, laid out as `meshcast validate programs` reads it.

    python benchmarks/measure.py OUT gpt2-small:batch=8 llama3-8b-decode:batch=1,context=4096,param_dtype=bfloat16 ...
    python benchmarks/measure.py OUT path/to/config.json:mode=decode,batch=8,context=2048,layers=8  # a Hugging Face configuration

Per program: its StableHLO (`programs/ID.mlir.gz`), the wall time (median of three averages over back-to-back runs), the
busy time and kernels of a profile, XLA's buffer assignment. Rows are appended as they are done: an interrupted run keeps
them. With `--keep-hlo` and CUDA graphs turned off (`XLA_FLAGS=--xla_gpu_enable_command_buffer=`), so that every launch is named
by its instruction, the kernels of whole models can be collected for fidelity `profiled`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from device_profile import profiled

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from meshcast import zoo

WARM_UP_S = 0.3
MEASURED_S = 0.6
INDEX_RANGE = (
    10_000  # the least vocabulary of the models here: larger ones are clipped, and would all meet in the last row
)


def value(text: str) -> Any:
    """A setting's text as a number, a truth value or itself."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def filled(path: tuple[Any, ...], spec: jax.ShapeDtypeStruct, seed: int) -> jax.Array:
    """An argument on the device: small random numbers; indices spread over `INDEX_RANGE` (equal ones would collide).

    An optimizer's second moments are above zero: their root would be no number else, and soon all parameters would be none (NaN),
    which take less power to multiply, and nothing to add where numbers meet.
    """
    if jnp.issubdtype(spec.dtype, jnp.floating):
        draw = np.random.default_rng(seed).standard_normal(min(spec.size, 1 << 20), dtype=np.float32) * 0.02
        moments = any(getattr(each, "key", None) == "v" for each in path[:1])
        return jnp.resize(jnp.asarray(np.abs(draw) if moments else draw), spec.shape).astype(spec.dtype)
    if spec.shape and jnp.issubdtype(spec.dtype, jnp.integer):
        return jnp.asarray(np.random.default_rng(seed).integers(0, INDEX_RANGE, spec.shape), dtype=spec.dtype)
    return jnp.zeros(spec.shape, spec.dtype)


def run_once(compiled: Any, args: list[Any], donated: tuple[int, ...]) -> list[Any]:
    """The arguments of the next run: donated ones are replaced by the outputs that took their place."""
    out = compiled(*args)
    if not donated:
        return args
    outputs = out if isinstance(out, tuple) else (out,)
    nexts = list(args)
    for position, index in enumerate(donated):
        nexts[index] = outputs[position]
    return nexts


def timed(compiled: Any, args: list[Any], donated: tuple[int, ...], runs: int) -> tuple[float, list[Any]]:
    """Seconds per run of back-to-back runs."""
    start = time.perf_counter()
    for _ in range(runs):
        args = run_once(compiled, args, donated)
    jax.block_until_ready(args if donated else compiled(*args))
    return (time.perf_counter() - start) / (runs if donated else runs + 1), args


def profile(compiled: Any, args: list[Any], donated: tuple[int, ...], runs: int = 3) -> dict[str, Any]:
    """Busy time and kernels per run, from JAX's profiler; empty where it shows no device."""

    def all_runs() -> None:
        last = args
        for _ in range(runs):
            last = run_once(compiled, last, donated)
        jax.block_until_ready(last if donated else compiled(*last))

    count = runs if donated else runs + 1
    kernels: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    found = profiled(all_runs)
    for launch in found:
        entry = kernels[launch.op, launch.kernel]
        entry[0] += 1 / count
        entry[1] += launch.us / count
    busy, end = 0.0, 0.0
    for start, stop in sorted((launch.start_ns, launch.end_ns) for launch in found):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    rows = [
        {"hlo_op": op, "kernel": name, "count": round(n, 3), "us": round(us, 3)}
        for (op, name), (n, us) in kernels.items()
    ]
    return (
        {"busy_us": round(busy / 1e3 / count, 3), "kernels": sorted(rows, key=lambda row: -row["us"])} if rows else {}
    )


def convolution(
    batch: int, size: int, cin: int, cout: int, k: int = 3, stride: int = 1, what: str = "fwd",
    groups: int = 1, dims: int = 2, dtype: str = "bfloat16",
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """One convolution, or its gradient by the image (`dgrad`) or the filter (`wgrad`); with one dimension it is causal."""
    layout = ("NHWC", "HWIO", "NHWC") if dims == 2 else ("NHC", "HIO", "NHC")
    padding = "SAME" if dims == 2 else [(k - 1, 0)]

    def forward(image: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            image, kernel, (stride,) * dims, padding, dimension_numbers=layout, feature_group_count=groups
        )

    image = jax.ShapeDtypeStruct((batch, *(size,) * dims, cin), dtype)
    kernel = jax.ShapeDtypeStruct((*(k,) * dims, cin // groups, cout), dtype)
    if what == "fwd":
        return forward, (image, kernel), {}
    result = jax.eval_shape(forward, image, kernel)
    position = 0 if what == "dgrad" else 1

    def gradient(image: Any, kernel: Any, cotangent: Any) -> Any:
        return jax.vjp(forward, image, kernel)[1](cotangent)[position]

    return gradient, (image, kernel, jax.ShapeDtypeStruct(result.shape, result.dtype)), {}


OPS = {"convolution": convolution}


def model(name: str, settings: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A program of the zoo, or of a Hugging Face configuration in a file."""
    builder = zoo.model_named(name)
    return zoo.build(name, **settings) if builder is None else builder(**settings)


def measure(name: str, settings: dict[str, Any], folder: Path, *, keep_hlo: bool = False) -> dict[str, Any]:
    """One program's row."""
    function, specs, options = OPS[name](**settings) if name in OPS else model(name, settings)
    label = (
        "-".join([Path(name).stem if name.endswith(".json") else name, *(f"{k}{v}" for k, v in settings.items())])
        .replace("_", "")
        .replace("bfloat16", "bf16")
    )
    jitted = jax.jit(function, **options)
    lowered = jitted.lower(*specs)
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    (folder / "programs" / f"{label}.mlir.gz").write_bytes(gzip.compress(lowered.as_text().encode(), mtime=0))
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    if keep_hlo:
        (folder / "programs" / f"{label}.opt.hlo.gz").write_bytes(gzip.compress(compiled.as_text().encode(), mtime=0))
    leaves = iter(range(1 << 30))
    args = [
        jax.tree_util.tree_map_with_path(lambda path, spec: filled(path, spec, next(leaves)), spec) for spec in specs
    ]
    donated = tuple(options.get("donate_argnums", ()))
    if donated and donated[0] != 0:  # decoding: the cache is argument 1 and output 0
        donated = donated[:1]
    seconds, args = timed(compiled, args, donated, 2)
    seconds, args = timed(compiled, args, donated, max(2, int(WARM_UP_S / seconds)))
    runs = max(3, int(MEASURED_S / seconds))
    walls = []
    for _ in range(3):
        seconds, args = timed(compiled, args, donated, runs)
        walls.append(seconds)
    memory = compiled.memory_analysis()
    row: dict[str, Any] = {
        "id": label,
        "group": "conv" if name in OPS else "zoo",
        "wall_us": round(statistics.median(walls) * 1e6, 3),
        "iters": runs,
        "compile_s": round(compile_s, 2),
        "mem": {
            "args": memory.argument_size_in_bytes,
            "out": memory.output_size_in_bytes,
            "temp": memory.temp_size_in_bytes,
            "alias": memory.alias_size_in_bytes,
        },
    }
    numbers = [leaf for leaf in jax.tree.leaves(args) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    row["finite"] = all(bool(jnp.isfinite(leaf.astype(jnp.float32)).all()) for leaf in numbers)
    row.update(profile(compiled, args, donated))
    return row


def main() -> None:
    """Measures every program named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--keep-hlo", action="store_true", help="keep what XLA compiled: programs/ID.opt.hlo.gz")
    options = parser.parse_args()
    for text in options.programs:
        name, _, rest = text.partition(":")
        settings = {key: value(v) for key, _, v in (part.partition("=") for part in rest.split(",") if part)}
        try:
            row = measure(name, settings, options.out, keep_hlo=options.keep_hlo)
        except Exception:
            print(f"{text}: failed", file=sys.stderr)
            traceback.print_exc()
            continue
        with (options.out / "measurements.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{row['id']}: {row['wall_us']:.1f} us, busy {row.get('busy_us')} us, compiled in {row['compile_s']} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
