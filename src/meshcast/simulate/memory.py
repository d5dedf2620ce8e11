"""Peak memory by liveness over the scheduled kernels, with donation, in-place updates and loop buffers.

A value's buffer lives from the kernel that writes it to the last that reads it. Arguments are held for the whole step,
outputs from their definition on. A kernel writes into the buffer of an operand that dies there when it updates in place, or
when it is an elementwise pass over a buffer of the same size. A loop keeps one buffer per carried value; its body adds
its own peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, LoweredProgram, Schedule, Step
from meshcast.workload.graph import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes on one device; `peak = arguments + outputs + temporaries - aliased`."""

    peak: int
    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    by_role: dict[str, int]


def peak_memory(lowered: LoweredProgram) -> MemoryUse:
    """The step's memory on one device."""
    workload, tensors = lowered.workload, lowered.tensors
    schedule = lowered.schedule
    arguments = {value: tensors[value].bytes for value in schedule.inputs}
    outputs = schedule.outputs
    aliased, alias_bytes = _aliases(lowered)
    donated = frozenset(v for v, a in zip(schedule.inputs, workload.arguments, strict=False) if a.donated)
    temporaries = _Liveness(tensors).peak(schedule, held=frozenset(arguments) | aliased, writable=donated)
    roles: dict[str, int] = {}
    for value, argument in zip(schedule.inputs, workload.arguments, strict=False):
        roles[argument.role.value] = roles.get(argument.role.value, 0) + tensors[value].bytes
    output_bytes = sum(tensors[value].bytes for value in outputs)
    # Outputs that are not donated buffers were counted as live to the end by the sweep: they are not temporaries.
    fresh = sum(tensors[v].bytes for v in set(outputs) if v not in arguments and v not in aliased)
    temporaries = max(0, temporaries - fresh)
    return MemoryUse(
        peak=sum(arguments.values()) + output_bytes + temporaries - alias_bytes,
        arguments=sum(arguments.values()),
        outputs=output_bytes,
        temporaries=temporaries,
        aliased=alias_bytes,
        by_role=roles,
    )


def _aliases(lowered: LoweredProgram) -> tuple[frozenset[int], int]:
    """Output values that take a donated argument's buffer, and how many bytes that saves."""
    tensors, schedule = lowered.tensors, lowered.schedule
    outputs = list(schedule.outputs)
    taken: set[int] = set()
    saved = 0
    donors: list[Tensor] = []
    for value, argument in zip(schedule.inputs, lowered.workload.arguments, strict=False):
        if argument.aliased_output is not None and argument.aliased_output < len(outputs):
            taken.add(argument.aliased_output)
            saved += tensors[value].bytes
        elif argument.donated:
            donors.append(tensors[value])
    for donor in donors:  # marked as donors only: XLA pairs them with outputs of the same type
        for position, value in enumerate(outputs):
            if position not in taken and tensors[value] == donor:
                taken.add(position)
                saved += donor.bytes
                break
    return frozenset(outputs[position] for position in taken), saved


@dataclass(slots=True)
class _Buffer:
    """A piece of memory and the live values that lie in it; buffers somebody else holds count nothing."""

    size: int
    counted: bool
    values: set[int]


class _Liveness:
    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._tensors = tensors

    def peak(self, schedule: Schedule, *, held: frozenset[int], writable: frozenset[int]) -> int:
        """Most bytes live at once beyond what the caller holds.

        Args:
            schedule: Steps in order.
            held: Values whose memory the caller accounts for: arguments, carried loop values, donated outputs.
            writable: Those of them that may be overwritten once nothing reads them any more.
        """
        last = _last_reads(schedule)
        buffers = {value: _Buffer(0, False, {value}) for value in held}
        current = best = 0
        for index, step in enumerate(schedule.steps):
            dying = {value for value in step.reads if last.get(value) == index and value in buffers}
            free_to_take = {v for v in dying if buffers[v].values == {v} and (v not in held or v in writable)}
            for value, donor in self._placements(step, free_to_take):
                if value in held:
                    continue  # its memory is a donated argument's
                if donor is None:
                    buffers[value] = _Buffer(self._tensors[value].bytes, True, {value})
                    current += buffers[value].size
                else:
                    buffers[value] = buffers[donor]
                    buffers[value].values.add(value)
            best = max(best, current + self._inner_peak(step))
            unread = {value for value in step.writes if value not in last and value in buffers}
            for value in dying | unread:
                buffer = buffers.pop(value)
                buffer.values.discard(value)
                if not buffer.values and buffer.counted:
                    current -= buffer.size
        return best

    def _placements(self, step: Step, takeable: set[int]) -> list[tuple[int, int | None]]:
        """For each value a step writes, the dying operand whose buffer it takes, or None for a new one."""
        if isinstance(step, LoopStep):
            pairs = zip(step.reads, step.writes, strict=False)
            return [(result, operand if operand in takeable else None) for operand, result in pairs]
        donor = self._donor(step, takeable) if isinstance(step, Kernel) else None
        return [(value, donor if position == 0 else None) for position, value in enumerate(step.writes)]

    def _donor(self, kernel: Kernel, takeable: set[int]) -> int | None:
        if not kernel.writes:
            return None
        if kernel.in_place:
            return kernel.reads[0] if kernel.reads[0] in takeable else None
        if kernel.kind is not KernelKind.LOOP_FUSION:
            return None
        size = self._tensors[kernel.writes[0]].bytes
        return next((value for value in kernel.reads if value in takeable and self._tensors[value].bytes == size), None)

    def _inner_peak(self, step: Step) -> int:
        if isinstance(step, LoopStep):
            carried = frozenset(step.body.inputs)
            return self.peak(step.body, held=carried, writable=carried)
        if isinstance(step, BranchStep):
            return max((self.peak(body, held=frozenset(), writable=frozenset()) for body in step.bodies), default=0)
        return 0


def _last_reads(schedule: Schedule) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        for value in step.reads:
            last[value] = index
    for value in schedule.outputs:
        last[value] = len(schedule.steps)
    return last
