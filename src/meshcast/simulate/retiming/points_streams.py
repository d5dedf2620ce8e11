"""Streams that do not slow each other, at many points of a sweep at once: `one_class` with arrays in the place of numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshcast.simulate.block_times import Order
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.one_class import chain_of
from meshcast.simulate.retiming.points_events import Floats
from meshcast.simulate.retiming.points_sums import last_end, latest_of


class StreamsAtPoints(NamedTuple):
    """A block in one order.

    Attributes:
        starts: When each step starts, by step and point.
        ends: When each ends.
        everything: When all have ended.
        last: When the last kernel has, without the gap behind it.
        unused: How long the memory is free.
    """

    starts: Floats
    ends: Floats
    everything: Floats
    last: Floats
    unused: Floats


def stream_seconds_at_points(block: BlockPlan, order: Order, seconds: Floats) -> Floats:
    """How long a block takes (`alone.stream_seconds`)."""
    ends: list[Any] = [None] * len(seconds)
    busy: list[Any] = [0.0] * (block.channels + 1)
    compute: Any = 0.0
    for index, lane, waits, whole in chain_of(block, order):
        start = busy[lane] if lane else compute
        for earlier in waits:
            start = np.maximum(start, ends[earlier])
        if lane:
            ends[index] = busy[lane] = start + seconds[index]
            continue
        if whole:
            start = latest_of(start, busy)
        compute = ends[index] = start + seconds[index]
        if whole:
            busy = [compute] * len(busy)
    return np.broadcast_to(latest_of(compute, busy), seconds.shape[1])


def streams_at_points(
    block: BlockPlan, order: Order, seconds: Floats, without_gap: Floats, free: Floats
) -> StreamsAtPoints:
    """When steps run that take so long (`alone.streams_alone`).

    Args:
        block: The block.
        order: In which its steps are issued.
        seconds: By step and point, with the gap behind each.
        without_gap: Without it.
        free: How long the memory is free in each.
    """
    points = seconds.shape[1]
    starts, ends = np.zeros_like(seconds), np.zeros_like(seconds)
    busy: list[Any] = [0.0] * (block.channels + 1)
    compute: Any = 0.0
    unused = np.zeros(points)
    for index, lane, waits, whole in chain_of(block, order):
        start = busy[lane] if lane else compute
        for earlier in waits:
            start = np.maximum(start, ends[earlier])
        if whole:
            start = latest_of(start, busy)
        end = start + seconds[index]
        if lane:
            busy[lane] = end
        else:
            if whole:
                busy = [end] * len(busy)
            unused = unused + np.where(start > compute, start - compute, 0.0)
            unused = unused + np.where(end > start, free[index], 0.0)
            compute = end
        starts[index], ends[index] = start, end
    everything = np.broadcast_to(latest_of(compute, busy), points)
    return StreamsAtPoints(starts, ends, everything, last_end(seconds, starts + without_gap), unused)
