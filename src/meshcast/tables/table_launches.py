"""What eager PyTorch launches for tables on one GPU: table-batched kernels, or an embedding bag a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meshcast.tables.issued import Issued, work
from meshcast.tables.kernels import EmbeddingKernels
from meshcast.tables.traffic import LookUps


def batched_launches(works: Sequence[LookUps], kernels: EmbeddingKernels) -> Iterator[Issued]:
    """Tables behind one another, looked up by one kernel and updated by those of `benchmarks/embedding_kernels.py`.

    The update's seconds stand at its sort; its other launches are there for the host, which issues them one by one: fills
    and scans of PyTorch's, and kernels from Python.
    """
    moved = [kernels.traffic(each) for each in works]
    forward = sum(float(kernels.forward(each)) for each in moved)
    block = max(float(kernels.forward_block(each)) for each in moved)
    looked_up = float(kernels.forward_call(forward, block))
    total = sum(float(kernels.backward(each)) for each in moved)
    chain = max(float(kernels.backward_chain(each)) for each in moved)
    updated = float(kernels.backward_call(total, chain, np.array(sum(each.look_ups for each in works))))
    yield Issued(part="look_up", seconds=looked_up, work=work(views=1, modules=1, compiled=1))
    yield Issued(part="update", seconds=0.0, work=work(views=2, modules=1, compiled=1))  # indices linearised
    yield Issued(part="update", seconds=updated, work=work(calls=1))  # sorted
    for each in (
        work(calls=1), work(views=2, calls=1), work(views=1, calls=1), work(calls=1), work(views=1, compiled=1),  # runs
        work(calls=1), work(compiled=1), work(compiled=1), work(compiled=1),  # sums of runs, and rows
        work(calls=1),
    ):  # fmt: skip
        yield Issued(part="update", seconds=0.0, work=each)


def bag_launches(works: Sequence[LookUps], kernels: EmbeddingKernels) -> Iterator[Issued]:
    """Torch's `embedding_bag` with sparse gradients and plain SGD, a table at a time.

    Forwards a kernel a table; backwards a gradient for every index is picked from its bag's (`index_select`); SGD scales
    these (`mul`) and adds them to their rows by atomics (`index_add_`, `ATen/native/sparse/cuda/SparseCUDATensorMath.cu`).
    """
    for each in works:
        moved = kernels.traffic(each)
        looked_up = float(kernels.forward_call(kernels.forward(moved), kernels.forward_block(moved)))
        yield Issued(part="look_up", seconds=looked_up, work=work(views=3, calls=1))
    for each in works:
        yield Issued(part="update", seconds=_streamed(each, kernels), work=work(views=5, calls=1))
    for each in works:
        yield Issued(part="optimizer", seconds=_streamed(each, kernels), work=work(views=3, calls=1))
        yield Issued(part="optimizer", seconds=_streamed(each, kernels), work=work(views=1, calls=1))


def _streamed(work: LookUps, kernels: EmbeddingKernels) -> float:
    """Seconds in which a gradient for every index is read and written once."""
    p = kernels.look_up
    return p.start_s + 2 * work.look_ups * work.row_bytes / (kernels.device.memory_bandwidth * p.memory_share)
