"""Peak memory by liveness over the scheduled kernels, with donation, in-place updates and loop buffers.

Arguments are held for the whole step and outputs have memory of their own, so the temporaries are everything else at
its worst moment: `temporaries = max over steps of (bytes of the buffers that live there)`, and
`peak = arguments + outputs - aliased + temporaries`, as XLA's buffer assignment reports it. See `simulate.memory.buffers` for
which values share a buffer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from meshcast.base import KeptBeside, NumberColumn, PartedError, Rows, format_bytes, shown
from meshcast.hardware import Device, devices_of
from meshcast.lower import LoweredProgram, outputs_in_place
from meshcast.simulate.memory.buffers import (
    KernelNeeds,
    LiveBuffer,
    lifetimes,
    live_bytes,
    moments,
    most_at_once,
)
from meshcast.simulate.memory.scratch import kernel_needs, needs_as_compiled, needs_once_timed
from meshcast.workload import Convolution, Gemm


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes on one device; `peak = arguments + outputs + temporaries - aliased`.

    All are 0 where nothing is known of them (`known`): a trace need not say what its nodes hold.
    """

    peak: int
    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    by_role: dict[str, int]
    known: bool = True

    def summary_rows(self) -> Rows:
        """The peak and its parts."""
        if not self.known:
            return [("peak", "not known")]
        return [
            ("peak", format_bytes(self.peak)),
            ("arguments", format_bytes(self.arguments)),
            *((f"  {role.replace('_', ' ')}", format_bytes(size)) for role, size in self.by_role.items()),
            ("outputs", format_bytes(self.outputs)),
            ("temporaries", format_bytes(self.temporaries)),
            ("aliased", format_bytes(self.aliased)),
        ]


def peak_memory(lowered: LoweredProgram, device: Device | None = None, *, tuned: bool = True) -> MemoryUse:
    """The step's memory on one device: the compiler's own figures where it ran, else by liveness.

    Without a device, that of the values alone, without libraries' scratch; where products were not `tuned`, all are cuBLAS's.
    Rates do not enter: on other hardware of the same kind the same is known already.
    """
    if device is not None and isinstance(device.cores, NumberColumn):
        return _on_all(lowered, device, tuned=tuned)
    kind = (device.kind, device.vendor, device.architecture, device.cores) if device is not None else None
    beside = id(lowered.tensors), id(lowered.workload.arguments), id(lowered.memory), lowered.lowering, kind, tuned
    return _KNOWN.of(lowered.schedule, beside, lambda: (lowered, _peak_memory(lowered, device, tuned=tuned)))[1]


def _on_all(lowered: LoweredProgram, device: Device, *, tuned: bool) -> MemoryUse:
    """The memory on each of the devices that one stands for, which differ in how many cores they have.

    Cores decide what kernels need beside their operands, and nothing else: where that is the same, so is all of it.

    Raises:
        PartedError: Some need more than others.
    """
    devices = devices_of(device)
    assert devices is not None
    kernels = {
        kernel.cost_key: kernel
        for kernel, _ in lowered.schedule.walk()
        if isinstance(kernel.geometry, Gemm | Convolution)
    }
    needs = needs_once_timed if lowered.lowering == "compiled" else kernel_needs
    asked: dict[int, tuple[tuple[int, bool], ...]] = {
        one.cores: tuple(needs(kernel, one, tuned=tuned) for kernel in kernels.values())
        for one in dict.fromkeys(devices)
    }
    found: dict[tuple[tuple[int, bool], ...], MemoryUse] = {}
    for one in devices:
        if asked[one.cores] not in found:
            found[asked[one.cores]] = peak_memory(lowered, one, tuned=tuned)
    uses = [found[asked[one.cores]] for one in devices]
    alike = np.array([use == uses[0] for use in uses])
    if not alike.all():
        raise PartedError(alike)
    return uses[0]


# With the program that it is of, which holds its tensors and arguments: no others have their identity.
_KNOWN: KeptBeside[tuple[LoweredProgram, MemoryUse]] = KeptBeside(of_program=4)


def _peak_memory(lowered: LoweredProgram, device: Device | None, *, tuned: bool) -> MemoryUse:
    tensors, schedule = lowered.tensors, lowered.schedule
    roles: dict[str, int] = {}
    for value, argument in zip(schedule.inputs, lowered.workload.arguments, strict=False):
        roles[argument.role.value] = roles.get(argument.role.value, 0) + tensors[value].bytes
    if (known := lowered.memory) is not None:
        temporaries = known.temporaries + _untold_by_compiler(lowered, device, tuned=tuned)
        return MemoryUse(
            peak=known.arguments + known.outputs + temporaries - known.aliased,
            arguments=known.arguments,
            outputs=known.outputs,
            temporaries=temporaries,
            aliased=known.aliased,
            by_role=roles,
        )
    arguments = sum(tensors[value].bytes for value in schedule.inputs)
    outputs = sum(tensors[value].bytes for value in schedule.outputs)
    aliases = aliased_outputs(lowered)
    aliased = sum(tensors[value].bytes for value in aliases.values())
    by_value = {schedule.outputs[position]: value for position, value in aliases.items()}
    temporaries = most_at_once(outside_outputs(lifetimes(schedule, tensors, by_value, device, tuned=tuned)))
    return MemoryUse(
        peak=arguments + outputs + temporaries - aliased,
        arguments=arguments,
        outputs=outputs,
        temporaries=temporaries,
        aliased=aliased,
        by_role=roles,
    )


def _untold_by_compiler(lowered: LoweredProgram, device: Device | None, *, tuned: bool) -> int:
    """By how many bytes products raise the temporaries that a compiler states that had no GPU to time them on.

    Those that cuBLAS would win get a workspace, and nothing is written over their results. The compiler's own figure stays; what
    our liveness says of its kernels as they are, and with these products cuBLAS's, differs by so much.
    """
    if device is None or device.kind != "gpu" or lowered.lowering != "compiled":
        return 0
    if not any(needs_once_timed(kernel, device, tuned=tuned)[0] for kernel, _ in lowered.schedule.walk()):
        return 0
    by_value = {lowered.schedule.outputs[position]: value for position, value in aliased_outputs(lowered).items()}

    def temporaries(needs: KernelNeeds) -> int:
        buffers = lifetimes(lowered.schedule, lowered.tensors, by_value, device, tuned=tuned, needs=needs)
        return most_at_once(outside_outputs(buffers))

    return max(0, temporaries(needs_once_timed) - temporaries(needs_as_compiled))


def outside_outputs(buffers: list[LiveBuffer]) -> list[LiveBuffer]:
    """Buffers that need memory of their own: largest first, each goes into an output's memory if that is still free.

    XLA's buffer assignment fills allocations greedily by size, and an output's is as good as any until it is written.
    """
    outputs = sorted([b for b in buffers if b.output and b.size], key=lambda b: b.size)
    sizes = [output.size for output in outputs]
    memories = [_Memory(output) for output in outputs]
    free = [b for b in buffers if not b.held and b.size]
    if not memories:
        return free
    left: list[LiveBuffer] = []
    for buffer in sorted(free, key=lambda b: -b.size):
        for index in range(bisect_left(sizes, buffer.size), len(memories)):
            if memories[index].takes(buffer):
                break
        else:
            left.append(buffer)
    return left


class _Memory:
    """An output's memory, with the spans of moments in which somebody uses it: none overlaps another."""

    __slots__ = ("_ends", "_output", "_starts")

    def __init__(self, output: LiveBuffer) -> None:
        self._output = output
        self._starts, self._ends = [output.start], [output.end]

    def takes(self, buffer: LiveBuffer) -> bool:
        """Takes the place for a buffer if it is free as long as that lives; whether it was.

        The output may be written over a value of its size that is read for it alone at that moment, a product that its epilogue
        is computed from among them, which was there a moment before.
        """
        start, end = buffer.start, buffer.end
        output = self._output
        if buffer.before is not None and buffer.before == output.value and buffer.size <= output.size:
            start, end = start - 1, end - 1
        if end == output.start > start and buffer.value in output.over and buffer.size == output.size:
            end -= 1
        behind = bisect_right(self._starts, end)
        if behind and self._ends[behind - 1] >= start:
            return False
        self._starts.insert(behind, start)
        self._ends.insert(behind, end)
        return True


def aliased_outputs(lowered: LoweredProgram) -> dict[int, int]:
    """Positions of outputs that take a donated argument's memory, with that argument's value."""
    return outputs_in_place(lowered.schedule, lowered.workload.arguments, lowered.tensors)


def temporary_buffers(lowered: LoweredProgram, device: Device) -> list[LiveBuffer]:
    """The buffers of a step's temporaries, each with the moments between which it is needed.

    Of a compiler's kernels too: it puts temporaries into one block by the live ranges of its instructions in the order that it
    has given them, which is the schedule's.
    """
    by_value = {lowered.schedule.outputs[position]: value for position, value in aliased_outputs(lowered).items()}
    needs = needs_once_timed if lowered.lowering == "compiled" else kernel_needs
    return outside_outputs(lifetimes(lowered.schedule, lowered.tensors, by_value, device, needs=needs))


def between_buffers(lowered: LoweredProgram, device: Device) -> int:
    """By how many bytes the block that a compiler has assigned is larger than all buffers that are needed at once.

    `temporaries - max over moments of live bytes`: what lies between buffers and cannot be used, and what our live ranges do not
    tell; negative where the compiler has put buffers in the same place that we count apart. 0 where no compiler has assigned any.
    """
    if lowered.memory is None:
        return 0
    most = max(live_bytes(temporary_buffers(lowered, device))[1], default=0)
    return peak_memory(lowered, device).temporaries - most


def memory_by_kernel(lowered: LoweredProgram, device: Device) -> dict[int, int]:
    """Bytes of temporaries that are needed while a kernel runs, by the kernel's identity.

    A kernel that stands at several places has the most of them. Where a compiler has assigned one block to all temporaries, no
    more of them are there at once than it holds.
    """
    order, live = live_bytes(temporary_buffers(lowered, device))
    most = peak_memory(lowered, device).temporaries
    found: dict[int, int] = {}
    for moment, kernel in moments(lowered.schedule):
        at = bisect_right(order, moment) - 1
        here = min(live[at], most) if at >= 0 else 0
        found[id(kernel)] = max(found.get(id(kernel), 0), here)
    return found
