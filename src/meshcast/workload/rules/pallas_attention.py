"""Attention kernels for TPUs that carry no estimate: Pallas' splash attention, and the backward passes of its flash attention.

The kernel's name tells what it computes, over the A pairs of a query and a key that its mask leaves (`rules.attention`):

| in its name | products | FLOP of a pair, heads D of keys and V of values |
|---|---|---|
| fwd | S = q k, o = P v | 2 (D + V) |
| dkv | S, dP = do v, dv = P do, dk = dS q | 2 (2 D + 2 V) |
| dq | S, dP, dq = dS k | 2 (2 D + V) |

S in both backward kernels is computed again, and dP in the second of them.

Its operands are, without those of integers, queries `[B, H, S, D]`, keys and values `[B, Hkv, T, D]` (B may be missing, and in
"mqa" kernels Hkv). The mask is what the call notes beside it (`zoo.attention_note`). Where it notes nothing, shapes say it
as far as they can: splash attention computes causal and local masks from the positions of its queries, an operand of
integers, and goes through as many blocks of keys for each block of queries as the mask leaves, which is the extent of its block
mask; flash attention's mask cannot be seen, and all pairs are counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshcast.workload.graph import Attention, Cost, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attention import attention_cost
from meshcast.workload.rules.backend_config import frontend_attributes, parse_object
from meshcast.workload.rules.pallas import kernel_name, noted
from meshcast.zoo import CAUSAL, HEADS_FIRST, WINDOW

# Heads of keys and of values that a pair's products have, by what the name says.
_PHASES = {"fwd": (1, 1), "dkv": (2, 2), "dq": (2, 1)}
_AGAIN = {"fwd": (0, 0), "dkv": (1, 0), "dq": (1, 1)}  # of those, what another kernel has computed
_KNOWN = re.compile(r"(splash)_m[hq]a_(fwd|dkv|dq)|_(flash)_attention_(dkv|dq)_kernel")


def training_attention(reading: OpReading) -> Cost | None:
    """The cost of an attention kernel by its name and operands; None where it is no such kernel."""
    name = kernel_name(reading)
    found = _KNOWN.search(name)
    floats = [t for t in reading.operands if t.dtype[0] in "bf" and len(t.shape) > 2]
    if found is None or len(floats) < 3:
        return None
    phase = found[2] or found[4]
    note = noted(reading)
    query, key, value = floats[:3]
    batch, heads, length, head = _extents(query, len(query.shape) == 4, note)
    shared = len(key.shape) < len(query.shape)  # "mqa": one head of keys, without a dimension for it
    kv_batched = len(key.shape) == 4 or (shared and len(query.shape) == 4)
    _, kv_heads, kv_length, _ = _extents(key, kv_batched, note, shared=shared)
    causal, window = _mask(found[1] is not None, name, length, kv_length, phase, reading, note)
    shape = Attention(
        batch=batch, heads=heads, kv_heads=kv_heads, q_len=length, kv_len=kv_length, head_dim=head,
        dtype=query.dtype, causal=causal, backward=phase != "fwd", window=window, block=_block(phase, reading),
    )  # fmt: skip
    keys, values = _PHASES[phase]
    again_keys, again_values = _AGAIN[phase]
    return attention_cost(
        reading,
        shape,
        pair_width=keys * head + values * value.shape[-1],
        again=again_keys * head + again_values * value.shape[-1],
    )


def _extents(
    tensor: Tensor, batched: bool, note: Mapping[str, Any], *, shared: bool = False
) -> tuple[int, int, int, int]:
    """Batch, heads, length and width."""
    *lead, width = tensor.shape
    batch = lead.pop(0) if batched else 1
    if shared:
        return batch, 1, lead[0], width
    heads, length = lead if note.get(HEADS_FIRST, True) else reversed(lead)
    return batch, heads, length, width


def _mask(
    splash: bool, name: str, length: int, kv_length: int, phase: str, reading: OpReading, note: Mapping[str, Any]
) -> tuple[bool, int]:
    """Whether it is causal, and its window."""
    if note:
        return bool(note[CAUSAL]), int(note[WINDOW])
    if not splash:
        return False, 0
    numbers = [t.shape for t in reading.operands if t.dtype in ("i32", "si32") and len(t.shape) == 2]
    segments = 2 if "segmented" in name and len(numbers) > 2 else 0
    if len(numbers) <= segments:
        return False, 0
    masks = [t.shape for t in reading.operands if t.dtype in ("i8", "si8") and len(t.shape) == 3]
    blocks = _block_sizes(reading)
    # The grid's inner extent: blocks of keys for one of queries, or the other way round where keys stay.
    inner, whole = ("block_q", length) if phase == "dkv" else ("block_kv", kv_length)
    size = blocks.get(inner + _suffix(phase), 0)
    at = 1 if phase == "dkv" else 2
    visited = masks[0][at] * size if masks else 0
    return True, visited - size if 0 < visited < whole and visited > size else 0


def _block(phase: str, reading: OpReading) -> int:
    return _block_sizes(reading).get("block_q" + _suffix(phase), 0)


def _suffix(phase: str) -> str:
    """What names of blocks end in, by kernel."""
    return "" if phase == "fwd" else f"_{phase}"


def _block_sizes(reading: OpReading) -> Mapping[str, int]:
    """What splash attention notes of its blocks for profilers."""
    metadata = parse_object(str(frontend_attributes(reading.op).get("kernel_metadata", "")))
    sizes = parse_object(str(metadata.get("xprof_metadata", "")))
    return {key: size for key, size in sizes.items() if isinstance(size, int)}
