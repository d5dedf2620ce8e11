"""Profiles programs unlike each other, for `meshcast compare --measured`: what alignment, classes and steps are tried on.

    python benchmarks/profile_many.py FOLDER [--seconds 460] [--only bert resnet50]

Each program runs in a process of its own (`profile_step.py`), so that one that fails leaves the others; none is begun after
`--seconds`. FOLDER gets `jax.tar` and `torch.tar` with what was recorded, `nsys.tar` where Nsight Systems is installed, and
`log.txt` with what the processes said. Tars are added to program by program: an interrupted run keeps what it has.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = "benchmarks/profiled_programs.py"
NO_GRAPHS = "--xla_gpu_enable_command_buffer="
LONGEST_S = 150.0
# name, framework, program, extra arguments; the ones that are most worth having first.
PROGRAMS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("bert-forward", "jax", "bert-base-forward:batch=24,seq=384", ()),
    ("torch-resnet50", "torch", "examples/pytorch/resnet.py:train", ()),
    ("torch-llama", "torch", f"{OWN}:torch_llama_train", ()),
    ("llama-decode", "jax", "llama3.2-1b-decode:batch=24,context=1536,param_dtype=bfloat16", ()),
    ("mixtral", "jax", "mixtral-tiny:batch=4,seq=768,dim=1536,ffn=3072,layers=3,heads=12,kv_heads=4,head_dim=128", ()),
    ("fused-attention", "jax", f"{OWN}:fused_attention", ()),
    ("torch-llama-forward", "torch", f"{OWN}:torch_llama_forward", ()),
    ("torch-gpt-compiled", "torch", "examples/pytorch/gpt.py:train", ("--compile",)),
    ("t5-small", "jax", "t5-small:batch=24,seq=384", ()),
    ("lstm-medium", "jax", "lstm-medium:batch=32", ()),
    ("torch-encoder", "torch", f"{OWN}:torch_encoder", ()),
    ("mamba-forward", "jax", "mamba-130m-forward:batch=4,seq=1024", ()),
    ("llama-decode-graphs", "jax", "llama3.2-1b-decode:batch=24,context=1536,param_dtype=bfloat16", ("graphs",)),
    ("resnet50", "jax", "resnet50:batch=48", ()),
    ("dit-forward", "jax", "dit-b2-forward:batch=32", ()),
    ("t5-small-graphs", "jax", "t5-small:batch=24,seq=384", ("graphs",)),
    ("lstm-medium-graphs", "jax", "lstm-medium:batch=32", ("graphs",)),
)


def environment(*, graphs: bool) -> dict[str, str]:
    """That of a process that profiles, with XLA's CUDA graphs or without."""
    flags = os.environ.get("XLA_FLAGS", "") + ("" if graphs else f" {NO_GRAPHS}")
    return {**os.environ, "XLA_FLAGS": flags.strip(), "PYTHONUNBUFFERED": "1"}


def said(command: list[str], env: dict[str, str], seconds: float) -> tuple[bool, str]:
    """Whether a command did its work in time, and what it printed."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False, f"not done after {seconds:.0f} s"
    return done.returncode == 0, done.stdout + done.stderr[-4000:]


def profiled(name: str, framework: str, program: str, extra: tuple[str, ...], folder: Path) -> tuple[bool, str]:
    """One program's files, in a folder."""
    graphs = "graphs" in extra
    out = folder / (f"{name}.xplane.pb.gz" if framework == "jax" else f"{name}.json.gz")
    command = [sys.executable, str(HERE / "profile_step.py"), framework, str(out), program]
    command += ["--hlo", str(folder / f"{name}.hlo.gz")] if framework == "jax" else []
    command += [argument for argument in extra if argument.startswith("--")]
    return said(command, environment(graphs=graphs), LONGEST_S)


def with_nsys(folder: Path) -> str:
    """The launches and the summary of one small program by Nsight Systems, where it is installed."""
    nsys = shutil.which("nsys")
    if nsys is None:
        return "nsys: not on the PATH"
    report = folder / "report"
    ranged = ["--trace", "cuda", "--capture-range=cudaProfilerApi", "--capture-range-end=stop", "-o", str(report)]
    program = [sys.executable, str(HERE / "profile_step.py"), "torch", "-", f"{OWN}:torch_encoder"]
    log = said([nsys, "profile", *ranged, *program], environment(graphs=True), LONGEST_S)[1] + "\n"
    for table in ("cuda_gpu_trace", "cuda_gpu_kern_sum"):
        stats = ["--report", table, "--format", "csv", "-o", str(folder / "nsys"), f"{report}.nsys-rep"]
        log += said([nsys, "stats", *stats], environment(graphs=True), LONGEST_S)[1] + "\n"
    return log


def added(tar: Path, folder: Path, pattern: str = "*.gz") -> None:
    """Puts a folder's files into a tar."""
    for path in sorted(folder.glob(pattern)):
        with tarfile.open(tar, "a") as into:
            into.add(path, arcname=path.name)


def main() -> None:
    """Profiles what there is time for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=460.0)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    def note(text: str) -> None:
        line = f"[{time.monotonic() - start:6.1f} s] {text.rstrip()}"
        print(line, flush=True)
        with (options.folder / "log.txt").open("a") as log:
            print(line, file=log)

    for name, framework, program, extra in PROGRAMS:
        if options.only and name not in options.only:
            continue
        if time.monotonic() - start > options.seconds:
            note(f"{name}: no time left")
            continue
        with tempfile.TemporaryDirectory() as folder:
            done, text = profiled(name, framework, program, extra, Path(folder))
            note(f"{name} ({program}): {'done' if done else 'FAILED'}\n{text}")
            added(options.folder / f"{framework}.tar", Path(folder))
    if not options.only and time.monotonic() - start < options.seconds:
        with tempfile.TemporaryDirectory() as folder:
            note(with_nsys(Path(folder)))
            added(options.folder / "nsys.tar", Path(folder), "*.csv")


if __name__ == "__main__":
    main()
