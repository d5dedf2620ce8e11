"""Pallas kernels as JAX lowers them for a TPU: a call whose body is Mosaic code, and beside it what it does, declared.

No device is needed; the text is what a JAX program has, and the real compiler takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.ops.elementwise import kv_pages
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.programs import capture, keep_off_accelerators
from meshcast.workload import DTYPE_BITS
from meshcast.zoo import ATTENTION_NOTE, BLOCK

DEFAULT_BLOCK = 512
# What JAX calls a device of each generation: Mosaic's lowering asks for it.
DEVICE_KINDS = {"v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "tpu7x": "TPU7x"}
_TILES = re.compile(r"bm=(?:bk=bn=)?(\d+)(?: bk=(?:bn=)?(\d+))?")


def pallas_matmul_text(row: OpRow) -> str:
    """JAX's Pallas product in tiles: an operand is read once for every tile along the other one."""
    rows, columns, depth = (row.number(name) for name in "MNK")
    found = _TILES.search(row.notes)
    tile = int(found[1]) if found else DEFAULT_BLOCK
    across = int((found and found[2]) or tile)
    if rows % tile or columns % across or depth % across:
        raise UnsupportedError(f"tiles of {tile}x{across}x{across} do not divide the product", where=row.id)
    elements = rows * depth * (columns // across) + depth * columns * (rows // tile) + rows * columns
    declared = {"flops": 2 * rows * columns * depth, "bytes": bytes_of(row.element, elements), "dtype": row.element}

    def call(jax: Any, x: Any, w: Any) -> Any:
        from jax.experimental.pallas.ops.tpu.matmul import matmul

        return matmul(x, w, block_shape=(tile, across), block_k=across)

    return lowered(row, call, [((rows, depth), row.element), ((depth, columns), row.element)], declared=declared)


def page_reads_text(row: OpRow) -> str:
    """A kernel that copies a cache page by page into on-chip memory, by a table of pages, and adds the pages up."""
    heads, count, page, head = shape = kv_pages(row)
    size = 2 * heads * count * page * head

    def add_pages(table: Any, keys: Any, values: Any, total: Any) -> None:
        from jax.experimental import pallas as pl

        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
        def _() -> None:
            total[...] = total[...] * 0.0

        total[...] += keys[...].astype(total.dtype) + values[...].astype(total.dtype)

    def call(jax: Any, keys: Any, values: Any, table: Any) -> Any:
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu as pltpu

        block = pl.BlockSpec((1, 1, page, head), lambda at, part, pages: (part, pages[at], 0, 0))
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(count, heads),
            in_specs=[block, block],
            out_specs=pl.BlockSpec((1, 1, page, head), lambda at, part, pages: (0, 0, 0, 0)),
        )
        out = jax.ShapeDtypeStruct((1, 1, page, head), "float32")
        return pl.pallas_call(add_pages, grid_spec=grid, out_shape=out)(table, keys, values)

    work = {"vector_flops": size, "bytes": bytes_of(row.element, size), "dtype": "f32"}
    return lowered(row, call, [(shape, row.element), (shape, row.element), ((count,), "i32")], declared=work)


def bytes_of(dtype: str, elements: int) -> int:
    """The bytes of so many elements of a type."""
    return elements * DTYPE_BITS[dtype] // 8


def declaring(kernel: str, work: dict[str, Any], block: int = 0) -> Any:
    """A context in which calls carry what they are and do, for our reader; XLA keeps it."""
    from jax.experimental.xla_metadata import set_xla_metadata

    note = {ATTENTION_NOTE: json.dumps({BLOCK: block})} if block else {}
    return set_xla_metadata(**{"kernel_name": kernel, "meshcast.cost": json.dumps(work), **note})


def lowered(
    row: OpRow,
    call: Callable[..., Any],
    arguments: list[tuple[tuple[int, ...], str]],
    *,
    declared: dict[str, Any] | None = None,
    donated: tuple[int, ...] = (),
    block: int = 0,
) -> str:
    """The text that JAX makes of a call for a TPU; no device is needed."""
    keep_off_accelerators()
    import jax

    if row.generation not in DEVICE_KINDS:
        raise UnsupportedError(f"JAX has no name for chip {row.chip!r}", where=row.id)
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i32": "int32", "i8": "int8"}
    for _, dtype in arguments:
        if dtype not in names:
            raise UnsupportedError(f"no Pallas kernel is called with {dtype} here", where=row.id)
    shapes = [jax.ShapeDtypeStruct(shape, names[dtype]) for shape, dtype in arguments]

    def whole(*values: Any) -> Any:
        if declared is None:
            return call(jax, *values)
        with declaring(row.op, declared, block):
            return call(jax, *values)

    kind = jax.sharding.AbstractDevice(device_kind=DEVICE_KINDS[row.generation], num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=kind)):
        program = capture(whole, *shapes, name=row.op, platform="tpu", options={"donate_argnums": donated})
    return program.text
