"""Elements picked from tables, put there and added there, as ATen's kernels do it; free of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.programs.pytorch.eager.arithmetic import plain_name
from meshcast.programs.pytorch.eager.code_shapes import ADDED_HALVES, GATHERED, PLACES_START, STREAM, bytes_of, indexed
from meshcast.programs.pytorch.eager.table_gradients import added_at, embedding_gradient
from meshcast.programs.pytorch.launches.launch import Launch, pointwise
from meshcast.programs.pytorch.recording.calls import BYTES, AtenOp, View

_ADDING = ("scatter_add", "index_add", "scatter_reduce", "index_reduce")
_WORD = 4  # bytes that an atomic operation takes


def _picked(op: AtenOp) -> Iterator[Launch]:
    yield Launch(name=op.name, form="gather", takes=op.takes, gives=op.gives)


def _picked_one_by_one(op: AtenOp) -> Iterator[Launch]:
    """`gather`: an element for each index (`ScatterGatherKernel.cu`), whose place is computed."""
    made = pointwise(op.name, op.takes, op.gives[:1], ())
    yield replace(made, share=indexed(made.takes, made.gives, each=GATHERED), turned=False, extra=PLACES_START)


def _index_put(op: AtenOp) -> Iterator[Launch]:
    """Values put, or added, at indices."""
    yield from added_at(op) if op.told.get("accumulate") else _scattered(op)


def _scattered(op: AtenOp) -> Iterator[Launch]:
    """Values put at places, or added there by atomics, a thread an element (`ScatterGatherKernel.cu`, `Indexing.cu`).

    Additions in half precision are a loop over the word that holds the value. What is not written over is copied before.
    """
    table, index = op.gives[0], op.tensor("index")
    values = op.tensor("src") or op.tensor("source") or (op.takes[-1] if op.takes[-1] is not index else None)
    count = min(table.elements, max(each.elements for each in (values, index, op.takes[-1]) if each is not None))
    if not op.name.endswith("_"):
        yield pointwise("copy_", op.takes[:1], op.gives[:1], ())
    added = plain_name(op.name) in _ADDING and BYTES[table.dtype] < _WORD
    part = View(table.storage, (count,), (1,), table.dtype)
    takes = tuple(each for each in (values, index) if each is not None and each.elements > 1) or (part,)
    made = pointwise(op.name, takes, (part,), ("add",))
    many = max([count, *(each.elements for each in takes)])
    seconds = many * (ADDED_HALVES if added else GATHERED)
    extra = PLACES_START + max(0.0, seconds - bytes_of((*takes, part)) / STREAM)
    yield replace(made, turned=False, extra=extra)


PICKED: dict[str, Callable[[AtenOp], Iterator[Launch]]] = {
    **dict.fromkeys(("embedding", "index", "index_select"), _picked),
    "gather": _picked_one_by_one,
    "embedding_dense_backward": embedding_gradient,
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("scatter", "index_copy", "masked_scatter", *_ADDING), _scattered),
}
