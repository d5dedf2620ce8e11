"""Kernels of GPUs that nobody here has: `validate silicon`, against the tables of `meshcast.estimate.measurements.silicon`.

A row is a measured call. Predicted is what it takes in a run of the same calls without a pause: the kernel, and the gap to
the next one, at the clock that the power cap leaves it: that of a short run, or of a long one where the run took longer than
`estimate.profiled.silicon.SETTLES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from meshcast.base import UsageError, nearest
from meshcast.estimate import (
    MOST_QUANTISATION,
    Estimates,
    Estimator,
    SiliconKernel,
    attention_kernels,
    attention_table,
    load_estimator,
    product_kernels,
    product_table,
    slowdown_in_its_run,
)
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.hardware import Device, resolve
from meshcast.workload import Attention, Gemm

OPS = ("gemm", "attention")
# Upper ends in FLOP. Up to the first one a product is little but a launch.
SIZES: tuple[tuple[str, float], ...] = (
    ("below 0.1 GFLOP", 1e8),
    ("0.1 to 10 GFLOP", 1e10),
    ("0.01 to 1 TFLOP", 1e12),
    ("from 1 TFLOP", float("inf")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconRow:
    """A row with what it is grouped by."""

    row: ProgramRow  # its group names the device, the op and the type
    device: str
    op: str  # one of `OPS`
    size: str  # one of `SIZES`
    source: str  # framework and version

    @property
    def by_size(self) -> ProgramRow:
        """The row in a group of its size."""
        return replace(self.row, group=f"{self.row.group}, {self.size}")


def validate_silicon(
    devices: Sequence[str],
    *,
    ops: Sequence[str] = ("gemm",),
    sample: int = 500,
    fidelity: str = "auto",
    framework: str | None = None,
    most_quantisation: float = MOST_QUANTISATION,
    root: Path | None = None,
) -> Iterator[SiliconRow]:
    """Rows of a sample of each device's tables, per op and type.

    Args:
        devices: Names of the catalogue.
        ops: Some of `OPS`.
        sample: Rows per device, op and type, shared out evenly among sizes; where a size has fewer, there are fewer.
        fidelity: An estimator; `auto` is `analytical`, since `profiled` may have read these very tables.
        framework: Whose tables; by default those that hold the least besides the op (`estimate.measurements.silicon`).
        most_quantisation: The share of its latency that the quantisation of an f8 product's operand may take.
        root: The tables' folder; the installed package's by default.

    Raises:
        UnsupportedError: the tables are not installed, or there are none of a device.
        UsageError: an unknown op or estimator.
    """
    read = partial(_calls, framework=framework, most_quantisation=most_quantisation, root=root)
    for op in ops:
        if op not in OPS:
            raise UsageError(f"no op {op!r} among the silicon tables", where="--ops", fix=nearest(op, OPS))
    estimator = load_estimator("analytical" if fidelity == "auto" else fidelity)
    for name in devices:
        device = resolve(name).device
        for op in ops:
            for label, calls in read(device, op):
                for row, call in _judge(f"{device.name} {label}", sampled(calls, sample), device, estimator):
                    source = str(call.source)
                    yield SiliconRow(row=row, device=device.name, op=op, size=size_of(call), source=source)


def _calls(
    device: Device, op: str, *, framework: str | None, most_quantisation: float, root: Path | None
) -> Iterator[tuple[str, list[SiliconKernel]]]:
    """Calls of an op by what they are called in the tables' groups."""
    if op == "gemm":
        rows = product_table(device.name, framework or "trtllm", root, most_quantisation=most_quantisation)
        yield from _by_dtype("gemm", product_kernels(device, rows))
        return
    context = attention_table(device.name, "context", framework or "sglang", root)
    generation = attention_table(device.name, "generation", framework or "sglang", root)
    yield from _by_dtype("context", attention_kernels(context))
    yield from _by_dtype("generation", attention_kernels(generation))


def _by_dtype(label: str, calls: Iterable[SiliconKernel]) -> Iterator[tuple[str, list[SiliconKernel]]]:
    found: dict[str, list[SiliconKernel]] = {}
    for call in calls:
        found.setdefault(call.kernel.dtype, []).append(call)
    for dtype, rows in sorted(found.items()):
        yield f"{label}, {dtype}", rows


def sampled(calls: Sequence[SiliconKernel], count: int) -> list[SiliconKernel]:
    """A sample, the same every time: as many of each size, at even steps through them in the order of their FLOPs."""
    sizes: dict[str, list[SiliconKernel]] = {name: [] for name, _ in SIZES}
    for call in sorted(calls, key=lambda call: (call.kernel.matrix_flops, str(call.kernel.geometry))):
        sizes[size_of(call)].append(call)
    chosen: list[SiliconKernel] = []
    for rows in sizes.values():
        wanted = min(len(rows), -(-count // len(SIZES)))
        chosen += islice((rows[(2 * step + 1) * len(rows) // (2 * wanted)] for step in range(wanted)), wanted)
    return chosen


def size_of(call: SiliconKernel) -> str:
    """The name of the class of sizes that a row belongs to."""
    return next(name for name, end in SIZES if call.kernel.matrix_flops < end)


def _judge(
    group: str, calls: Sequence[SiliconKernel], device: Device, estimator: Estimator
) -> Iterator[tuple[ProgramRow, SiliconKernel]]:
    support = [estimator.supports(call.kernel, device) for call in calls]
    answered = [call for call, s in zip(calls, support, strict=True) if s.level != "no"]
    times = iter(_predicted(answered, estimator.estimate([c.kernel for c in answered], device), device))
    for call, supported in zip(calls, support, strict=True):
        row = partial(ProgramRow, id=f"{device.name} {_name(call)}", group=group, measured=call.seconds * 1e6)
        if supported.level == "no":
            judged = row(predicted=None, why=f"unsupported: {supported.reason}")
        else:
            time, low, high = next(times)
            judged = row(predicted=time * 1e6, low=low * 1e6, high=high * 1e6, kernels=1)
        yield judged, call


def _predicted(
    calls: Sequence[SiliconKernel], estimates: Estimates, device: Device
) -> Iterator[tuple[float, float, float]]:
    """Seconds from one call to the next, with their interval."""
    for index, call in enumerate(calls):
        slower = slowdown_in_its_run(call, estimates, index, device)
        bounds = (float(column[index]) for column in (estimates.time, estimates.low, estimates.high))
        time, low, high = (seconds * slower + estimates.gap for seconds in bounds)
        yield time, low, high


def _name(call: SiliconKernel) -> str:
    shape = call.kernel.geometry
    if isinstance(shape, Gemm):
        return str(shape)
    assert isinstance(shape, Attention)
    lengths = f"{shape.q_len} on {shape.kv_len}" if shape.q_len != shape.kv_len else str(shape.kv_len)
    return f"{shape.batch}x {shape.heads}/{shape.kv_heads} heads of {shape.head_dim}, {lengths} {shape.dtype}"
