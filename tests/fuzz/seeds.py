"""The good inputs that mutations start from: the repository's own files, small ones written here, and what is made of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
OWN = Path(__file__).parent / "seeds"
FIXTURES = TESTS / "fixtures"
DATA = REPOSITORY / "src" / "meshcast"
# What commands name besides their input; copied beside the inputs, so that a command does not hang on the checkout's place.
_PIPELINE = REPOSITORY / "examples" / "pipeline"
BESIDE = (
    FIXTURES / "tanh.mlir",
    FIXTURES / "sharded.mlir",
    FIXTURES / "unknown_loop.mlir",
    OWN / "dynamic.mlir",
    _PIPELINE / "tiny.py",
    _PIPELINE / "stages.py",
)

PREDICT_LINES = (
    "../seeds/tanh.mlir --on h200 --fidelity roofline --clocks burst --host on",
    "../seeds/sharded.mlir --on dgx-h100 --devices 8 --network flow --scheduler ideal --channels 2",
    "../seeds/sharded.mlir --on dgx-a100 --slow 1=0.8 --link nvlink:0x2=0.5 --background nvlink=0.25",
    "../seeds/sharded.mlir --on dgx-h100 --overlap prefetch,buckets=25MiB --contention off --stack pytorch-fsdp",
    "../seeds/sharded.mlir --on tpu-v5p-pod --mesh data=2 --fidelity simulated --indices zipf:1.05",
    "../seeds/sharded.mlir --on dgx-h100 --network flow --beside all_reduce:1MiB:8-15",
    "../seeds/unknown_loop.mlir --on h200 --trip-count 3",
    "../seeds/dynamic.mlir --on h200 --dim arg0.0=32",
    "../seeds/tanh.mlir --on mi300x --lowering modelled --approximate",
)
PLAN_LINES = (
    "--set batch=8 --set seq=128 --set layers=2 --plan dp=2,tp=2,mbs=1,remat=full",
    "--set batch=8 --set seq=128 --plan fsdp=4,tp=2,sp=1,remat=selective,attention=flash",
    "--set batch=8 --set mode=decode --set context=64",
)
COLLECTIVE_LINES = (
    "all_reduce --bytes 1MiB --on dgx-h100 --devices 8 --algorithm ring --protocol LL128",
    "all_to_all --bytes 1KiB..8MiB --on dgx-a100 --devices 32 --algorithm direct",
    "all_gather --bytes 1048576 --on tpu-v5p-pod --devices 64 --mesh x=8,y=8 --axes x --network flow",
    "collective_permute --bytes 2MB --on gb200-nvl72 --with all_reduce:1MiB --network flow",
)
SYSTOLIC_LINES = (
    "--rows 32 --cols 32 --dataflow ws --gemm 512,256,128 --sram 64,64,64 --bandwidth 10",
    "--rows 8 --cols 16 --dataflow os --conv 56,56,3,3,64,64,1 --bandwidth 10,5,5",
    "--rows 128 --cols 128 --dataflow is --gemm 1000,1000,1000 --gemm 3,4,5",
)
SHOW_LINES = (
    "../seeds/sharded.mlir --kernels --on h200 --explain 1 --limit 3",
    "../seeds/tanh.mlir --on h200 --fidelity roofline",
)
COMPARE_LINES = ("../seeds/tanh.mlir ../seeds/sharded.mlir --on h200,dgx-h100 --fidelity roofline,analytical",)

OPEN = ("dynamic.mlir", "unknown_loop.mlir")
_FABRIC = """\
schema = "meshcast.fabric/1"
name = "lab"
devices = "4 devices"
nodes = [{ name = "host", kind = "switch", count = "2 nodes" }, { name = "leaf" }]

[[links]]
from = ["0", "1"]
to = ["host.0"]
bandwidth = "100 GB/s"
latency = "1 us"
kind = "nvlink"

[[links]]
from = ["2..3"]
to = ["host.1"]
bandwidth = "50 GB/s"
count = "2 links"
kind = "nvlink"

[[links]]
from = ["host"]
to = ["leaf"]
bandwidth = "50 GB/s"
kind = "infiniband"
one_way = false

[[speeds]]
devices = ["3"]
share = "0.5"
"""
_NETWORKS = (
    "topology: [ Switch, Switch ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 419.1, 46.5 ]  # GB/s\nlatency: [ 300.0, 1350.0 ]  # ns\n",
    "topology: [ Ring, FullyConnected, Switch ]\nnpus_count: [ 4, 2, 2 ]\nbandwidth: [ 50, 50, 25 ]\n"
    "latency: [ 500, 500, 1000 ]\n",
)
_SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct4"], "all-gather-implementation": ["ring", "direct"],
    "reduce-scatter-implementation": ["ring", "direct"], "all-to-all-implementation": ["direct", "direct"],
    "collective-optimization": "localBWAware", "local-mem-bw": 1600, "roofline-enabled": 1, "peak-perf": 900, "boost-mode": 0,
}  # fmt: skip
_COLLECTIVES = (
    "id,source_url,hardware,devices,nodes,collective,dtype,bytes,time_us,busbw_GBps,notes\n"
    "a,https://example.com,H100,8,1,all_reduce,f32,2097152,40,91.7,\nb,,H100,8,1,alltoall,f32,2048,10,,\n"
    "c,,DGX H100 + 8x400Gb,,multi,all_reduce,,large,,380,vendor expected peak busbw\n"
)
_RUNS = (
    "id,source_url,grade,device,devices,framework,model,layers,hidden,ffn,heads,kv_heads,vocab,seq,gbs,mbs,precision,fsdp,tp,pp,"
    "recompute,extra,step_time_s\n"
    "a,https://example.com/maxtext,A,h100-sxm,8,maxtext,llama-9,2,256,512,4,4,1024,256,16,2,bf16,8,1,1,full,weights=fp32;relu,0.1\n"
)
_SMALL_CONFIG = {"num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "first_k_dense_replace": 1}


def _texts(paths: Sequence[Path]) -> list[bytes]:
    return [path.read_bytes() for path in sorted(paths)]


@cache
def stablehlo() -> list[bytes]:
    """StableHLO as text: JAX's own, of every family of ops, some sharded and one with a dynamic shape."""
    return _texts([path for path in (*OWN.glob("*.mlir"), *FIXTURES.glob("*.mlir")) if path.name not in OPEN])


@cache
def open_stablehlo() -> list[bytes]:
    """StableHLO that leaves open what a flag must say."""
    return [(OWN / "dynamic.mlir").read_bytes(), (FIXTURES / "unknown_loop.mlir").read_bytes()]


@cache
def hlo() -> list[bytes]:
    """XLA's HLO as text, before and after its passes."""
    return _texts([*OWN.glob("*.hlo"), *FIXTURES.glob("*.hlo"), *TESTS.glob("data/**/*.hlo")])


@cache
def bytecode() -> list[bytes]:
    """StableHLO as MLIR's bytecode."""
    from meshcast.programs import mlir

    return [
        mlir.to_bytecode(mlir.parse_module(text.decode(), where="seed"))
        for text in stablehlo()
        if b"!quant." not in text
    ]


@cache
def portable() -> list[bytes]:
    """StableHLO as portable artifacts, with a version of the dialect."""
    from jaxlib.mlir.dialects import stablehlo as dialect

    version = dialect.get_current_version()
    texts = [
        text
        for text in stablehlo()
        if not any(word in text for word in (b"sdy.", b"chlo.", b"!quant.", b"@shape_assertion"))
    ]
    return [bytes(dialect.serialize_portable_artifact_str(text.decode(), version)) for text in texts]


@cache
def exported() -> list[bytes]:
    """Artifacts of `jax.export`."""
    import jax
    import jax.numpy as jnp
    from jax import export

    shape = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    functions = (jnp.tanh, lambda x: jax.lax.fori_loop(0, 3, lambda i, a: a @ a.T @ a, x))
    found = [bytes(export.export(jax.jit(f), platforms=("cuda",))(shape).serialize()) for f in functions]
    (size,) = export.symbolic_shape("b")
    symbolic = jax.ShapeDtypeStruct((size, 64), jnp.float32)
    return [*found, bytes(export.export(jax.jit(jnp.sin), platforms=("tpu",))(symbolic).serialize())]


@cache
def devices() -> list[bytes]:
    """Devices of the catalogue."""
    return _texts(list((DATA / "hardware" / "catalogue" / "devices").glob("*.toml")))


@cache
def clusters() -> list[bytes]:
    """Clusters of the catalogue."""
    return _texts(list((DATA / "hardware" / "catalogue" / "clusters").glob("*.toml")))


@cache
def stacks() -> list[bytes]:
    """Software stacks."""
    return _texts(list((DATA / "options" / "stacks" / "data").glob("*.toml")))


@cache
def fabrics() -> list[bytes]:
    """A graph of links."""
    return [_FABRIC.encode()]


@cache
def pipelines() -> list[bytes]:
    """Pipelines of small programs, which lie beside the inputs."""
    found = _texts(list(_PIPELINE.glob("tiny*.toml")))
    return [text.replace(b"tiny.py:", b"../seeds/tiny.py:") for text in found]


@cache
def astra_networks() -> list[bytes]:
    """ASTRA-sim's networks."""
    return [text.encode() for text in _NETWORKS]


@cache
def astra_systems() -> list[bytes]:
    """ASTRA-sim's systems and memories."""
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 200}
    return [json.dumps(each, indent=1).encode() for each in (_SYSTEM, memory)]


@cache
def huggingface() -> list[bytes]:
    """Configurations of the hub, of two layers: what a layer costs to capture is what an input costs."""
    found = []
    for path in sorted((FIXTURES / "huggingface").glob("*.json")):
        config = json.loads(path.read_text())
        config.update({key: value for key, value in _SMALL_CONFIG.items() if key in config})
        found.append(json.dumps(config, indent=1).encode())
    return found


@cache
def chakra() -> list[bytes]:
    """Chakra traces of one rank: what is computed, sent, received and reduced."""
    from meshcast.chakra import trace_bytes
    from tests.jobs.traced.jobs import collective, compute

    return [trace_bytes([compute(0, 5.0), collective(1, 0.0, 0), compute(2, 7.0, 1)]), trace_bytes([compute(0, 5.0)])]


@cache
def kineto() -> list[bytes]:
    """PyTorch's profiles."""
    from tests.evidence.profiler.traces import kernel_event
    from tests.evidence.profiler.traces import kineto as written

    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0.0, "dur": 50.0},
        {"ph": "X", "cat": "cpu_op", "name": "aten::tanh", "ts": 11, "dur": 5, "args": {"External id": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 12, "dur": 1, "args": {"correlation": 5}},
        kernel_event("loop_tanh_fusion", 30.0, 4.0, grid=[8, 1, 1], block=[128, 1, 1], **{"External id": 1}),
    ]
    return [written([kernel_event("loop_tanh_fusion", 30.0, 2.5, correlation=5)]), written(events, compressed=True)]


@cache
def nsys() -> list[bytes]:
    """Tables of Nsight Systems: launches, and their summary."""
    summary = (
        "Time (%),Total Time (us),Instances,Avg (us),Name\n"
        '75.0,"1,500.0",30,50,loop_tanh_fusion\n25.0,500.0,10,50,"add<a, b>"\n'
    )
    return [(OWN / "measured.csv").read_bytes(), summary.encode()]


@cache
def xplane() -> list[bytes]:
    """JAX's profiles."""
    from tests.evidence.profiler.traces import Plane, xspace

    stats = {"hlo_op": "loop_tanh_fusion", "hlo_module": "jit_f", "name": "jit(f)/tanh"}
    plane: Plane = {
        "Stream #14(Compute)": [("loop_tanh_fusion", 2000.0, 2500.0, stats)],
        "XLA Modules": [("jit_f", 0.0, 9000.0, {})],
    }
    return [xspace({"/device:GPU:0": plane})]


@cache
def profile_npz() -> list[bytes]:
    """Measured kernels as the collector writes them."""
    return [(DATA / "estimate" / "data" / "h200.kernels.npz").read_bytes()]


@cache
def profile_jsonl() -> list[bytes]:
    """Measured kernels as `meshcast calibrate` writes them."""
    return [gzip.compress((OWN / "h200.profile.jsonl").read_bytes(), mtime=0)]


@cache
def layers() -> list[bytes]:
    """Layers as SCALE-Sim has them."""
    products = b"Layer, M, N, K,\nfirst, 3, 4, 5,\nsparse,3,4,5,2:4,\n"
    convolutions = b"\n".join((REPOSITORY / "benchmarks" / "resnet18.csv").read_bytes().split(b"\n")[:4])
    return [products, convolutions, b"header\nDP1, 8, 8, 3, 3, 5, 1, 1,\n"]


@cache
def systolic_configs() -> list[bytes]:
    """A SCALE-Sim configuration."""
    from meshcast.estimate.systolic.files import config_text
    from tests.estimate.systolic.test_files import ARRAY

    return [config_text(ARRAY).encode()]


def _head(path: Path, lines: int) -> bytes:
    return b"\n".join(path.read_bytes().split(b"\n")[:lines]) + b"\n"


@cache
def op_rows() -> list[bytes]:
    """Measured ops, as `validate ops` reads them."""
    head, *rows = (FIXTURES / "tpu_ops.csv").read_bytes().split(b"\n")
    return [b"\n".join((head, *rows[at : at + 3])) + b"\n" for at in range(0, min(30, len(rows) - 3), 3)]


@cache
def astra_rows() -> list[bytes]:
    """ASTRA-sim's answers, as `validate astra` reads them."""
    return [_head(FIXTURES / "astra_sim.csv", 5)]


@cache
def collective_rows() -> list[bytes]:
    """Measured collectives, as `validate collectives` reads them."""
    return [_COLLECTIVES.encode()]


@cache
def run_rows() -> list[bytes]:
    """Published runs, as `validate runs` reads them."""
    return [_RUNS.encode()]
