"""What eager PyTorch launches for tables on one GPU: table-batched kernels, or an embedding bag a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meshcast.jobs.embedding_tables.bags import BagKernels
from meshcast.jobs.embedding_tables.issued import Issued, work
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.traffic import LookUps

# The host's seconds for a kernel that Triton's own wrapper launches, in those that Inductor's takes, which knows its arguments:
# these are bound, and a cache is asked by their types (117 us for a look-up, 600 us for an update of five such kernels and nine
# calls on the H200's host, `forward_host` and `backward_host` of the half fitted on).
JIT = 4
FUNCTION = 6  # a Python `autograd.Function`, each way, in calls of modules (its look-up takes the host 0.3 ms in steps)
SORT_LAUNCHES = 5  # after the first: numbers filled in, a histogram, its sum, a pass a byte of which some are skipped


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
    yield Issued(part="look_up", seconds=looked_up, work=work(views=1, modules=FUNCTION, compiled=JIT))
    yield Issued(part="update", seconds=0.0, work=work(views=2, modules=FUNCTION, compiled=JIT))  # indices linearised
    yield Issued(part="update", seconds=updated, work=work(calls=1))  # sorted, in several launches
    for each in (
        *[work()] * SORT_LAUNCHES,
        work(calls=1), work(views=2, calls=1), work(views=1, calls=1), work(calls=1), work(),  # runs of equal ones
        work(views=1, compiled=JIT), work(calls=1), *[work(compiled=JIT)] * 3,  # their sums, and rows
        work(calls=1),
    ):  # fmt: skip
        yield Issued(part="update", seconds=0.0, work=each)


def bag_launches(works: Sequence[LookUps], kernels: EmbeddingKernels) -> Iterator[Issued]:
    """Torch's `embedding_bag` with sparse gradients and plain SGD, a table at a time (`bags`)."""
    bags, moved = BagKernels(kernels=kernels), [kernels.traffic(each) for each in works]
    for each in moved:
        yield Issued(part="look_up", seconds=float(bags.forward(each)), work=work(modules=1, calls=1))
    for each in moved:
        yield Issued(part="update", seconds=float(bags.picked(each)), work=work(views=2, calls=1))
    for each in moved:
        yield Issued(part="optimizer", seconds=float(bags.added(each)), work=work(views=1, calls=1, parameters=1))


def fused_launches() -> Iterator[Issued]:
    """What the host does for tables that FBGEMM looks up and updates, whatever the device takes for them.

    Counted in a trace of torchrec's (facebookresearch/param, et_replay/tests/inputs/dlrm_kineto): indices and offsets are cast,
    lengths summed up by two scans, indices checked, tables looked up; the update fills ten buffers, sorts in seven launches,
    finds runs in three and writes rows in two.
    """
    for each in (work(calls=1), work(calls=1), work(), work(), work(calls=1), work(calls=1), work(views=4, calls=1)):
        yield Issued(part="look_up", seconds=0.0, work=each)
    yield Issued(part="update", seconds=0.0, work=work(views=10, calls=1))
    for each in (*[work(views=1, calls=1)] * 7, *[work()] * 12):
        yield Issued(part="update", seconds=0.0, work=each)
