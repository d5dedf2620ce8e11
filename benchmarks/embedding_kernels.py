"""Triton kernels with the access pattern of FBGEMM's table-batched embeddings: pooled look-ups, and the exact fused update.

All tables lie behind one another in one array; `rows_before[t]` rows come before table `t`. A bag is one sample's indices into
one table; bags are ordered by table, then by sample, and `offsets` says where each one's indices start. The update is exact:
indices are sorted, a run of equal ones is one row, gradients of its bags are summed, and the row is written once (rowwise
Adagrad: one accumulator a row). Runs longer than a program sums alone are cut into pieces that meet in a buffer, as FBGEMM cuts
long segments.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

LONG, PIECE = 32, 256  # a run longer than the first is cut into pieces of the second
ELEMENTS = 512  # of one row or several that four warps load at a time, 16 bytes a thread in fp32
WARPS = 4


@triton.jit(do_not_specialize=["batch", "bags"])
def pooled_rows(
    weights, indices, offsets, rows_before, out, batch, bags,
    dim: tl.constexpr, width: tl.constexpr, block: tl.constexpr, unroll: tl.constexpr,
):  # fmt: skip
    """Sums the rows of `block` bags."""
    bag = tl.program_id(0) * block + tl.arange(0, block)
    there = bag < bags
    start = tl.load(offsets + bag, mask=there, other=0)
    end = tl.load(offsets + bag + 1, mask=there, other=0)
    first = tl.load(rows_before + bag // batch, mask=there, other=0)
    column = tl.arange(0, width)
    within = column < dim
    total = tl.zeros((block, width), dtype=tl.float32)
    longest = tl.max(end - start, axis=0)
    step = tl.arange(0, unroll)
    for done in range(0, longest, unroll):
        place = start[:, None] + done + step[None, :]
        valid = place < end[:, None]
        index = tl.load(indices + place, mask=valid, other=0)
        row = (first[:, None] + index) * dim
        spot = weights + row[:, :, None] + column[None, None, :]
        picked = tl.load(spot, mask=valid[:, :, None] & within[None, None, :], other=0.0)
        total += tl.sum(picked.to(tl.float32), axis=1)
    to = out + bag.to(tl.int64)[:, None] * dim + column[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=there[:, None] & within[None, :])


@triton.jit(do_not_specialize=["batch", "bags"])
def linear_indices(indices, offsets, rows_before, keys, bag_of, batch, bags, block: tl.constexpr):
    """Writes each index counted through all tables, and its bag, one bag a program."""
    bag = tl.program_id(0)
    start = tl.load(offsets + bag)
    end = tl.load(offsets + bag + 1)
    first = tl.load(rows_before + bag // batch)
    lane = tl.arange(0, block)
    for done in range(start, end, block):
        place = done + lane
        valid = place < end
        index = tl.load(indices + place, mask=valid, other=0)
        tl.store(keys + place, (first + index).to(keys.dtype.element_ty), mask=valid)
        tl.store(bag_of + place, tl.zeros_like(lane) + bag, mask=valid)


@triton.jit(do_not_specialize=["count"])
def run_starts(keys, numbers, starts, count, block: tl.constexpr):
    """Writes where each run of equal keys starts; `numbers` counts the runs that have started."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    valid = place < count
    key = tl.load(keys + place, mask=valid, other=0)
    before = tl.load(keys + place - 1, mask=valid & (place > 0), other=-1)
    number = tl.load(numbers + place, mask=valid, other=1)
    tl.store(starts + number - 1, place, mask=valid & (key != before))
    tl.store(starts + number, tl.zeros_like(place) + count, mask=place == count - 1)


@triton.jit
def adagrad(weights, states, row, total, column, within, rate, dim: tl.constexpr):
    """Writes one row and its accumulator."""
    square = tl.sum(total * total, axis=0) / dim
    state = tl.load(states + row) + square
    tl.store(states + row, state)
    spot = weights + row * dim + column
    old = tl.load(spot, mask=within, other=0.0)
    new = old.to(tl.float32) - rate * total / (tl.sqrt(state) + 1e-8)
    tl.store(spot, new.to(weights.dtype.element_ty), mask=within)


@triton.jit
def summed(gradients, order, bag_of, start, end, column, within, dim: tl.constexpr, block: tl.constexpr):
    """The sum of the gradients of sorted places from `start` to `end`."""
    total = tl.zeros((column.shape[0],), dtype=tl.float32)
    lane = tl.arange(0, block)
    for done in range(start, end, block):
        place = done + lane
        valid = place < end
        bag = tl.load(bag_of + tl.load(order + place, mask=valid, other=0), mask=valid, other=0)
        spot = gradients + bag.to(tl.int64)[:, None] * dim + column[None, :]
        picked = tl.load(spot, mask=valid[:, None] & within[None, :], other=0.0)
        total += tl.sum(picked.to(tl.float32), axis=0)
    return total


@triton.jit(do_not_specialize=["count"])
def update_runs(
    weights, states, gradients, keys, order, bag_of, starts, numbers, pieces, counters, count, rate, programs,
    dim: tl.constexpr, width: tl.constexpr, block: tl.constexpr, long: tl.constexpr, piece: tl.constexpr,
):  # fmt: skip
    """Updates the row of every run that is not long; lists the pieces of those that are."""
    runs = tl.load(numbers + count - 1)
    column = tl.arange(0, width)
    within = column < dim
    for run in range(tl.program_id(0), runs, programs):
        start = tl.load(starts + run)
        end = tl.load(starts + run + 1)
        if end - start > long:
            slot = tl.atomic_add(counters, 1)
            needed = (end - start + piece - 1) // piece
            place = tl.atomic_add(counters + 1, needed.to(tl.int32))
            for each in range(0, needed):
                tl.store(pieces + (place + each) * 3, slot.to(tl.int64))
                tl.store(pieces + (place + each) * 3 + 1, start + each * piece)
                tl.store(pieces + (place + each) * 3 + 2, tl.minimum(start + each * piece + piece, end))
        else:
            total = summed(gradients, order, bag_of, start, end, column, within, dim, block)
            row = tl.load(keys + start).to(tl.int64)
            adagrad(weights, states, row, total, column, within, rate, dim)


@triton.jit
def sum_pieces(
    gradients, keys, order, bag_of, pieces, counters, sums, row_of, programs,
    dim: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Adds every piece of a long run into its buffer."""
    many = tl.load(counters + 1)
    column = tl.arange(0, width)
    within = column < dim
    for each in range(tl.program_id(0), many, programs):
        slot = tl.load(pieces + each * 3)
        start = tl.load(pieces + each * 3 + 1)
        end = tl.load(pieces + each * 3 + 2)
        total = summed(gradients, order, bag_of, start, end, column, within, dim, block)
        tl.store(row_of + slot, tl.load(keys + start).to(tl.int64))
        tl.atomic_add(sums + slot * dim + column, total, mask=within)


@triton.jit
def update_long(
    weights, states, sums, row_of, counters, rate, programs, dim: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Updates the rows of long runs from their buffers, which it leaves empty."""
    many = tl.load(counters)
    column = tl.arange(0, width)
    within = column < dim
    for slot in range(tl.program_id(0), many, programs):
        spot = sums + slot * dim + column
        total = tl.load(spot, mask=within, other=0.0)
        tl.store(spot, tl.zeros_like(total), mask=within)
        adagrad(weights, states, tl.load(row_of + slot), total, column, within, rate, dim)


class Batched:
    """The tables of one case with the buffers that its kernels need; `device` has as many programs as fill it."""

    def __init__(self, weights: torch.Tensor, states: torch.Tensor, rows: torch.Tensor, dim: int, batch: int) -> None:
        self.weights, self.states, self.dim, self.batch = weights, states, dim, batch
        self.total_rows = int(rows.sum())
        self.rows_before = torch.cat([rows.new_zeros(1), rows.cumsum(0)[:-1]])
        self.bags = len(rows) * batch
        self.width = triton.next_power_of_2(dim)
        cuda = weights.is_cuda
        self.programs = 32 * torch.cuda.get_device_properties(0).multi_processor_count if cuda else 4
        self.key_type = torch.int32 if self.total_rows < 2**31 else torch.int64
        self.buffers: tuple[torch.Tensor, ...] = ()  # of the largest update so far; sums are left at zero

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Pooled rows, (bags, dim)."""
        out = torch.empty(self.bags, self.dim, dtype=self.weights.dtype, device=self.weights.device)
        block = max(1, ELEMENTS // self.width)
        pooled_rows[(triton.cdiv(self.bags, block),)](
            self.weights, indices, offsets, self.rows_before, out, self.batch, self.bags,
            dim=self.dim, width=self.width, block=block, unroll=4, num_warps=WARPS,
        )  # fmt: skip
        return out

    def linear(self, indices: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Every index through all tables, and its bag."""
        keys = torch.empty(len(indices), dtype=self.key_type, device=indices.device)
        bag_of = torch.empty(len(indices), dtype=torch.int32, device=indices.device)
        linear_indices[(self.bags,)](
            indices, offsets, self.rows_before, keys, bag_of, self.batch, self.bags, block=32, num_warps=1
        )
        return keys, bag_of

    def runs(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs of equal keys: how many have started at each place, and where each starts."""
        first = torch.ones(len(keys), dtype=torch.int32, device=keys.device)
        first[1:] = keys[1:] != keys[:-1]
        numbers = first.cumsum(0)
        starts = torch.empty(len(keys) + 1, dtype=torch.int64, device=keys.device)
        run_starts[(triton.cdiv(len(keys), 1024),)](keys, numbers, starts, len(keys), block=1024, num_warps=WARPS)
        return numbers, starts

    def update(self, gradients: Any, keys: Any, order: Any, bag_of: Any, numbers: Any, starts: Any) -> None:
        """Every touched row, written once."""
        count, device = len(keys), keys.device
        most_long, most_pieces = count // LONG + 1, count // LONG + count // PIECE + 2
        if not self.buffers or len(self.buffers[2]) < most_long:
            pieces = torch.empty(3 * most_pieces, dtype=torch.int64, device=device)
            sums = torch.zeros(most_long, self.dim, dtype=torch.float32, device=device)
            self.buffers = (pieces, sums, torch.empty(most_long, dtype=torch.int64, device=device))
        pieces, sums, row_of = self.buffers
        counters = torch.zeros(2, dtype=torch.int32, device=device)
        update_runs[(self.programs,)](
            self.weights, self.states, gradients, keys, order, bag_of, starts, numbers, pieces, counters, count, 1e-6,
            self.programs, dim=self.dim, width=self.width, block=max(4, ELEMENTS // self.width), long=LONG, piece=PIECE,
            num_warps=1,
        )  # fmt: skip
        block = max(8, 4 * ELEMENTS // self.width)
        sum_pieces[(self.programs,)](
            gradients, keys, order, bag_of, pieces, counters, sums, row_of, self.programs,
            dim=self.dim, width=self.width, block=block, num_warps=WARPS,
        )  # fmt: skip
        update_long[(self.programs,)](
            self.weights, self.states, sums, row_of, counters, 1e-6, self.programs,
            dim=self.dim, width=self.width, num_warps=1,
        )  # fmt: skip

    def backward(self, gradients: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> None:
        """All of the update: indices linearised, sorted, runs found, rows written."""
        keys, bag_of = self.linear(indices, offsets)
        ordered, order = torch.sort(keys)
        self.update(gradients, ordered, order, bag_of, *self.runs(ordered))
