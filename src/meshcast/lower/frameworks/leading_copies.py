"""What PyTorch's functional collectives do around an exchange of activations that is not along the first dimension.

NCCL gathers and scatters whole buffers behind each other, which is the first dimension. Gathered along another one (positions, of
activations by batch, position and channel) the result is cut into its shards and put together anew, and what is to be scattered
is cut and put together first: a copy of the whole array each, also where the first dimension is 1 (`all_gather_tensor` and
`reduce_scatter_tensor`, torch/distributed/_functional_collectives.py: `torch.cat(torch.chunk(...))`). Products that are cut
into parts beside their exchange (`lower.overlap.async_tp`) turn shards alone, which is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.base import Group
from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes

_KINDS = ("all_gather", "reduce_scatter")


def with_leading_copies(schedule: Schedule, values: ValueTypes, splits: Callable[[Group], bool]) -> Schedule:
    """The schedule with copies behind gathers and before scatters along other dimensions than the first.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which the copies are added to.
        splits: Whether a group of devices is one that splits activations.
    """
    return replace(schedule, steps=tuple(made for step in schedule.steps for made in _copied(step, values, splits)))


def _copied(step: Step, values: ValueTypes, splits: Callable[[Group], bool]) -> Iterator[Step]:
    if isinstance(step, Kernel) and _turned(step, values, splits):
        yield from _around(step, values)
    else:
        yield with_inner_blocks(step, lambda body: with_leading_copies(body, values, splits))


def _turned(kernel: Kernel, values: ValueTypes, splits: Callable[[Group], bool]) -> bool:
    """Whether a kernel gathers or scatters one array along a dimension behind its first."""
    collective = kernel.collective
    if collective is None or collective.kind not in _KINDS or not splits(collective.group):
        return False
    if len(kernel.reads) != 1 or len(kernel.writes) != 1:
        return False
    before, after = (values.tensors[value].shape for value in (kernel.reads[0], kernel.writes[0]))
    differing = [place for place, sizes in enumerate(zip(before, after, strict=False)) if sizes[0] != sizes[1]]
    return len(before) == len(after) and differing != [] and differing[0] > 0


def _around(exchange: Kernel, values: ValueTypes) -> Iterator[Kernel]:
    assert exchange.collective is not None
    gathers = exchange.collective.kind == "all_gather"
    value = (exchange.writes if gathers else exchange.reads)[0]
    kind = values.tensors[value]
    other = values.new(kind.shape, kind.dtype)
    if gathers:
        yield replace(exchange, writes=(other,))
        yield copy_kernel(other, value, kind, exchange.location)
    else:
        yield copy_kernel(value, other, kind, exchange.location)
        yield replace(exchange, reads=(other,))
