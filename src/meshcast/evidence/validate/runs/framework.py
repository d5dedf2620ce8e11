"""The software stack of a run: the one that a column names, else by the words of its source, else the usual one.

Where nothing is said, the usual stack is taken and listed as assumed: MaxText on TPUs; on NVIDIA's GPUs PyTorch's FSDP where
weights are sharded, Megatron where layers are split or staged, plain data parallelism otherwise; XLA on anything else.
"""

from __future__ import annotations

import re

from meshcast.base import MeshcastError
from meshcast.evidence.validate.runs.findings import Findings
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import Device
from meshcast.options import Stack, load_stack, stack_names

# (pattern in the source and the row's words, stack), the more special ones first.
_WORDS = (
    (r"megatron-bridge|nemo", "nemo"),
    (r"2205\.05198|2104\.04473|megatron-(?:deepspeed|turing)", "megatron-2022"),
    (r"megatron", "megatron"),
    (r"maxtext|tpu-recipes|gpu-recipes", "maxtext"),
    (r"torch\.compile", "pytorch-compile"),
    (r"llm-foundry|mosaicml|\bcomposer\b", "composer"),
    (r"torchtitan|fsdp(?! jax)|2407\.21783", "pytorch-fsdp"),
    (r"deeplearningexamples|pytorch", "pytorch-ddp"),
    (r"levanter|jax|hespas|palm|t5x|\bpax(?:ml)?\b|praxis|\bxla\b", "xla"),
)
# Software without a stack of its own: (pattern, what it is, the stack it is taken as, where).
_RELATED = (
    (r"deepspeed", "DeepSpeed", "pytorch-fsdp", "gpu"),
    (r"hugging ?face|\baccelerate\b|lightning", "a trainer on PyTorch", "pytorch-fsdp", "gpu"),
    (r"mlperf", "MLPerf", "nemo", "gpu"),
    (r"mlperf", "MLPerf", "maxtext", "tpu"),
)
_SPLIT = ("tp", "pp", "cp")


def stack_of(row: RunRow, device: Device, found: Findings) -> Stack | None:
    """The stack that ran a row; what is taken for granted goes to `found`, and what no file has."""
    try:
        if row.stack:
            return load_stack(_in_column(row.stack))
        stack = load_stack(_told(row, device, found) or _usual(row, device, found))
        if stack.fusion == "eager" and device.kind != "gpu":
            found.assumes(f"stack xla, where words say {stack.name}: programs for a {device.kind} are compiled")
            return load_stack("xla")
        return stack
    except MeshcastError as error:
        found.lacks(f"a stack that is known: {error.message}{f' ({error.fix})' if error.fix else ''}")
        return None


def _in_column(text: str) -> str:
    """A stack's name or file, or the name of the software that it is."""
    name = text.lower()
    if name in stack_names() or name.endswith(".toml"):
        return name if name in stack_names() else text
    return next((stack for pattern, stack in _WORDS if re.search(pattern, name)), text)


def _told(row: RunRow, device: Device, found: Findings) -> str | None:
    """The stack that a row's words name, or one that does as the software they name."""
    text = f"{row.source} {row.other} {row.notes}".lower()
    if name := next((name for pattern, name in _WORDS if re.search(pattern, text)), None):
        return name
    for pattern, software, name, kind in _RELATED:
        if device.kind == kind and re.search(pattern, text):
            found.assumes(f"stack {name}, for {software}")
            return name
    return None


def _usual(row: RunRow, device: Device, found: Findings) -> str:
    """What such runs mostly use."""
    if device.kind == "tpu":
        name, why = "maxtext", "on TPUs"
    elif device.vendor.lower() != "nvidia":
        name, why = "xla", f"on {device.vendor}"
    elif row.degrees.get("fsdp", 0) > 1:
        name, why = "pytorch-fsdp", "for fsdp on NVIDIA"
    elif any(row.degrees.get(each, 0) > 1 for each in _SPLIT):
        name, why = "megatron", f"for {', '.join(_SPLIT)} on NVIDIA"
    else:
        name, why = "pytorch-ddp", "on NVIDIA, with weights whole on each device"
    found.assumes(f"stack {name}, the usual one {why}: no word names the software (a column `stack` would)")
    return name
