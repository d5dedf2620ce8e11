"""What torchrec's pipelined trainer launches beside the dense part (`TrainPipelineSparseDist`), for the host that issues it.

Calls are those of torchrec and FBGEMM in a trace of one step (facebookresearch/param, et_replay/tests/inputs/dlrm_kineto, the
example `torchrec_dlrm`), put down by what they grow with: tables, ranks and parameters.

- The loss is summed up before its backward pass, one number as it is; lengths that arrive are summed up by table.
- A batch is made of random numbers by the host (a fill, a slice and a look at every table's lengths, and its values made flat),
  and five tensors of it are copied to the device.
- Indices are put in the order of their tables' ranks; the sizes of what goes where are stacked, exchanged, and read by the
  host, which waits for them; lengths and indices follow, and are put in order once more.
- Every kind of sharding has a look-up of its own: indices and offsets cast, lengths summed by scans, indices checked, rows
  pooled; tables on all ranks have one beside the others.
- Pooled rows' gradients are cut into a piece a rank, each made contiguous, joined, exchanged and scaled; updates fill buffers,
  number indices, sort them, find runs and write rows.
- `DistributedDataParallel` scales every parameter's gradient into its bucket, and reduces two buckets and that of the tables
  on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshcast.jobs.embedding_tables.issued import Issued, work

LOADER_CALLS = 6  # of the host alone, a table
PYTHON = 3  # of torchrec's objects around a collective, in calls of modules


def torchrec_launches(
    *, tables: int, shared: int, ranks: int, parameters: int, kinds: int, launch_s: float, sum_s: float, look_up_s: float,
    update_s: float, exchange_s: float, reduce_s: float,
) -> Iterator[Issued]:  # fmt: skip
    """Launches of a step in order of its parts.

    Args:
        tables: Of the model.
        shared: Of them on all ranks, whose parameters the dense optimizer updates, one by one.
        ranks: Of the job.
        parameters: Of the dense part.
        kinds: Look-ups of their own: one for each way in which tables are shared out.
        launch_s: Seconds of a kernel with next to nothing to do.
        sum_s: Seconds of one that sums next to nothing up.
        look_up_s: Seconds of the kernels of a look-up.
        update_s: Seconds of those of an update.
        exchange_s: Seconds of an all-to-all.
        reduce_s: Seconds of an all-reduce.
    """

    def small(part: str, name: str, **counts: int) -> Issued:
        return Issued(part=part, seconds=launch_s, work=work(**counts), name=name)

    def joined(part: str, name: str, seconds: float) -> Issued:
        return Issued(part=part, seconds=seconds, work=work(calls=1, modules=PYTHON), name=name)

    yield small("input", "copies", views=LOADER_CALLS * tables, calls=1)
    yield from [small("input", "copies", calls=1)] * 4
    yield small("input", "tables", views=20, modules=PYTHON, calls=1)  # put in order: lengths, offsets, indices
    yield from [small("input", "tables")] * 3
    yield from [small("input", "copies", views=4, calls=1)] * 3
    yield small("input", "elementwise", calls=1)  # sizes stacked
    yield joined("input", "all-to-all", exchange_s)
    yield small("input", "copies", calls=1)
    yield small("input", "tables", waits=1)  # lengths put in order where the sizes are known
    for _ in range(2):
        yield joined("input", "all-to-all", exchange_s)
    yield Issued(part="input", seconds=sum_s, work=work(calls=1), name="sum")  # lengths of every table
    yield small("input", "tables", views=10, modules=PYTHON, calls=1)
    yield from [small("input", "tables")] * 2
    for _ in range(kinds):
        yield small("look_up", "elementwise", modules=PYTHON, views=4, calls=1)
        yield small("look_up", "tables", calls=1)
        yield from [small("look_up", "tables")] * 3
        yield small("look_up", "elementwise", calls=1)
        yield small("look_up", "tables", calls=1)
        yield Issued(part="look_up", seconds=look_up_s, work=work(calls=1))
    yield joined("look_up", "all-to-all", exchange_s)
    yield small("look_up", "elementwise", views=2, modules=PYTHON, calls=1)
    yield Issued(
        part="loss", seconds=sum_s, work=work(views=2, calls=1), name="sum"
    )  # the loss, before its backward pass
    yield from [small("update", "elementwise", views=2, calls=1)] * (ranks + 1)
    yield joined("update", "all-to-all", exchange_s)
    yield small("update", "elementwise", calls=1)
    for _ in range(kinds):
        yield small("update", "elementwise", views=14, calls=1)
        yield from [small("update", "elementwise", calls=1)] * 6
        yield Issued(part="update", seconds=update_s)
        yield from [Issued(part="update", seconds=0.0)] * 8
    yield from [small("update", "elementwise", views=2, calls=1)] * (parameters + shared)
    for _ in range(1 + kinds):
        yield joined("update", "all-reduce", reduce_s)
    yield from [small("optimizer", "elementwise", views=1, calls=1)] * (4 * shared)
