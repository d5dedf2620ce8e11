"""The software of a run: its stack, and what the run says the stack did otherwise than its recipes.

A framework is a stack of `docs/stacks.md`, or one that does as it does. Where none is named, the usual one is taken and listed
as assumed: MaxText on TPUs; on NVIDIA's GPUs PyTorch's FSDP where weights are sharded, Megatron where layers are split or
staged, plain data parallelism otherwise; XLA on anything else.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.base import MeshcastError, with_article
from meshcast.hardware import Device
from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.frameworks import PYTORCH, RELATED, STACKS, SUBMISSIONS, canonical, known_names, nearest_name
from meshcast.jobs.stated.run import StatedRun
from meshcast.jobs.stated.shapes import RunModel
from meshcast.options import Stack, load_stack, stack_names
from meshcast.simulate import HostCosts

_OLD_MEGATRON = 2022  # the last year of kernels written by hand, and of attention by products
ATTENTION = {"flash": "flash", "splash": "flash", "cudnn": "flash", "plain": "plain"}
_ANYWHERE = ("xla", "maxtext")  # stacks of compilers for any device
# Vendors that submit to MLPerf with NVIDIA's software or ports of it: AMD's decoders are Megatron's with Transformer Engine for
# ROCm (closed/AMD/benchmarks of mlcommons/training_results_v5.0 and v5.1).
_SUBMITTERS = ("nvidia", "amd")
_IMAGES_OF_MXNET = ("resnet", "volumes")
# Parameters of a bucket: `bucket_size` of megatron/core/distributed/distributed_data_parallel_config.py, by data-parallel ranks.
_BUCKET, _BUCKET_OF_A_RANK = 40_000_000, 1_000_000
# XLA combines all-reduces up to 30 MiB (`xla_gpu_all_reduce_combine_threshold_bytes` of debug_options_flags.cc); the compiler of
# TPUs does so too (`xla_jf_crs_combiner_threshold_in_bytes`, which MLPerf's submissions set), its default is not published.
_COMBINED, _COMPILERS = 30 * 2**20, ("jax",)
_HALF = 2  # bytes of a gradient in half precision
_MEGATRONS = ("megatron", "nemo")
_SPLIT = ("tp", "pp", "cp")
_FUSED_ON_GPUS = ("paxml", "praxis")
_FUSED_SINCE = 2024
_ONE_COPY = ("deepep", "hybridep", "flex")  # dispatchers that send a token to each host once
_ALL_COPIES = "every copy of a token goes to its expert by itself: no dispatcher is told that sends one to each host"


def stack_of(run: StatedRun, device: Device, found: Findings, model: RunModel | None = None) -> Stack | None:
    """The stack of a run, with what it says of attention and CUDA graphs."""
    try:
        stack = load_stack(_name(run, device, found, model))
    except MeshcastError as error:
        found.lacks(f"a stack that is known: {error.message}{f' ({error.fix})' if error.fix else ''}", of="stack")
        return None
    if stack.fusion == "eager" and device.kind != "gpu":
        found.assumes(f"stack xla, where {stack.name} is told: programs for {with_article(device.kind)} are compiled")
        stack = load_stack("xla")
    if run.attention in ATTENTION:
        stack = replace(stack, attention=ATTENTION[run.attention])  # type: ignore[arg-type]
    elif _fuses_attention(run, device):
        found.assumes(f"attention by cuDNN, which {run.framework} has had on GPUs since {_FUSED_SINCE}")
        stack = replace(stack, attention="flash")
    if run.attention == "cudnn":
        stack = replace(stack, attention_library="cudnn")
    if run.extra.graphs and device.kind == "gpu":
        stack = replace(stack, host=_graphed(stack.host, whole=run.extra.whole_graph))
    return stack


def _fuses_attention(run: StatedRun, device: Device) -> bool:
    """Whether software of JAX whose stack has plain attention runs cuDNN's by default.

    Paxml's GPU containers: XLA finds attention and hands it to cuDNN since February 2024, Transformer Engine did before
    (`rosetta/rosetta/projects/pax/README.md` of NVIDIA/JAX-Toolbox in May 2024).
    """
    year = run.software_year
    return (
        canonical(run.framework) in _FUSED_ON_GPUS and device.kind == "gpu" and (year is None or year >= _FUSED_SINCE)
    )


def _graphed(host: HostCosts, *, whole: bool) -> HostCosts:
    """The host's costs with CUDA graphs; of one that holds a whole step, all of its kernels are a graph's."""
    if not whole:
        return replace(host, graphs=True)
    in_graph = host.graph_kernel
    return replace(
        host, graphs=True, each_expert=False, launch=in_graph, convolution=in_graph, relaunch=in_graph, iteration=0.0
    )


def _name(run: StatedRun, device: Device, found: Findings, model: RunModel | None) -> str:
    """The stack's name: as it is told, else by the framework's."""
    if run.stack:
        return run.stack
    framework, year = canonical(run.framework), run.software_year
    if framework in stack_names() and framework != "megatron":
        return framework
    # DeepSpeed's stages are its own; layers that it splits by tensor are Megatron's.
    if framework == "deepspeed" and max(run.degree("pp"), run.degree("tp")) > 1:
        return "megatron-deepspeed"
    if framework == "megatron":
        return "megatron-2022" if year is not None and year <= _OLD_MEGATRON else "megatron"
    if framework in STACKS:
        return STACKS[framework]
    if framework == SUBMISSIONS and device.vendor.lower() in _SUBMITTERS:
        return _submitted(model, found)
    if framework in RELATED and (device.kind == "gpu" or RELATED[framework] in _ANYWHERE):
        found.assumes(f"stack {RELATED[framework]}, for {framework}")
        return RELATED[framework]
    if framework in PYTORCH and device.kind == "gpu":
        return _pytorch(run, framework, found)
    return _usual(run, device, found, model)


def _submitted(model: RunModel | None, found: Findings) -> str:
    """The stack of a submission to MLPerf on GPUs, which goes by its model.

    Decoders are NeMo's. Images were MXNet's as long as they were classified (ResNet-50 up to v4.0, U-Net up to v4.1); all other
    references are PyTorch, which NVIDIA submits with Apex's kernels and CUDA graphs.
    """
    module = "" if model is None else model.builder.module
    name = "mxnet" if module in _IMAGES_OF_MXNET else "nemo" if model is None or model.planned else "apex"
    found.assumes(f"stack {name}, for {SUBMISSIONS}: NVIDIA's submissions of such models run it")
    return name


def _pytorch(run: StatedRun, framework: str, found: Findings) -> str:
    """PyTorch's stacks differ by what is sharded and by whether a compiler fuses."""
    name = "pytorch-fsdp" if run.zero or run.degree("fsdp") > 1 or framework == "torchtitan" else "pytorch-ddp"
    if run.flags.get("compiled"):
        name = "pytorch-compile"
    if framework == "tensorflow":
        name = "xla" if run.flags.get("compiled") else name
    if framework not in ("torchtitan", "pytorch"):
        found.assumes(f"stack {name}, for {framework}")
    return name


def _usual(run: StatedRun, device: Device, found: Findings, model: RunModel | None) -> str:
    """What such runs mostly use; of an unknown framework the stack of the one that its name is most like."""
    known = canonical(run.framework) in known_names()
    if not known and (near := nearest_name(run.framework)):
        found.assumes(f"framework {near}: {run.framework} is none that is known, and the nearest to it by name")
        return _name(replace(run, framework=near), device, found, model)
    if device.kind == "tpu" and device.vendor.lower() != "google":
        name, why = "maxtext", f"on {device.vendor}"
    elif device.kind == "tpu":
        name, why = "maxtext", "on TPUs"
    elif device.vendor.lower() != "nvidia":
        name, why = "xla", f"on {device.vendor}"
    elif run.degree("fsdp") > 1:
        name, why = "pytorch-fsdp", "for fsdp on NVIDIA"
    elif any(run.degree(each) > 1 for each in _SPLIT):
        name, why = "megatron", f"for {', '.join(_SPLIT)} on NVIDIA"
    else:
        name, why = "pytorch-ddp", "on NVIDIA, with weights whole on each device"
    told = f"{run.framework} is none that is known" if run.framework else "no framework is told"
    told = f"{run.framework} has no stack of its own there" if known else told
    found.assumes(f"stack {name}, the usual one {why}: {told}")
    return name


def _is_bucket(rewrite: str) -> bool:
    return rewrite.startswith("buckets")


def overlap_of(run: StatedRun, stack: Stack, found: Findings | None = None, *, planned: bool = True) -> str:
    """The stack's rewrites, and those that the run adds or takes away; its own where it names them.

    What is taken for granted goes to `found`, where that is given. Megatron's own models are `planned`; others that its
    DistributedDataParallel trains have their gradients reduced in its buckets beside the backward pass.
    """
    if run.overlap is not None:
        return run.overlap
    rewrites = [each for each in stack.overlap.split(",") if each]
    if not planned and stack.framework in _MEGATRONS and not any(map(_is_bucket, rewrites)):
        ranks = run.degree("dp") * run.degree("fsdp")
        rewrites += [f"buckets={_HALF * max(_BUCKET, _BUCKET_OF_A_RANK * ranks)}B", "late-reductions"]
    if not planned and stack.framework in _COMPILERS and run.devices > 1 and not any(map(_is_bucket, rewrites)):
        rewrites.append(f"buckets={_COMBINED}B")
    # Megatron's `moe_token_dispatcher_type` is `alltoall` and its `moe_flex_dispatcher_backend` none unless a recipe sets them.
    if "one-copy" in rewrites and run.degree("ep") > 1 and run.extra.values.get("dispatcher", "") not in _ONE_COPY:
        if found is not None:
            found.assumes(_ALL_COPIES)
        rewrites.remove("one-copy")
    # DeepSpeed's optimizer for fp16 adds gradients up in that type.
    if run.precision == "fp16":
        rewrites = [each for each in rewrites if each != "wide-sums"]
    asynchronous = run.flags.get("async_tp")
    if asynchronous and "async-tp" not in rewrites:
        rewrites.append("async-tp")
    if asynchronous is False:
        rewrites = [each for each in rewrites if each != "async-tp"]
    # Exchanges with experts run beside another microbatch's layers, which takes interleaved stages.
    if "a2a_overlap" in run.extra.words and run.degree("vp") > 1 and run.degree("ep") > 1:
        rewrites.append("paired-passes")
    # Transformer Engine's `fp8_dpa`: attention's own products in 8 bits.
    if {"fp8_attention", "fp8_dpa", "float8_attention"} & run.extra.words:
        rewrites.append("narrow-attention")
    # Images channels first: batch norms have a block a channel, but for a compiler's; cuDNN turns images where tensor cores
    # convolve them.
    if "nchw" in run.extra.words:
        rewrites += [] if run.precision in ("", "fp32") else ["turned-images"]
        rewrites += ["channel-sums"] if stack.framework in ("pytorch", "mxnet") else []
    return ",".join(rewrites)
