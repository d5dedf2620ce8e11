"""Gradients of tables that rows were picked from: values added at indices, by ATen's kernels and by Inductor's; free of torch.

- `embedding_dense_backward` (`ATen/native/cuda/Embedding.cu`, `EmbeddingBackwardKernel.cu`): up to 3,072 indices by one kernel
  whose blocks go through all of them one after the other. More are sorted, eight bits of their 64 a pass; rows of one index are
  cut into parts of ten, summed, and the parts of an index summed; where an index has many parts they are added by atomics
  instead. Sums are fp32 whatever the values are.
- `index_put` with `accumulate` (`Indexing.cu`): indices become one number each, are sorted by as many bits as slices of
  the whole tensor want, and equal ones are summed in order.
- Inductor adds all of it by atomics to zeros in fp32 (`embedding_dense_backward` in `torch/_decomp/decompositions.py`), and
  casts.

Seconds of kernels are those of eight eager models on one H200 (BERT-large, T5, BART, DistilBERT, OLMo 2, Qwen3, Pegasus, Swin);
on other devices they are as many cycles (`estimate.chain`), whatever the number of cores and the memory's rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.programs.pytorch.eager.code_shapes import SMALL_BLOCK, STREAM, indexed
from meshcast.programs.pytorch.launches.launch import Launch, pointwise
from meshcast.programs.pytorch.recording.calls import AtenOp, View

_UNSORTED = 3072  # indices that one kernel adds up
# That kernel's blocks wait for one row after the other.
_ROW = 46e-9  # seconds an index
_ROW_CACHED = 30e-9  # the same of a table that the cache holds
_CACHED = 40e6  # bytes of the largest such table
_KEY_BITS = 64  # of an embedding's index
_DIGIT = 8  # bits that a pass of radix sort goes by
_PASS = 5.0e-6  # seconds of a pass, beside its bytes
_HISTOGRAM = 1.8e-6  # the same of the kernel that counts digits before it
_PART = 10  # rows that are summed together (`NROWS_PER_THREAD`)
_STEP = 30e-9  # seconds a part of an index, which one thread goes through
_MANY_PARTS = 10  # of an index: more are added by atomics
_SUMMED = 7.2e-12  # seconds an element of parts that are summed
_ADDED = 1.7e-12  # the same of parts that atomics add
# Kernels that find where each index begins among the sorted ones, and how many parts it has.
_UNIQUE = (
    "unique_by_key",
    "unique_init",
    "num_of_segments",
    "partials_per_segment",
    "scan_init",
    "scan",
    "num_of_parts",
)
_INDICES = 4  # that a block of `indexing_backward_kernel` adds values at
_INDEX_STEPS = 2  # kernels that turn an index into a place
_WARP = 32  # threads
# Seconds of a block that adds slices of less than a warp (`indexing_backward_kernel_small_stride`).
_SMALL_STRIDE = 9e-6


def radix_sort(index: View, bits: int) -> Iterator[Launch]:
    """Indices with their places in order (`DeviceRadixSortOnesweepKernel`): digits counted, summed up, and a pass for each."""
    yield replace(pointwise("radix_sort_histogram", (index,), (index,), ()), extra=_HISTOGRAM)
    yield pointwise("radix_sort_exclusive_sum", (index,), (index,), ())
    for _ in range(math.ceil(bits / _DIGIT)):
        yield replace(pointwise("radix_sort_onesweep", (index,), (index,), ()), extra=_PASS)


def embedding_gradient(op: AtenOp) -> Iterator[Launch]:
    """Zeros, and rows added to them."""
    values, index, table = op.takes[0], op.takes[1], op.gives[0]
    yield pointwise("fill", (), op.gives, ())
    rows = max(1, table.shape[0])
    count = index.elements
    if count <= _UNSORTED:
        each = _ROW_CACHED if table.bytes < _CACHED else _ROW
        made = pointwise("embedding_backward_feature_kernel", (values, index), (values,), ("add",))
        yield replace(made, extra=max(0.0, count * each - 2 * values.bytes / STREAM))
        return
    yield from radix_sort(index, _KEY_BITS)
    for name in _UNIQUE:
        yield pointwise(name, (index,), (index,), ())
    parts = count / _PART / rows
    waiting = parts * _STEP
    yield replace(pointwise("partial_segment_offset", (index,), (index,), ()), extra=waiting)
    moved = 2 * values.bytes / STREAM
    summed = pointwise("compute_grad_weight", (values, index), (values,), ("add",))
    if parts > _MANY_PARTS:
        yield replace(pointwise("partial_to_segment_idx", (index,), (index,), ()), extra=waiting)
        yield replace(summed, extra=max(0.0, values.elements * _ADDED - moved))
        return
    for name in ("compute_grad_weight", "sum_and_scatter"):
        yield replace(summed, name=name, extra=max(0.0, values.elements * _SUMMED - moved))


def added_at(op: AtenOp) -> Iterator[Launch]:
    """`index_put` that adds: a remainder and a product for each index that is given, a sum, a division, a sort, and the sums.

    Values that lie apart are copied. A block has four indices of every slice before the indexed dimensions, however short the
    slices behind them are; slices of less than a warp have a kernel of their own.
    """
    values, index = op.takes[-1], op.takes[1]
    for _ in range(_INDEX_STEPS * (len(op.takes) - 2) + 3):
        yield pointwise("compute_linear_index", (index,), (index,), ("multiply",))
    before = next(
        (
            math.prod(values.shape[:d])
            for d in range(len(values.shape))
            if values.shape[d:][: len(index.shape)] == index.shape
        ),
        1,
    )
    slices = values.elements // max(1, before * index.elements)
    yield from radix_sort(index, math.ceil(math.log2(max(2, op.gives[0].elements // max(1, slices)))))
    if not values.contiguous:
        yield replace(pointwise("copy_", (values,), (values,), ()), share=indexed((values,), (values,)))
    blocks = before * math.ceil(index.elements / _INDICES) * math.ceil(slices / (4 * _WARP))
    least = _SMALL_STRIDE if slices < _WARP and before == 1 else 0.0
    yield replace(
        pointwise("indexing_backward_kernel", (values, index), (values,), ("add",)),
        extra=max(least, blocks * SMALL_BLOCK),
    )


def compiled_gradient(op: AtenOp, *, place: int, storage: Callable[[], int]) -> Iterator[Launch]:
    """The same by Inductor: zeros in fp32, a kernel of atomics, and a cast where the table is of another dtype.

    Args:
        op: `embedding_dense_backward`, or `index_put` with `accumulate`.
        place: Its place in the recording.
        storage: Gives the number of a storage that nothing else has.
    """
    table = op.gives[0]
    values, index = (op.takes[0], op.takes[1]) if "embedding" in op.name else (op.takes[-1], op.takes[1])
    own = table.dtype == "float32"
    sums = table if own else View(storage(), table.shape, table.strides, "float32")
    made = [
        pointwise("triton_poi_fused_zeros", (), (sums,), ()),
        Launch(name=f"triton_poi_fused_{op.name}_atomic", form="scatter", takes=(values, index), gives=(sums,)),
    ]
    if not own:
        made.append(pointwise("triton_poi_fused__to_copy", (sums,), (table,), ()))
    yield from (replace(launch, op=place) for launch in made)
