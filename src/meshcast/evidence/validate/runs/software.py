"""What the software of a run does: its precision, what it recomputes and overlaps, from the words of its source."""

from __future__ import annotations

import re

from meshcast.evidence.validate.runs.findings import Findings
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import Device
from meshcast.options import Stack

# (pattern, precision): words of plans, and fp4, int8 and fp16, which plans do not have
_PRECISIONS = (
    (r"nvfp4", "nvfp4"),
    (r"mxfp4|fp4", "mxfp4"),
    (r"int8", "int8"),
    (r"mxfp8", "mxfp8"),
    (r"fp8|float8", "fp8"),
    (r"bf16", "bf16"),
    (r"fp16|^amp$", "fp16"),
    (r"tf32", "tf32"),
    (r"fp32|float32", "fp32"),
)
# (pattern, the plan's word, what is taken for granted)
_RECOMPUTED = (
    (r"^none$|^no$", "none", ""),
    (r"^full$", "full", ""),
    (r"^selective", "selective", ""),
    (
        r"except_mlp|save_out_proj",
        "attention",
        "it keeps heads and results of attention and recomputes the rest",
    ),
    (r"save_dot|minimal", "selective", "it keeps the products with weights and recomputes the rest"),
    (
        r"save_qkv|(?:offload|save|keep)\b[^;]*\bq(?:kv)?\b",
        "heads",
        "a layer keeps its input, queries, keys and values",
    ),
    (r"offload|layer-input|remat", "full", "a layer keeps its input alone"),
    (r"^custom$", "full", "its own choice of what to keep is not told"),
)


def precision_of(row: RunRow, device: Device, found: Findings) -> str:
    """The plan's word for a row's precision; fp16 is told as bf16 where the device has that at the same rate."""
    text = row.precision.lower()
    if not text:
        found.assumes("precision bf16")
        return "bf16"
    for pattern, word in _PRECISIONS:
        if re.search(pattern, text):
            peaks = device.matrix_flops
            if word == "fp16" and "bf16" in peaks and peaks["bf16"] == peaks.get("f16", peaks["bf16"]):
                found.assumes(f"{row.precision}: fp16 costs what bf16 does")
                return "bf16"
            return word
    found.lacks(f"a rule for the precision {row.precision!r}")
    return ""


def recomputation_of(row: RunRow, stack: Stack, found: Findings) -> str:
    """The plan's word for what a row recomputes."""
    text = row.recompute.lower()
    if not text:
        found.assumes(f"recomputation {stack.recomputation}, as {stack.name} has it")
        return stack.remat
    if text == "selective" and stack.selective != "selective":
        found.assumes(f"recompute 'selective' is taken as {stack.selective}, as recipes of {stack.name} have it")
        return stack.selective
    for pattern, word, granted in _RECOMPUTED:
        if re.search(pattern, text):
            if granted:
                found.assumes(f"recompute {row.recompute!r} is taken as {word}: {granted}")
            return word
    found.lacks(f"a rule for the recomputation {row.recompute!r}")
    return ""


def tells_recomputation(row: RunRow) -> bool:
    """Whether a row says what is computed again, and not only that somebody has chosen."""
    return row.recompute.lower() not in ("", "custom")


def offloaded(row: RunRow, found: Findings) -> bool:
    """Whether what a row's layers keep is said to lie in the host's memory."""
    if not re.search(r"offload", row.recompute.lower()):
        return False
    found.assumes("offload=activations: all that layers keep")
    return True


def overlap_of(row: RunRow, stack: Stack) -> str:
    """The stack's rewrites, and those that the row's words add or take away."""
    rewrites = [each for each in stack.overlap.split(",") if each]
    if re.search(r"async ?-?tp", row.words) and "async-tp" not in rewrites:
        rewrites.append("async-tp")
    # Megatron-Bridge's recipes in MXFP8 turn it on wherever stages are interleaved (perf_recipes), those in bf16 do not.
    interleaved = row.degrees.get("vp", 0) > 1 and row.degrees.get("ep", 0) > 1
    if "one-copy" in rewrites and interleaved and "mxfp8" in row.precision.lower():
        rewrites.append("paired-passes")
    if "vanilla tp" in row.words:
        rewrites = [each for each in rewrites if each != "async-tp"]
    return ",".join(rewrites)
