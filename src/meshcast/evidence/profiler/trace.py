"""`MeasuredTrace`: what one device ran, as a profiler saw it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from meshcast.base import InputError

Format = Literal["xplane", "kineto", "nsys-trace", "nsys-summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One launch, or a copy or fill of memory; seconds on the device's clock.

    Attributes:
        name: The kernel's own name.
        start: When it began, from any origin.
        duration: How long it ran.
        stream: What it ran on; those of one stream follow each other.
        op: The instruction of the compiled program that launched it (XLA's `hlo_op`), if the trace says so.
        module: The compiled program (XLA's `hlo_module`).
        scope: Where in the source program that is: JAX's name scope, PyTorch's operator or collective (`nccl:...`).
        group: The group of a collective, the ranks or the name of its group, as the framework writes them.
        shape: Its launch grid, as text: tells launches of one kernel apart.
        step: The number of the step that the host said it was in while it launched this.
        count: Launches that this stands for, where a summary gives only their sum.
    """

    name: str
    start: float
    duration: float
    stream: str = ""
    op: str = ""
    module: str = ""
    scope: str = ""
    group: str = ""
    shape: str = ""
    step: int | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.duration) and self.duration >= 0):
            raise ValueError(f"a start of {self.start} s and a duration of {self.duration} s")

    @property
    def end(self) -> float:
        """When it was done."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrace:
    """One device's kernels, by start.

    Attributes:
        source: The file.
        format: Who wrote it.
        device: Which device of the file: "GPU:0".
        rank: Its rank among all that ran, where the framework says so.
        device_name: What the driver calls it: "NVIDIA H200"; empty where the file does not say.
        kernels: Its launches in order; of a summary, one for each kernel name.
        notes: What is doubtful about the file.
    """

    source: str
    format: Format
    device: str
    rank: int | None = None
    device_name: str = ""
    kernels: tuple[MeasuredKernel, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The trace's name beside others of the same run."""
        return self.device if self.rank is None else f"rank {self.rank} ({self.device})"

    @property
    def ordered(self) -> bool:
        """Whether the trace has the start of every kernel; a summary has not."""
        return self.format != "nsys-summary"

    @property
    def modules(self) -> dict[str, float]:
        """Seconds of kernels by the compiled program that they belong to, the longest first; "" is no name."""
        found: dict[str, float] = {}
        for kernel in self.kernels:
            found[kernel.module] = found.get(kernel.module, 0.0) + kernel.duration
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def of_module(self, name: str) -> MeasuredTrace:
        """The kernels of one compiled program.

        Raises:
            InputError: There are none.
        """
        kept = tuple(kernel for kernel in self.kernels if kernel.module == name)
        if not kept:
            known = ", ".join(
                f"{module} ({seconds * 1e3:.3g} ms)" for module, seconds in self.modules.items() if module
            )
            raise InputError(
                f"no kernel of {self.device} is of module {name!r}",
                where=self.source,
                fix=f"one of: {known}" if known else "leave --module out: this trace names none",
            )
        return replace(self, kernels=kept)


def by_start(kernels: list[MeasuredKernel]) -> tuple[MeasuredKernel, ...]:
    """In the order in which they began."""
    return tuple(sorted(kernels, key=lambda kernel: (kernel.start, kernel.end)))
