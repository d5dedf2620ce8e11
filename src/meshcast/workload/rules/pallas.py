"""What JAX's Pallas kernels for TPUs compute, where their name and operands tell: attention.

The call's cost is the author's estimate or a declaration; here it is given its geometry, so that models of attention answer
for it. Operands, without the integer ones that come first (lengths, tables of pages):

- flash attention: queries `[B, H, Sq, D]`, keys `[B, Hkv, Skv, D]`;
- paged attention: queries `[B, H, (1,) D]`, pages of keys `[Hkv, pages, page, D]`, and a table with as many pages for each
  sequence;
- ragged paged attention: queries `[tokens, H, D]`, pages of keys and values `[pages, page, 2 Hkv, D]`; the first integer
  operand has a length for each sequence.

Masked work is left out of the FLOPs of a call: one with fewer than `4 B H Sq Skv D` is causal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshcast.workload.graph import Attention, Cost, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import backend_config, frontend_attributes, parse_object
from meshcast.zoo import ATTENTION_NOTE, BLOCK


def with_geometry(reading: OpReading, cost: Cost) -> Cost:
    """The cost of a Pallas call, with the geometry of what it computes where that is known."""
    shape = _attention(kernel_name(reading), reading.operands, cost.dtype)
    if shape is None:
        return cost
    whole = 4.0 * shape.batch * shape.heads * shape.q_len * shape.kv_len * shape.head_dim
    block = int(noted(reading).get(BLOCK, 0))
    return replace(cost, geometry=replace(shape, causal=cost.matrix_flops < 0.99 * whole, block=block))


def noted(reading: OpReading) -> Mapping[str, Any]:
    """What a call notes beside it of the attention that it computes (`zoo.attention_note`)."""
    return parse_object(str(frontend_attributes(reading.op).get(ATTENTION_NOTE, "")))


def kernel_name(reading: OpReading) -> str:
    """The kernel's name: JAX's attribute, which XLA drops; one noted beside it, which it keeps; or the instruction's."""
    said = text(reading.op, "kernel_name")
    if not said:
        said = str(frontend_attributes(reading.op).get("kernel_name", ""))
    return said or text(reading.op, "meshcast.name")


def kernel_label(reading: OpReading) -> str:
    """The kernel as its user knows it: its name, and the line of the `pallas_call` where the program has locations."""
    name = kernel_name(reading) or str(backend_config(reading.op).get("name", ""))
    scopes = str(getattr(reading.op.location, "name_str", "") or "").split("/")
    if not name and len(scopes) > 1:  # jit(step)/NAME/pallas_call
        name = scopes[-2]
    line = _source_line(reading.op.location)
    return repr(name or "without a name") + (f" ({line})" if line else "")


def _source_line(location: Any) -> str:
    """`file:line` of the innermost frame of a location; empty where it has none."""
    while location is not None:
        if getattr(location, "filename", ""):
            return f"{location.filename}:{location.start_line}"
        location = getattr(location, "callee", None) or getattr(location, "child_loc", None)
    return ""


def _attention(kernel: str, operands: tuple[Tensor, ...], dtype: str) -> Attention | None:
    arrays = [tensor for tensor in operands if len(tensor.shape) >= 3]
    counts = [tensor.elements for tensor in operands if len(tensor.shape) == 1 and tensor.dtype == "i32"]
    if "attention" not in kernel or "bwd" in kernel or "splash" in kernel or len(arrays) < 2:
        return None
    query, keys = arrays[0].shape, arrays[1].shape
    pages = 0
    if len(keys) != 4 or query[-1] != keys[-1]:
        return None
    if "ragged" in kernel and len(query) == 3 and counts:
        batch, heads, kv_heads = counts[0], query[1], keys[2] // 2
        q_len, kv_len = -(-query[0] // batch), -(-keys[0] * keys[1] // batch)
        pages = keys[0]  # all heads' keys and values of some tokens
    elif "paged" in kernel and counts:
        batch, heads, kv_heads = query[0], query[1], keys[0]
        q_len, kv_len = 1, max(counts) * keys[2] // batch
        pages = 2 * kv_heads * max(counts)  # one head's keys, or values, of some tokens
    elif "flash" in kernel and len(query) == 4:
        batch, heads, kv_heads, q_len, kv_len = query[0], query[1], keys[1], query[2], keys[2]
    else:
        return None
    if not (kv_heads and kv_len) or heads % kv_heads:
        return None
    return Attention(
        batch=batch, heads=heads, kv_heads=kv_heads, q_len=q_len, kv_len=kv_len, head_dim=query[-1],
        dtype=dtype, causal=False, backward=False, pages=pages,
    )  # fmt: skip
