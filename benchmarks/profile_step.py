"""Profiles a few steps of a program on the device that JAX or PyTorch finds, for `meshcast compare --measured`.

    python benchmarks/profile_step.py jax OUT.xplane.pb.gz gpt2-small:batch=8 [--steps 4] [--hlo OUT.opt.hlo.gz]
    python benchmarks/profile_step.py torch OUT.json.gz examples/pytorch/gpt.py:train [--steps 4] [--compile]
    nsys profile --trace cuda --capture-range=cudaProfilerApi -o OUT python benchmarks/profile_step.py torch - FILE.py:FUNCTION

Only what a comparison needs is kept: the devices' planes of a JAX profile; of a PyTorch trace the device's work, the launches and
operators behind it, and the steps. `--hlo` keeps what XLA compiled, with paths below this repository made relative.

`jax` takes a model of the zoo with its settings or `file.py:function`, `torch` a `file.py:function`: targets as `meshcast
predict` takes them. A module of PyTorch is run as its options say: a training step with their loss, optimizer, clipping and
autocast, or a forward pass. With `XLA_FLAGS=--xla_gpu_enable_command_buffer=` every launch is named by its instruction; with
CUDA graphs, JAX's default, only by its kernel. What a step takes without a profiler is printed. Instead of OUT, `-` leaves the
profiling to another program, since two at once may never end: PyTorch's steps run between `cudaProfilerStart` and `Stop`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
UNPROFILED = 10  # steps between two looks at the clock, without a profiler
INDEX_RANGE = 1000  # of tokens and labels: every model here has as many
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]


def device_planes(profile: bytes) -> bytes:
    """An XSpace message with the planes (its field 1) of devices alone; the name is a plane's field 2."""
    kept, place = b"", 0

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = profile[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at

    while place < len(profile):
        start = place
        tag, place = varint(place)
        size, place = varint(place)  # every field of an XSpace is a message or a text
        if tag == (1 << 3 | 2) and b"/device:" in profile[place : place + 64]:
            kept += profile[start : place + size]
        place += size
    return kept


def device_work(trace: dict[str, Any]) -> dict[str, Any]:
    """A PyTorch trace with what ran on devices, what launched it, and the steps."""
    work = [e for e in trace["traceEvents"] if e.get("cat") in DEVICE_WORK]
    launched = {e["args"].get("correlation") for e in work}
    operators = {e["args"].get("External id") for e in work}

    def is_kept(event: dict[str, Any]) -> bool:
        category, args = event.get("cat"), event.get("args", {})
        if category in ("cuda_runtime", "cuda_driver"):
            return args.get("correlation") in launched
        if category == "cpu_op":
            return args.get("External id") in operators
        return category in DEVICE_WORK or (category == "user_annotation" and event["name"].startswith("ProfilerStep#"))

    kept = [event for event in trace["traceEvents"] if is_kept(event)]
    return {"schemaVersion": trace["schemaVersion"], "deviceProperties": trace["deviceProperties"], "traceEvents": kept}


def function_of(place: str) -> Any:
    """The function behind `file.py:function`."""
    path, _, name = place.partition(":")
    spec = importlib.util.spec_from_file_location("program", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def jax_program(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function, argument shapes and options of a model of the zoo, or of `file.py:function`."""
    from measure import value

    from meshcast import zoo

    model, _, rest = name.partition(":")
    if model.endswith(".py"):
        function, specs, *options = function_of(name)()
        return function, specs, options[0] if options else {}
    settings = {key: value(v) for key, _, v in (part.partition("=") for part in rest.split(",") if part)}
    return zoo.build(model, **settings)


def jax_step(name: str, out: Path, steps: int, hlo: Path | None) -> None:
    """Steps back to back under JAX's profiler, after some that warm up."""
    import jax
    from measure import filled, run_once

    function, specs, options = jax_program(name)
    compiled = jax.jit(function, **options).lower(*specs).compile()
    if hlo is not None:
        hlo.write_bytes(gzip.compress(compiled.as_text().replace(f"{ROOT}/", "").encode(), mtime=0))
    leaves = iter(range(1 << 30))
    args = [jax.tree.map(lambda spec: filled(spec, next(leaves)), spec) for spec in specs]
    donated = tuple(options.get("donate_argnums", ()))

    def run(times: int) -> float:
        """Seconds a step of so many back to back; the last one's outputs are waited for."""
        nonlocal args
        start = time.perf_counter()
        for _ in range(times - 1):
            args = run_once(compiled, args, donated)
        if donated:
            args = run_once(compiled, args, donated)
            jax.block_until_ready(args)
        else:
            jax.block_until_ready(compiled(*args))
        return (time.perf_counter() - start) / times

    run(2)
    print(f"{name}: {min(run(UNPROFILED) for _ in range(3)) * 1e3:.4f} ms a step without a profiler")
    profiling = jax.profiler.ProfileOptions()
    profiling.python_tracer_level = 0
    profiling.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=profiling)
        run(steps)
        jax.profiler.stop_trace()
        (profile,) = Path(folder).rglob("*.xplane.pb")
        kept = device_planes(profile.read_bytes())
        if not kept:
            raise SystemExit("the profile has no device's plane: does JAX run on a GPU or TPU here?")
        out.write_bytes(gzip.compress(kept, mtime=0))


def torch_program(place: str, *, compiled: bool) -> Callable[[], None]:
    """One step of the module behind `file.py:function`, on the device: weights and inputs are drawn at random."""
    import torch

    module, inputs, *rest = function_of(place)()
    options = rest[0] if rest else {}
    model = module.to_empty(device="cuda")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    for buffer in model.buffers():
        buffer.zero_()

    def drawn(like: Any) -> Any:
        if like.dtype.is_floating_point:
            return torch.randn(like.shape, dtype=like.dtype, device="cuda")
        return torch.randint(0, INDEX_RANGE, like.shape, dtype=like.dtype, device="cuda")

    given = tuple(drawn(tensor) for tensor in inputs)
    called = torch.compile(model) if compiled else model
    if not options.get("train"):

        def forward() -> None:
            with torch.no_grad():
                called(*given)

        return forward
    targets = tuple(drawn(tensor) for tensor in options["targets"])
    named = options["optimizer"]
    # An optimizer that is given holds the module's weights of before, which have no storage.
    optimizer = (
        torch.optim.AdamW(model.parameters(), fused=True)
        if named == "adamw"
        else type(named)(model.parameters(), **named.defaults)
    )
    half = options.get("compute_dtype") == "bfloat16"

    def train() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = options["loss"](called(*given), *targets)
        loss.backward()
        if "clip_grad_norm" in options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()

    return train


def torch_step(place: str, out: Path, steps: int, *, compiled: bool) -> None:
    """Steps under PyTorch's profiler, each in a `ProfilerStep`."""
    import torch

    step = torch_program(place, compiled=compiled)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(UNPROFILED):
        step()
    torch.cuda.synchronize()
    print(f"{place}: {(time.perf_counter() - start) / UNPROFILED * 1e3:.4f} ms a step without a profiler")
    if str(out) == "-":
        torch.cuda.cudart().cudaProfilerStart()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        return
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=steps, repeat=1)
    written = tempfile.NamedTemporaryFile(suffix=".json")  # noqa: SIM115  # until the process ends
    with torch.profiler.profile(
        activities=kinds, schedule=schedule, on_trace_ready=lambda done: done.export_chrome_trace(written.name)
    ) as profiler:
        for _ in range(2 + steps):
            step()
            torch.cuda.synchronize()
            profiler.step()
    slim = device_work(json.loads(Path(written.name).read_text()))
    out.write_bytes(gzip.compress(json.dumps(slim, separators=(",", ":")).encode(), mtime=0))


def main() -> None:
    """Profiles one program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=("jax", "torch"))
    parser.add_argument("out", type=Path)
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--hlo", type=Path)
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    options = parser.parse_args()
    if options.framework == "jax":
        jax_step(options.program, options.out, options.steps, options.hlo)
    else:
        torch_step(options.program, options.out, options.steps, compiled=options.compile)


if __name__ == "__main__":
    main()
