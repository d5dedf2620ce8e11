"""Fused attention: a block of two warp groups takes 128 queries past all of their keys, 128 at a time.

Of 64 queries and 128 keys the tensor cores compute scores and sums (`T` cycles), and the cores exponentials and what the softmax
needs beside them (`S`). The two warp groups hide each other's softmax (FlashAttention-3's ping-pong, Shah et al. 2024):

    least = max(2 T, 2 S)  for 128 keys,   T + S more for the first products and the last sum of a block

A block fills an SM's registers, so that what it waits for at its ends is not hidden. Tiles on a causal mask's diagonal are
computed whole, and long blocks are handed out first. The backward pass goes over blocks of keys, computes five products
instead of two, goes twice over the scores and adds to the queries' gradients in L2, in f32. The gradients of its keys and
values fill the registers, so that no next scores are computed beside a softmax: `least = 2 T + 2 S`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.attention import (
    FLASH_1,
    WIDTH_STEP,
    call_launches,
    cleared_operands,
)
from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.multiprocessors.cache import misses
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.products import ACCUMULATOR_BYTES
from meshcast.estimate.multiprocessors.work import played
from meshcast.estimate.rates import matrix_rate, transcendental_rate
from meshcast.lower import Kernel
from meshcast.workload import Attention, element_bytes

QUERIES, KEYS = 128, 128  # of a block, and of a step
GROUPS = 2  # warp groups of a block, which share its queries
KINDS = 16  # lengths of tiles that are told apart under a causal mask


def attention(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A fused attention call, forward or backward."""
    shape, rate = kernel.geometry, matrix_rate(kernel, machine.device)
    assert isinstance(shape, Attention)
    p = chip.parameters
    wider = WIDTH_STEP[shape.library]
    head = math.ceil(shape.head_dim / wider) * wider
    products = 5 if shape.backward else 2
    slower = FLASH_1 if shape.library == "flash-1" else 1.0
    by_warps = machine.parameters.warp_products if shape.library != "cudnn" and chip.generation.clusters else 1.0
    width = element_bytes(shape.dtype)
    # One warp group and one step.
    scores = QUERIES // GROUPS * KEYS
    rate_of_products = chip.multiply_adds(rate.flops) * p.tensor_share * by_warps
    tensor = products * scores * head / rate_of_products * slower
    special = transcendental_rate(machine.device) / (chip.sms * chip.clock)
    passes = 2 if shape.backward else 1  # over the scores: the softmax has a gradient, too
    softmax = scores * (1 / special + passes * p.softmax_instructions / chip.lanes) * slower
    fetched = 2 * KEYS * head * width * p.coalesced_reads
    if shape.backward:
        fetched += 2 * QUERIES * head * ACCUMULATOR_BYTES
    hidden = 0.0 if shape.backward else GROUPS * min(tensor, softmax)
    step_cycles = GROUPS * (tensor + softmax) - hidden
    missed = misses(kernel.read_bytes, kernel.written_bytes, chip, kernel.recency)
    kinds = _kinds(shape, chip)
    tiles = sum(count * keys for count, keys in kinds)
    blocks = sum(count for count, _ in kinds)
    from_memory = kernel.read_bytes * missed.read
    launched = []
    for count, keys in kinds:
        main = Phase(
            least=keys * step_cycles + tensor + softmax,
            tensor=keys * GROUPS * tensor,
            issue=keys * GROUPS * softmax,
            cached=keys * fetched,
            dram=chip.dram_bytes(from_memory * keys / tiles, 0),
        )
        end = Phase(
            least=chip.latency.cache + kernel.written_bytes / blocks / p.epilogue_bytes,
            cached=kernel.written_bytes / blocks,
            dram=chip.dram_bytes(0, kernel.written_bytes * missed.written / blocks),
        )
        launched.append((count, (Phase(least=chip.load_cycles(missed.read)), main, end)))
    filled = (
        Phase(least=p.fill_cycles),
    )  # once an SM: blocks are persistent, or as quick to set up as a tile's next one
    launch = BlockGrid(blocks=tuple(launched), resident=1, start=p.start_cycles, first=filled)
    moved = from_memory + kernel.written_bytes * missed.written
    work = played(launch, chip, moved=moved, instructions=kernel.vector_flops)
    cleared = cleared_operands(shape, machine)
    beside = (call_launches(shape) - 1) * machine.launch + cleared.seconds
    work = work.then(GpuWork(time=beside, memory=cleared.seconds, dram_bytes=cleared.dram_bytes))
    return replace(work, matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device))


def _kinds(shape: Attention, chip: Chip) -> list[tuple[int, float]]:
    """(how many tiles of queries, tiles of keys that each goes past), the longest first."""
    heads = shape.batch * shape.heads
    keys = min(shape.window, shape.kv_len) if shape.window else shape.kv_len
    if shape.q_len == 1:  # keys are shared out among blocks, as there are no queries to share
        heads = shape.batch * shape.kv_heads
        parts = max(1, min(math.ceil(keys / KEYS), chip.sms // max(1, heads)))
        return [(heads * parts, keys / parts / KEYS)]
    rows = math.ceil(shape.q_len / QUERIES)
    whole = math.ceil(keys / KEYS)
    if not shape.causal or shape.window:
        return [(heads * rows, whole)]
    kinds = min(rows, KINDS)
    found = []
    for kind in reversed(range(kinds)):
        first, last = rows * kind // kinds, rows * (kind + 1) // kinds
        middle = (first + last + 1) / 2  # tiles of queries up to the diagonal
        found.append(
            (heads * (last - first), min(whole, math.ceil(middle * QUERIES * shape.kv_len / shape.q_len / KEYS)))
        )
    return [(count, float(length)) for count, length in found]
