"""Profiles programs unlike each other, for `meshcast compare --measured`: what alignment, classes and steps are tried on.

    python benchmarks/profile_many.py FOLDER [--seconds 460] [--only bert resnet50]

Each program runs in a process of its own (`profile_step.py`), so that one that fails leaves the others; none is begun after
`--seconds`. FOLDER gets `jax.tar` and `torch.tar` with what was recorded, `nsys.tar` where Nsight Systems is on the PATH, and
`log.txt` with what the processes said. Tars are added to program by program: an interrupted run keeps what it has. `--only` takes
`torch-gpt-nsys` and `torch-llama-nsys`, too.
"""

from __future__ import annotations

import argparse
import gzip
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
# Of these, Nsight Systems records the launches and their summary as well.
NSYS_PROGRAMS = {"torch-gpt": "examples/pytorch/gpt.py:train", "torch-llama": f"{OWN}:torch_llama_train"}
NSYS_TABLES = {"-nsys": "cuda_gpu_trace", "-nsys-sum": "cuda_gpu_kern_sum"}


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


def with_nsys(name: str, program: str, folder: Path) -> tuple[bool, str]:
    """The launches and the summary of four steps of a program by Nsight Systems, as `nsys stats` prints them."""
    nsys = shutil.which("nsys")
    if nsys is None:
        return False, "nsys is not on the PATH"
    report = folder / name.removeprefix("torch-")
    env = environment(graphs=True)
    ranged = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "-f", "true", "-o", str(report)]
    command = [sys.executable, str(HERE / "profile_step.py"), "torch", "-", program]
    profile = [nsys, "profile", "--sample=none", "--cpuctxsw=none", "--trace=cuda", *ranged, *command]
    log = said(profile, env, LONGEST_S)[1]
    finished, raw = report.with_suffix(".nsys-rep"), report.with_suffix(".qdstrm")
    importer = shutil.which("QdstrmImporter")
    if not finished.exists() and raw.exists() and importer is not None:
        # The nsys that comes with Nsight Compute has no importer of its own beside it, and leaves what it recorded as it is.
        log += said([importer, "--input-file", str(raw), "--output-file", str(finished)], env, LONGEST_S)[1]
    if not finished.exists():
        return False, log
    for suffix, table in NSYS_TABLES.items():
        stats = [nsys, "stats", "--report", table, "--format", "csv", str(finished)]
        done = subprocess.run(stats, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        if done.returncode:
            return False, log + done.stderr[-4000:]
        content = done.stdout.replace(f"{folder}/", "").encode()
        (folder / f"{name}{suffix}.csv.gz").write_bytes(gzip.compress(content, mtime=0))
    return True, log


def added(tar: Path, folder: Path) -> None:
    """Puts a folder's files into a tar."""
    for path in sorted(folder.glob("*.gz")):
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
    for name, program in NSYS_PROGRAMS.items():
        if options.only and f"{name}-nsys" not in options.only:
            continue
        if time.monotonic() - start > options.seconds:
            note(f"{name}-nsys: no time left")
            continue
        with tempfile.TemporaryDirectory() as folder:
            done, text = with_nsys(name, program, Path(folder))
            note(f"{name}-nsys ({program}): {'done' if done else 'FAILED'}\n{text}")
            added(options.folder / "nsys.tar", Path(folder))


if __name__ == "__main__":
    main()
