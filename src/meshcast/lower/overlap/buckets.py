"""Small collectives joined into larger ones, as XLA's combiners and PyTorch's DistributedDataParallel do.

Collectives of one kind over one group and type that do not wait for each other become one, up to a number of bytes: 30 MiB by
default in XLA:GPU (`xla_gpu_all_reduce_combine_threshold_bytes`), 25 MiB in PyTorch (`bucket_cap_mb`). Latency is then paid
once a bucket; in return the first member waits for the last, and what reads one waits for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.schedule.step_dependencies import dependencies, ordered
from meshcast.workload import Collective

JOINED_KINDS = ("all_reduce", "reduce_scatter", "all_gather")


def with_buckets(schedule: Schedule, limit: int) -> Schedule:
    """The schedule with collectives joined up to `limit` bytes each, in every block on its own."""
    steps = [with_inner_blocks(step, lambda body: with_buckets(body, limit)) for step in schedule.steps]
    return replace(schedule, steps=_joined(steps, limit))


def _joined(steps: Sequence[Step], limit: int) -> tuple[Step, ...]:
    before = dependencies(steps)
    buckets = _Buckets(steps, before, limit).found()
    if all(len(members) == 1 for members in buckets):
        return tuple(steps)
    node = {index: number for number, members in enumerate(buckets) for index in members}
    waits = [{node[e] for index in members for e in before[index]} - {n} for n, members in enumerate(buckets)]
    # A bucket is sent when its last member is ready: it stands where that one stood.
    order = ordered(waits, [float(members[-1]) for members in buckets])
    return tuple(_together([steps[index] for index in buckets[number]]) for number in order)


class _Buckets:
    """Steps put into buckets, most of them alone; taken as one each, they still wait for each other in no circle."""

    def __init__(self, steps: Sequence[Step], before: Sequence[set[int]], limit: int) -> None:
        self._steps = steps
        self._limit = limit
        self._successors: list[list[int]] = [[] for _ in steps]
        for index, waits in enumerate(before):
            for earlier in waits:
                self._successors[earlier].append(index)
        self._bucket: dict[int, list[int]] = {}  # by member

    def found(self) -> list[list[int]]:
        """Members of each bucket, in program order; buckets by their first member."""
        buckets: list[list[int]] = []
        open_buckets: dict[object, tuple[list[int], int]] = {}
        for index, step in enumerate(self._steps):
            collective = step.collective if isinstance(step, Kernel) else None
            if collective is None or collective.kind not in JOINED_KINDS:
                buckets.append([index])
                continue
            assert isinstance(step, Kernel)
            key, size = (collective.kind, collective.group, step.dtype), collective.payload_bytes
            members, held = open_buckets.get(key, ([], 0))
            if not members or held + size > self._limit or self._leads_to(members, index):
                members, held = [], 0
                buckets.append(members)
            members.append(index)
            self._bucket[index] = members
            open_buckets[key] = (members, held + size)
        return buckets

    def _leads_to(self, members: Sequence[int], target: int) -> bool:
        """Whether a step waits for a bucket, through other buckets too.

        The other way round need not be asked: what waits for `target` comes after it, and is in no bucket yet.
        """
        seen = set(members)
        pending = list(members)
        while pending:
            for successor in self._successors[pending.pop()]:
                if successor == target:
                    return True
                for index in self._bucket.get(successor, (successor,)):
                    if index not in seen:
                        seen.add(index)
                        pending.append(index)
        return False


def _together(members: Sequence[Step]) -> Step:
    first = members[0]
    if len(members) == 1:
        return first
    kernels = [member for member in members if isinstance(member, Kernel)]
    assert isinstance(first, Kernel)
    collectives = [kernel.geometry for kernel in kernels if isinstance(kernel.geometry, Collective)]
    return replace(
        first,
        name=f"{first.name} ({len(kernels)} in one)",
        geometry=replace(
            collectives[0],
            input_bytes=sum(each.input_bytes for each in collectives),
            output_bytes=sum(each.output_bytes for each in collectives),
        ),
        reads=tuple(value for kernel in kernels for value in kernel.reads),
        writes=tuple(value for kernel in kernels for value in kernel.writes),
        updates=tuple(value for kernel in kernels for value in kernel.updates),
        operand_bytes=tuple(size for kernel in kernels for size in kernel.operand_bytes),
        read_bytes=sum(kernel.read_bytes for kernel in kernels),
        written_bytes=sum(kernel.written_bytes for kernel in kernels),
        ops=tuple(op for kernel in kernels for op in kernel.ops),
    )
