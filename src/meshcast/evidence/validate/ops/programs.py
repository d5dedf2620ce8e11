"""The program of a measured op, and on which device: StableHLO that any fidelity takes, the real compiler too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshcast.base import UnsupportedError, nearest
from meshcast.evidence.validate.ops import attention, communication, elementwise, pallas, products
from meshcast.evidence.validate.ops.rows import SLOPE, OpRow, device_of
from meshcast.evidence.validate.ops.stablehlo_text import ModuleText
from meshcast.hardware import resolve
from meshcast.workload import DTYPE_BITS

RowProgram = Callable[[OpRow], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpProgram:
    """A program whose time, divided by its steps, is what was measured."""

    name: str
    text: str
    device: str
    steps: int = 1
    slope: bool = False  # measured is what a further step adds, without what comes before and after the loop


def op_program(row: OpRow) -> OpProgram:
    """The program that a row measured.

    Raises:
        UnsupportedError: No program is known for the op, its type or its chip.
        InputError: The shape does not say what the op needs.
    """
    device = device_of(row)
    known = _KINDS.get(row.op)
    if known is None:
        raise UnsupportedError(f"no program is known for op {row.op!r}", where=row.id, fix=nearest(row.op, _KINDS))
    if row.element not in DTYPE_BITS:
        raise UnsupportedError(f"no element type {row.dtype!r}", where=row.id, fix=nearest(row.dtype, DTYPE_BITS))
    devices = row.number("devices") if "devices" in row.shape else 1
    if devices > resolve(device).max_devices:
        raise UnsupportedError(f"the catalogue has no network between {devices} of {device}", where=row.id)
    build, in_loop = known
    text = build(row)
    name = f"{row.op} {row.text} {row.stated_dtype}"
    return OpProgram(name=name, text=text, device=device, steps=in_loop(row), slope=row.method == SLOPE)


def family(op: str) -> str:
    """What ops have in common: products, elementwise, norms, reductions, movement, attention, communication."""
    if op in (*communication.COLLECTIVES, *communication.SHARDED):
        return "communication"
    if op in elementwise.NORMS:
        return "normalisation"
    if op in elementwise.REDUCTIONS:
        return "reduction"
    if op.startswith(("copy", "gather", "triad")):
        return "movement"
    if op.startswith("attention"):
        return "attention"
    if op.startswith(("matmul", "mlp", "dot", "convolution", "llama")):
        return "product"
    return "elementwise"


def _prefetch_text(row: OpRow) -> str:
    """A load into on-chip memory that runs beside another program: its bytes are read once and written to no memory."""
    m = ModuleText("prefetch")
    x = m.argument(row.dims(), row.element)
    size = row.number("bytes")
    text = f"stablehlo.custom_call @prefetch({x.name}) {{meshcast.cost = {{bytes = {size} : i64}}}} : ({x.type}) -> {x.type}"
    return m.finish(m.op(text, x.shape, x.dtype))


def _unstated(row: OpRow) -> str:
    raise UnsupportedError(
        f"the shape {row.text!r} gives bytes, not the dimensions that its program needs", where=row.id
    )


def _once(row: OpRow) -> int:
    return 1


def _chained(row: OpRow) -> int:
    return row.trips


_KINDS: Mapping[str, tuple[RowProgram, Callable[[OpRow], int]]] = {
    **dict.fromkeys(
        (*elementwise.FUNCTIONS, *elementwise.UNARY, *elementwise.BINARY, *elementwise.ALIASES),
        (elementwise.elementwise_text, _chained),
    ),
    **dict.fromkeys(elementwise.REDUCTIONS, (elementwise.reduction_text, _chained)),
    **dict.fromkeys(("copy_scale", "triad"), (elementwise.stream_text, _chained)),
    **dict.fromkeys(("gather", "gather_seq"), (elementwise.gather_text, _chained)),
    "gather_dma": (pallas.page_reads_text, _once),
    "copy_hbm_to_cmem": (_prefetch_text, _once),
    **dict.fromkeys(("matmul", "gemm", "dot"), (products.matmul_text, _chained)),
    "mlp_fused": (products.mlp_text, _once),
    "dot_1d_reduce": (products.dot_text, _once),
    "convolution": (products.convolution_text, _once),
    "matmul_pallas": (pallas.pallas_matmul_text, _once),
    "attention_prefill_flash": (attention.flash_text, _once),
    "attention_decode_paged": (attention.paged_decode_text, _once),
    "attention_decode_dense_xla": (attention.dense_decode_text, _chained),
    **dict.fromkeys(
        (
            "attention_prefill_rpa_bucket",
            "attention_decode_rpa_bucket",
            "attention_prefill_rpa",
            "attention_decode_rpa",
        ),
        (attention.ragged_text, _once),
    ),
    **dict.fromkeys(communication.COLLECTIVES, (communication.collective_text, communication.steps)),
    **dict.fromkeys(communication.SHARDED, (communication.sharded_matmul_text, communication.steps)),
    "llama_ffn_3x": (_unstated, _once),
}
