"""A folder in which the commands of the pages run as they are written.

The pages speak of the reader's own files (`step.mlir`, `path/to/config.json`) and of measurements that lie beside the checkout.
Here each is a small one of the same kind, so that a command is run to its end, on less. What pages tell the
reader to save (`train.py`) is what they have to save.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from functools import cache
from pathlib import Path

from meshcast.estimate.systolic.array import ArrayBuffer, SystolicArray
from meshcast.estimate.systolic.files import config_text
from tests.documentation.pages import ROOT, blocks
from tests.traces.recorded.recordings import BASE, execution_trace, profile, write

FIXTURES = ROOT / "tests" / "fixtures"
MEASURED = ROOT / "data" / "measured"
WITH_FILES = tuple(ROOT / "docs" / name for name in ("tutorial.md", "how-to.md", "extending.md"))
PROFILE_STEP = 25  # every so many rows of a profile are kept
GROUND_TRUTH = ("mlp-tiny-batch256", "gpt2-tiny-batch8")  # of the shipped programs measured on an H200, two small ones

STEP = """
func.func public @main(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<512xf32> {
  %0 = call @layer(%x, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %1 = call @layer(%0, %w) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<512x512xf32>, tensor<f32>) -> tensor<512xf32>
  return %2 : tensor<512xf32>
}
func.func private @layer(%x: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %1 = stablehlo.tanh %0 : tensor<512x512xf32>
  return %1 : tensor<512x512xf32>
}"""

ARRAY = SystolicArray(
    rows=32, columns=32, dataflow="ws", ifmap=ArrayBuffer(words=65536, bandwidth=10),
    filter=ArrayBuffer(words=65536, bandwidth=10), ofmap=ArrayBuffer(words=65536, bandwidth=10),
)  # fmt: skip
LAYERS = "Layer,M,N,K,\nfirst,64,64,64,\nsecond,128,64,32,\n"
NETWORK = "topology: [Ring]\nnpus_count: [8]\nbandwidth: [100.0]\nlatency: [500.0]\n"
SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"], "collective-optimization": "localBWAware", "local-mem-bw": 1600,
}  # fmt: skip


def told_to_save() -> dict[str, str]:
    """Files that pages tell the reader to save: pieces whose first line is a comment with nothing but the file's name."""
    pieces = [block for page in WITH_FILES for block in blocks(page)]
    named = [(re.fullmatch(r"# ([\w-]+\.(?:py|toml))", block.lines[0]), block.text) for block in pieces]
    return {found[1]: text + "\n" for found, text in named if found}


def write_workspace(folder: Path) -> Path:
    """Makes the checkout that the pages speak of below `folder`, with the measurements beside it; returns the checkout."""
    project = folder / "project"
    project.mkdir()
    for name in ("examples", "benchmarks", "data"):
        (project / name).symlink_to(ROOT / name)
    (project / "docs").mkdir()
    fitted = project / "src" / "meshcast" / "estimate" / "data"
    fitted.mkdir(parents=True)  # what a fit writes goes here, not into the package
    for name in ("step.mlir", "a.mlir", "b.mlir"):
        (project / name).write_text(STEP)
    for name, text in told_to_save().items():
        (project / name).write_text(text)
    _write_recordings(project)
    _write_products(project)
    shutil.copy(ROOT / "examples" / "pytorch" / "gpt.py", project / "gpt.py")
    for name in ("path/to", "path/to/model"):
        (project / name).mkdir(parents=True, exist_ok=True)
        (project / name / "config.json").write_text(_small_model())
    for name in ("tiny.py", "stages.py"):
        shutil.copy(ROOT / "examples" / "pipeline" / name, project / name)
    shutil.copy(ROOT / "examples" / "pipeline" / "tiny.toml", project / "pipeline.toml")
    (project / "scale.cfg").write_text(config_text(ARRAY))
    (project / "Resnet18.csv").write_text(LAYERS)
    (project / "network.yml").write_text(NETWORK)
    (project / "system.json").write_text(json.dumps(SYSTEM))
    (project / "profile").mkdir()
    profile = ROOT / "examples" / "measured" / "gpt2-small.xplane.pb.gz"
    shutil.copy(profile, project / "profile" / profile.name)
    (project / "run.xplane.pb").write_bytes(gzip.decompress(profile.read_bytes()))
    compiled = ROOT / "examples" / "measured" / "gpt2-small.hlo.gz"
    (project / "step.hlo").write_bytes(gzip.decompress(compiled.read_bytes()))
    shutil.copy(ROOT / "src" / "meshcast" / "estimate" / "data" / "h200.kernels.npz", project / "half.npz")
    (project / "h200.profile.jsonl.gz").write_bytes(_short_profile())
    _ground_truth(folder / "shared" / "groundtruth")
    return project


def _small_model() -> str:
    config = json.loads((FIXTURES / "huggingface" / "Llama-3.2-1B.json").read_text())
    return json.dumps({**config, "num_hidden_layers": 2})


@cache
def _short_profile() -> bytes:
    """A measured profile of fewer rows: fitting all of them takes half a minute."""
    lines = gzip.decompress((MEASURED / "h200-profile" / "h200.profile.jsonl.gz").read_bytes()).splitlines(
        keepends=True
    )
    return gzip.compress(b"".join([lines[0], *lines[1::PROFILE_STEP]]))


def _ground_truth(folder: Path) -> None:
    measured = folder / "h200"
    (measured / "programs").mkdir(parents=True)
    rows = [json.loads(line) for line in (MEASURED / "h200-zoo" / "measurements.jsonl").read_text().splitlines()]
    with (measured / "measurements.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows if row["id"] in GROUND_TRUTH)
    for name in GROUND_TRUTH:
        shutil.copy(MEASURED / "h200-zoo" / "programs" / f"{name}.mlir.gz", measured / "programs")
    shutil.copytree(measured, folder / "h200-wild")
    for name in ("collectives.csv", "runs.csv", "tpu_ops.csv"):
        shutil.copy(FIXTURES / name, folder / name)
    shutil.copy(FIXTURES / "astra_sim.csv", folder / "astra_sim_reference.csv")


def _write_products(project: Path) -> None:
    """Measured products of a systolic array, as somebody might time them."""
    sides = (64, 256, 1024)
    rows = [f"{m},{k},{n},{1 + m * k * n / 1e7}" for m in sides for k in sides for n in sides]
    (project / "products.csv").write_text("\n".join(["m,k,n,time_us", *rows, ""]))


def _write_recordings(project: Path) -> None:
    """Recordings of a rank alone and of two, each in one of the profiler's steps."""
    for rank, place in ((0, "."), (0, "rank0"), (1, "rank1")):
        et, kineto = ("et.json", "kineto.json") if place == "." else (f"ets/{place}.json", f"profiles/{place}.json")
        recording = profile(rank)
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#12", "ts": BASE, "dur": 100}
        recording["traceEvents"].append(step)
        write(project, et, execution_trace(2))
        write(project, kineto, recording)
