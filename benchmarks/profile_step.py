"""Profiles a few steps of a program on the device that JAX or PyTorch finds, for `meshcast compare --measured`.

    python benchmarks/profile_step.py jax OUT.xplane.pb.gz gpt2-small:batch=8 [--steps 4] [--hlo OUT.opt.hlo.gz]
    python benchmarks/profile_step.py torch OUT.json.gz examples/pytorch/gpt.py:gpt2_small [--steps 4]

Only what a comparison needs is kept: the devices' planes of a JAX profile; of a PyTorch trace the device's work, the launches and
operators behind it, and the steps. `--hlo` keeps what XLA compiled, with paths below this repository made relative.

`jax` takes a model of the zoo with its settings, `torch` a function that returns a GPT, trained with AdamW on batches of
8 sequences of 1024. With `XLA_FLAGS=--xla_gpu_enable_command_buffer=` every launch is named by its instruction; with CUDA
graphs, JAX's default, only by its kernel.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
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


def jax_step(name: str, out: Path, steps: int, hlo: Path | None) -> None:
    """Steps back to back under JAX's profiler, after two that warm up."""
    import jax
    from measure import filled, run_once, value

    from meshcast import models

    model, _, rest = name.partition(":")
    settings = {key: value(v) for key, _, v in (part.partition("=") for part in rest.split(",") if part)}
    function, specs, options = models.build(model, **settings)
    compiled = jax.jit(function, **options).lower(*specs).compile()
    if hlo is not None:
        hlo.write_bytes(gzip.compress(compiled.as_text().replace(f"{ROOT}/", "").encode(), mtime=0))
    leaves = iter(range(1 << 30))
    args = [jax.tree.map(lambda spec: filled(spec, next(leaves)), spec) for spec in specs]
    donated = tuple(options.get("donate_argnums", ()))
    for _ in range(2):
        args = run_once(compiled, args, donated)
    jax.block_until_ready(args)
    profiling = jax.profiler.ProfileOptions()
    profiling.python_tracer_level = 0
    profiling.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=profiling)
        for _ in range(steps):
            args = run_once(compiled, args, donated)
        jax.block_until_ready(args)
        jax.profiler.stop_trace()
        (profile,) = Path(folder).rglob("*.xplane.pb")
        kept = device_planes(profile.read_bytes())
        if not kept:
            raise SystemExit("the profile has no device's plane: does JAX run on a GPU or TPU here?")
        out.write_bytes(gzip.compress(kept, mtime=0))


def torch_step(place: str, out: Path, steps: int) -> None:
    """Steps under PyTorch's profiler, each in a `ProfilerStep`."""
    import torch

    path, _, name = place.partition(":")
    spec = importlib.util.spec_from_file_location("model", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = getattr(module, name)().to_empty(device="cuda")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, targets = (torch.randint(0, 50257, (8, 1024), device="cuda") for _ in range(2))
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=0, warmup=3, active=steps, repeat=1)
    written = tempfile.NamedTemporaryFile(suffix=".json")  # noqa: SIM115  # until the process ends
    with torch.profiler.profile(
        activities=kinds, schedule=schedule, on_trace_ready=lambda done: done.export_chrome_trace(written.name)
    ) as profiler:
        for _ in range(3 + steps):
            with torch.autocast("cuda", torch.bfloat16):
                loss = module.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
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
    options = parser.parse_args()
    if options.framework == "jax":
        jax_step(options.program, options.out, options.steps, options.hlo)
    else:
        torch_step(options.program, options.out, options.steps)


if __name__ == "__main__":
    main()
