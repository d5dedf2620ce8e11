"""Programs of attention: XLA's own in plain ops, and JAX's Pallas kernels as JAX lowers them for a TPU.

A Pallas kernel is a call whose body is Mosaic code: what it does is declared beside it (`meshcast.cost`), as its source
counts it. For causal flash attention in square blocks of b that is the blocks on and below the diagonal, whole ones: with
n = S / b,

    scores = B H b^2 n (n + 1) / 2        FLOP = 4 D scores

and keys and values are fetched again for every row of blocks: 1 + the number of times that the block's index changes
between grid steps. One query per sequence sees all S keys, read once.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.ops.elementwise import kv_pages
from meshcast.evidence.validate.ops.pallas import DEFAULT_BLOCK, bytes_of, declaring, lowered
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.evidence.validate.ops.stablehlo_text import ModuleText, Value
from meshcast.workload import FORWARD_VECTOR_FLOPS

RAGGED_PAGE = 128  # rows of such calls do not say the size of a page; its bytes do not depend on it
_BLOCK = re.compile(r"\bblock (\d+)")
_PAGES_AT_ONCE = re.compile(r"ppcb(\d+)")
_PROGRAMS = re.compile(r"averaged over (\d+) programs of")  # each of which takes its share of the batch


def dense_decode_text(row: OpRow) -> str:
    """One query per sequence against contiguous keys and values, its softmax in f32; the output is the next query."""
    batch, length, heads, kv_heads, head = _sizes(row)
    m = ModuleText("attention")
    group = heads // kv_heads
    query = m.argument((batch, kv_heads, group, head), row.element)
    keys, values = (m.argument((batch, kv_heads, length, head), row.element) for _ in range(2))

    def step(q: Value) -> Value:
        scores = m.dot(q, keys, contracting=(3, 3), batch=2, dtype="f32")
        scores = m.by_constant("multiply", scores, 1 / math.sqrt(head))
        top = m.reduce("maximum", scores, [3], -1e30)
        weights = m.unary("exponential", m.binary("subtract", scores, m.broadcast(top, scores.shape, range(3))))
        total = m.reduce("add", weights, [3])
        share = m.binary("divide", weights, m.broadcast(total, scores.shape, range(3)))
        made = m.dot(m.convert(share, row.element), values, contracting=(3, 2), batch=2, dtype="f32")
        return m.convert(made, row.element)

    return m.finish(*m.loop(row.trips, [query], lambda carried: [step(carried[0])]))


def flash_text(row: OpRow) -> str:
    """JAX's Pallas flash attention, causal; it takes as many heads of keys as of queries."""
    batch, length, heads, _, head = _sizes(row)
    found = _BLOCK.search(row.notes)
    block = min(int(found[1]) if found else DEFAULT_BLOCK, length)
    if length % block or block % 128:
        raise UnsupportedError(f"{length} positions are no whole number of blocks of {block}", where=row.id)
    count = length // block
    scores = batch * heads * block**2 * count * (count + 1) // 2
    fetched = batch * heads * _fetches(count) * block * head
    moved = bytes_of(row.element, 2 * batch * heads * length * head + 2 * fetched)

    def call(jax: Any, q: Any, k: Any, v: Any) -> Any:
        from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

        sizes = BlockSizes(block_q=block, block_k_major=block, block_k=block, block_b=1)
        return flash_attention(q, k, v, causal=True, block_sizes=sizes)

    shape = (batch, heads, length, head)
    return lowered(row, call, [(shape, row.element)] * 3, declared=_work(row, scores, head, moved), block=block)


def _fetches(count: int) -> int:
    """Blocks of keys that are fetched for a head: rows of blocks 1, 2, ... n long, the first block kept where it is next."""
    order = [column if column <= row else 0 for row in range(count) for column in range(count)]
    return 1 + sum(before != after for before, after in itertools.pairwise(order))


def paged_decode_text(row: OpRow) -> str:
    """JAX's Pallas paged attention: one query per sequence, keys and values in pages."""
    batch, length, heads, _, head = _sizes(row)
    pages = kv_pages(row)
    found = _PAGES_AT_ONCE.search(row.notes)
    per_sequence = length // pages[2]
    together = min(int(found[1]) if found else 16, per_sequence)
    if per_sequence % together:
        raise UnsupportedError(f"{per_sequence} pages are no whole number of blocks of {together}", where=row.id)
    query = "f32" if "q f32" in row.notes else row.element
    moved = bytes_of(row.element, 2 * math.prod(pages)) + bytes_of(query, 2 * batch * heads * head)

    def call(jax: Any, q: Any, k: Any, v: Any, lengths: Any, table: Any) -> Any:
        from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

        return paged_attention(q, k, v, lengths, table, pages_per_compute_block=together)

    arguments = [((batch, heads, head), query), (pages, row.element), (pages, row.element)]
    arguments += [((batch,), "i32"), ((batch, per_sequence), "i32")]
    return lowered(row, call, arguments, declared=_work(row, batch * heads * length, head, moved))


def ragged_text(row: OpRow) -> str:
    """A layer's attention as vLLM runs it on TPUs: rotary embedding, keys and values into the cache, ragged attention."""
    batch, length, heads, kv_heads, head = _sizes(row)
    prefill = "prefill" in row.op
    tokens = batch * length if prefill else batch
    per_sequence = -(-length // RAGGED_PAGE)
    pairs = length * (length + 1) // 2 if prefill else length
    cache = (batch * per_sequence, RAGGED_PAGE, 2 * kv_heads, head)
    moved = bytes_of(row.element, 2 * tokens * heads * head + 2 * batch * length * kv_heads * head)
    declared = _work(row, batch * heads * pairs, head, moved)

    def call(jax: Any, q: Any, new: Any, kept: Any, angles: Any, at: Any, lengths: Any, table: Any, ends: Any) -> Any:
        from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

        jnp = jax.numpy

        def turned(x: Any) -> Any:
            low, high = jnp.split(x.astype(jnp.float32), 2, axis=-1)
            cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
            both = [low * cosine - high * sine, high * cosine + low * sine]
            return jnp.concatenate(both, axis=-1).astype(x.dtype)

        keys, values = new[:, :kv_heads], new[:, kv_heads:]
        fresh = jnp.stack([turned(keys), values], axis=2).reshape(new.shape)
        kept = kept.reshape(-1, *kept.shape[2:]).at[at].set(fresh).reshape(kept.shape)
        sequences = jnp.full((1,), batch, jnp.int32)
        with declaring("ragged_paged_attention", declared):
            made = ragged_paged_attention(
                turned(q), kept, lengths, table, ends, sequences,
                sm_scale=1 / math.sqrt(head), num_kv_pages_per_block=min(8, per_sequence), num_queries_per_block=32,
            )  # fmt: skip
        return made, kept

    arguments = [
        ((tokens, heads, head), row.element), ((tokens, 2 * kv_heads, head), row.element), (cache, row.element),
        ((tokens, head // 2), "f32"), ((tokens,), "i32"), ((batch,), "i32"), ((batch, per_sequence), "i32"),
        ((batch + 1,), "i32"),
    ]  # fmt: skip
    return lowered(row, call, arguments, donated=(2,))


def _sizes(row: OpRow) -> tuple[int, int, int, int, int]:
    heads = row.number("q_heads", "heads")
    kv_heads = row.number("kv_heads", "q_heads", "heads")
    if heads % kv_heads:
        raise UnsupportedError(f"{heads} heads do not share {kv_heads} heads of keys", where=row.id)
    batch, shared = row.number("B"), _PROGRAMS.search(row.notes)
    parts = int(shared[1]) if shared else 1
    if batch % parts:
        raise UnsupportedError(f"a batch of {batch} is not run by {parts} programs of equal size", where=row.id)
    return batch // parts, row.number("S"), heads, kv_heads, row.number("head_dim")


def _work(row: OpRow, scores: int, head: int, moved: int) -> dict[str, Any]:
    """What a fused attention does: two products over the scores, their softmax, and its bytes."""
    return {
        "flops": 4 * scores * head,
        "vector_flops": FORWARD_VECTOR_FLOPS * scores,
        "transcendentals": scores,
        "bytes": moved,
        "dtype": row.element,
    }
