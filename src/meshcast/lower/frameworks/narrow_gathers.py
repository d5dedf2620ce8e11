"""Activations that are rounded where they lie, and gathered in few bits.

A sequence-parallel layer needs all positions of what its norm has made of a share of them. A program for all devices gathers
them as they are and rounds the whole afterwards, on every device; Transformer Engine's norms and activations write fp8, and its
layers gather that (`gather_along_first_dim` of quantised tensors, userbuffers of one byte an element): half the bytes cross
the links, and each device rounds its share alone. Scales are agreed upon where they are by the tensor's largest value
(`with_amax_reduction`).

    gather(x), max(x), round(x / scale)    becomes    max(own x), all-reduce, round(own x / scale), gather(rounded)

Source: NVIDIA/TransformerEngine, `transformer_engine/pytorch/module/layernorm_linear.py` and `distributed.py` (release 2.x).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshcast.base import Group
from meshcast.lower.kernel import SCALAR_BYTES, Kernel, KernelKind, Recency, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Collective, Reduction, Tensor, element_bytes

SMALL = 1 / 64  # of what is gathered: largest values of it, and scales


def with_narrow_gathers(schedule: Schedule, values: ValueTypes, among: Callable[[Group], bool]) -> Schedule:
    """The schedule with gathers of what is only rounded behind them put behind the rounding.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which shares are added to.
        among: Whether a group gathers activations: the one that splits a layer's products.
    """
    steps = [with_inner_blocks(step, lambda body: with_narrow_gathers(body, values, among)) for step in schedule.steps]
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for value in set(step.reads):
            readers.setdefault(value, []).append(step)
    found = {
        step.writes[0]: gather
        for step in steps
        if isinstance(step, Kernel)
        and (gather := _gather(step, values, among)) is not None
        and step.writes[0] not in schedule.outputs
        and _is_only_rounded(gather, readers.get(step.writes[0], ()), values)
    }
    if not found:
        return schedule if steps == list(schedule.steps) else replace(schedule, steps=tuple(steps))
    made: list[Step] = []
    for step in steps:
        source = next((value for value in step.reads if value in found), None)
        if isinstance(step, Kernel) and source is not None:
            made += found[source].behind(step, values)
        elif not (isinstance(step, Kernel) and step.collective is not None and set(step.writes) & found.keys()):
            made.append(step)
    return replace(schedule, steps=tuple(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gather:
    """An all-gather of wide values: its kernel, what it is, and what it reads and writes."""

    kernel: Kernel
    collective: Collective
    share: Tensor
    whole: Tensor

    @property
    def parts(self) -> int:
        return self.collective.group.size

    def behind(self, reader: Kernel, values: ValueTypes) -> list[Step]:
        """A reader on the device's own share, and the exchange of what it makes."""
        writes = tuple(values.add(self._own(values.tensors[value])) for value in reader.writes)
        made: list[Step] = [_on_share(reader, self.kernel, self.parts, writes)]
        for own, value in zip(writes, reader.writes, strict=True):
            kind = "all_gather" if self._is_part(values.tensors[value]) else "all_reduce"
            made.append(self._exchange(kind, own, value, values))
        return made

    def _is_part(self, tensor: Tensor) -> bool:
        """Whether something has a number for each position: it is gathered. Others are numbers of the whole: agreed upon."""
        return tensor.elements >= SMALL * self.whole.elements

    def _own(self, tensor: Tensor) -> Tensor:
        if not self._is_part(tensor):
            return tensor
        if tensor.shape == self.whole.shape:
            return Tensor(self.share.shape, tensor.dtype)
        return Tensor((tensor.elements // self.parts,), tensor.dtype)

    def _exchange(self, kind: str, own: int, value: int, values: ValueTypes) -> Kernel:
        before, after = values.tensors[own].bytes, values.tensors[value].bytes
        geometry = Collective(
            kind=kind, group=self.collective.group, input_bytes=before, output_bytes=after, reason="narrow-gathers"
        )
        return replace(
            self.kernel,
            name=f"collective:{kind}",
            dtype=values.tensors[value].dtype,
            geometry=geometry,
            reads=(own,),
            operand_bytes=(before,),
            read_bytes=before,
            written_bytes=after,
            writes=(value,),
            ops=(f"stablehlo.{kind}",),
            recency=None,
        )


def _gather(step: Kernel, values: ValueTypes, among: Callable[[Group], bool]) -> _Gather | None:
    collective = step.collective
    if collective is None or collective.kind != "all_gather" or not among(collective.group):
        return None
    if len(step.reads) != 1 or len(step.writes) != 1:
        return None
    share, whole = values.tensors[step.reads[0]], values.tensors[step.writes[0]]
    if element_bytes(whole.dtype) <= 1 or share.elements * collective.group.size != whole.elements:
        return None
    return _Gather(kernel=step, collective=collective, share=share, whole=whole)


def _is_only_rounded(gather: _Gather, readers: Sequence[Step], values: ValueTypes) -> bool:
    """Whether all that reads it makes one-byte values of it, element by element, or numbers of the whole."""
    rounds = False
    for reader in readers:
        if not isinstance(reader, Kernel) or reader.collective is not None or reader.updates:
            return False
        sizes = zip(reader.reads, reader.operand_bytes, strict=False)
        others = [size for value, size in sizes if value not in gather.kernel.writes]
        if any(size > SMALL * gather.whole.bytes + SCALAR_BYTES for size in others):
            return False
        results = [values.tensors[value] for value in reader.writes]
        narrow = [each for each in results if element_bytes(each.dtype) <= 1 and each.elements == gather.whole.elements]
        numbers = [each for each in results if each.elements < SMALL * gather.whole.elements]
        scales = [each for each in results if each not in narrow and each.bytes * 4 <= gather.whole.bytes]
        if reader.kind is KernelKind.LOOP_FUSION and len(narrow) >= 1 and len(narrow) + len(scales) == len(results):
            rounds = True
        elif reader.kind is not KernelKind.REDUCTION or len(numbers) != len(results):
            return False
    return rounds


def _on_share(reader: Kernel, gather: Kernel, parts: int, writes: tuple[int, ...]) -> Kernel:
    """The reader with a share's work: what is not gathered is read as before."""
    place = reader.reads.index(gather.writes[0])
    read = tuple(size // parts if index == place else size for index, size in enumerate(reader.operand_bytes))
    geometry = reader.geometry
    if isinstance(geometry, Reduction):
        geometry = replace(geometry, shape=_cut(geometry.shape, parts))
    share = sum(read) / max(1, reader.read_bytes)
    return replace(
        reader,
        geometry=geometry,
        vector_flops=reader.vector_flops / parts,
        transcendentals=reader.transcendentals / parts,
        reads=tuple(gather.reads[0] if index == place else value for index, value in enumerate(reader.reads)),
        operand_bytes=read,
        read_bytes=sum(read),
        written_bytes=reader.written_bytes // parts,
        writes=writes,
        elements=reader.elements // parts,
        shape=_cut(reader.shape, parts) if reader.elements else reader.shape,
        recency=_less(reader.recency, share),
    )


def _cut(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """A shape of so many times fewer elements: the first dimension that divides is cut."""
    for place, size in enumerate(shape):
        if size > parts and size % parts == 0:
            return (*shape[:place], size // parts, *shape[place + 1 :])
    return shape


def _less(recency: Recency | None, share: float) -> Recency | None:
    if recency is None:
        return None
    return replace(recency, reads=tuple((age, round(size * share)) for age, size in recency.reads))
