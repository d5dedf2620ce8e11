"""Workloads and kernels for people and for programs: `meshcast show`, as tables and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from meshcast.base import format_bytes, format_flops, format_time, format_whole, pairs_of, with_article
from meshcast.results import Section, capped_lines, columns, percent, print_sections
from meshcast.workload import Collective, Convolution, DataLoop, Gemm, Geometry, Op, OpKind, Workload, summary_rows

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run
    from meshcast.lower import Kernel

WORKLOAD_SCHEMA = "meshcast.workload/1"
KERNELS_SCHEMA = "meshcast.kernels/1"

_T = TypeVar("_T")
# Loops and collectives have tables of their own.
_APART = (OpKind.LOOP, OpKind.COLLECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTotal:
    """What all ops of one kind, name and dtype do in a step of one device, before fusion."""

    kind: str
    name: str
    dtype: str
    ops: int
    count: int
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTotal:
    """What all collectives of one kind over one group do in a step; bytes are sent by each device."""

    kind: str
    axes: tuple[str, ...]
    group: str
    group_size: int
    count: int
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One launch of a kernel: how long, and what bounds it."""

    seconds: float
    limited_by: str


def op_totals(workload: Workload) -> list[OpTotal]:
    """Ops summed by kind, name and dtype; those with the largest share of FLOPs or bytes first."""
    totals = [
        OpTotal(
            kind=op.cost.kind.value,
            name=op.name,
            dtype=op.cost.dtype,
            ops=len(group),
            count=sum(count for _, count in group),
            flops=sum(count * (o.cost.matrix_flops + o.cost.vector_flops) for o, count in group),
            bytes=sum(count * (sum(o.cost.operand_bytes) + o.cost.written_bytes) for o, count in group),
        )
        for group in _grouped(workload.walk(), lambda op: (op.cost.kind, op.name, op.cost.dtype))
        if (op := group[0][0]).cost.kind not in _APART
    ]
    flops, moved = workload.totals.flops or 1.0, workload.totals.unfused_bytes or 1.0
    return sorted(totals, key=lambda total: -max(total.flops / flops, total.bytes / moved))


def collective_totals(workload: Workload) -> list[CollectiveTotal]:
    """Collectives summed by kind and group; those that send most first."""
    totals = [
        CollectiveTotal(
            kind=first.kind,
            axes=first.group.axes,
            group=str(first.group),
            group_size=first.group.size,
            count=sum(count for _, count in group),
            bytes=sum(count * collective.sent_bytes for collective, count in group),
        )
        for group in _grouped(workload.collectives(), lambda collective: (collective.kind, collective.group))
        for first in (group[0][0],)
    ]
    return sorted(totals, key=lambda total: -total.bytes)


def _grouped(items: Iterable[tuple[_T, int]], key: Callable[[_T], object]) -> list[list[tuple[_T, int]]]:
    groups: defaultdict[object, list[tuple[_T, int]]] = defaultdict(list)
    for item, count in items:
        groups[key(item)].append((item, count))
    return list(groups.values())


def _loops(workload: Workload) -> list[tuple[Op, int]]:
    return [(op, count) for op, count in workload.walk() if op.cost.kind is OpKind.LOOP]


def print_workload(
    workload: Workload,
    limit: int,
    besides: Sequence[tuple[str, str]] = (),
    *,
    title: str = "What one device runs in a step",
) -> None:
    """Prints what a workload consists of, at most `limit` rows a table, with what else is to say of it as a whole."""
    whole = Section(title=title, rows=[*summary_rows(workload), *besides])
    sections = [whole, _ops_section(workload)]
    if loops := _loops(workload):
        known = {loop.label: loop for loop in workload.data_loops}
        rows = [(op.name, _trips(op, known), format_whole(count), op.location) for op, count in loops]
        sections.append(Section(title="Loops", columns=columns("loop", ">trips", ">runs", "~location"), rows=rows))
    if totals := collective_totals(workload):
        sections.append(_collectives_section(totals))
    print_sections([sections[0], *(capped_lines(section, limit) for section in sections[1:])])


def _trips(op: Op, known: Mapping[str, DataLoop]) -> str:
    """A loop's turns, and where they are no constant of the program, that they are not."""
    said, loop = format_whole(op.trip_count), known.get(op.name)
    if loop is None:
        return said
    return f"{said} assumed, ends on data" if loop.assumed else f"{said} given, ends on data"


def _on_data(op: Op, workload: Workload) -> dict[str, Any]:
    """What is told of a loop that ends on data alone."""
    found = next((loop for loop in workload.data_loops if loop.label == op.name), None)
    if found is None:
        return {}
    return {"ends_on_data": True, "turns_assumed": found.assumed, "turns_at_most": found.at_most}


def _ops_section(workload: Workload) -> Section:
    flops, moved = workload.totals.flops or 1.0, workload.totals.unfused_bytes or 1.0
    rows = [
        (
            op.name.removeprefix("stablehlo."),
            op.kind,
            op.dtype,
            format_whole(op.count),
            format_flops(op.flops),
            percent(op.flops / flops),
            format_bytes(op.bytes),
            percent(op.bytes / moved),
        )
        for op in op_totals(workload)
    ]
    heads = columns("~op", "kind", "dtype", ">count", ">FLOPs", ">share", ">bytes", ">share")
    return Section(title="Ops, before fusion", columns=heads, rows=rows)


def _collectives_section(totals: list[CollectiveTotal]) -> Section:
    rows = [
        (
            each.kind.replace("_", "-"),
            each.group,
            f"{each.group_size:,}",
            format_whole(each.count),
            format_bytes(each.bytes),
        )
        for each in totals
    ]
    heads = columns("collective", "over", ">group", ">count", ">sent per device")
    return Section(title="Collectives", columns=heads, rows=rows)


def print_kernels(run: Run, limit: int, *, name: str | None = None) -> None:
    """Prints the kernels of a lowered program in launch order, equal ones in one row; under its own name, or another."""
    step = run.timeline.duration
    groups = kernel_groups(run)
    rows = [
        (str(number), *_kernel_row(run, kernel, count, step or 1.0))
        for number, (kernel, count) in enumerate(groups, start=1)
    ]
    heads = columns(">#", "~kernel", ">count", ">FLOPs", ">bytes", ">time", ">of step", "bound", "?location")
    launches = (
        f"{format_whole(run.lowered.kernel_count)} kernels in {format_time(step)} on {with_article(run.device.name)}"
    )
    note = (
        f"FLOPs, bytes and time are of all launches of a row; fidelity {run.fidelity}, lowering {run.lowered.lowering}"
    )
    section = Section(title=f"{name or run.workload.name}: {launches}", columns=heads, rows=rows, note=note)
    print_sections([capped_lines(section, limit)])


def kernel_groups(run: Run) -> list[tuple[Kernel, int]]:
    """The rows of the kernels' table: kernels in launch order, equal ones together, with how often they run."""
    groups = _grouped(run.lowered.schedule.walk(), _row_key)
    return [(group[0][0], sum(count for _, count in group)) for group in groups]


def _row_key(kernel: Kernel) -> object:
    return kernel.name, kernel.location, kernel.cost_key


def describe(run: Run, kernel: Kernel) -> str:
    """A kernel's name with the sizes and the type that decide its cost."""
    return f"{kernel.name} {_shape(run, kernel)}".strip()


def _kernel_row(run: Run, kernel: Kernel, count: int, step: float) -> tuple[str, ...]:
    time = kernel_time(run, kernel)
    return (
        describe(run, kernel),
        format_whole(count),
        format_flops(count * (kernel.matrix_flops + kernel.vector_flops)),
        format_bytes(count * _moved(kernel)),
        format_time(count * time.seconds),
        percent(count * time.seconds / step),
        time.limited_by,
        "/".join(kernel.location.split("/")[-2:]),  # the inner end tells kernels apart; JSON has the whole
    )


def _shape(run: Run, kernel: Kernel) -> str:
    """The sizes and the type that decide a kernel's cost."""
    match kernel.geometry:
        case Gemm() as gemm:
            return str(gemm)
        case Convolution() as conv:
            out, kernel_size = ("x".join(map(str, sizes)) for sizes in (conv.out_spatial, conv.kernel))
            return f"{conv.batch}x{out} {conv.in_channels}->{conv.out_channels} by {kernel_size} {conv.lhs_dtype}"
        case Collective() as collective:
            return f"over {collective.group} {kernel.dtype}"
    return str(run.lowered.tensors[kernel.writes[0]]) if kernel.writes else ""


def _moved(kernel: Kernel) -> float:
    """Bytes a kernel moves: to and from memory, or for a collective those it sends."""
    return kernel.collective.sent_bytes if kernel.collective is not None else kernel.read_bytes + kernel.written_bytes


def kernel_time(run: Run, kernel: Kernel) -> KernelTime:
    """The time of one launch, on its own."""
    if kernel.collective is None:
        estimate = run.kernels[kernel]
        return KernelTime(seconds=estimate.time, limited_by=estimate.limited_by)
    time = run.collective(kernel)
    return KernelTime(seconds=time.seconds, limited_by="link" if time.bandwidth_s >= time.latency_s else "latency")


def shown_json(run: Run, *, kernels: bool) -> dict[str, Any]:
    """A program as `show --json` tells it: its kernels where they are asked for, or its ops."""
    return kernels_json(run) if kernels else workload_json(run.workload)


def workload_json(workload: Workload) -> dict[str, Any]:
    """A workload as an object of schema `meshcast.workload/1`; counts and bytes are per device and step."""
    totals = workload.totals
    return {
        "schema": WORKLOAD_SCHEMA,
        "name": workload.name,
        "sha256": workload.sha256,
        "content_hash": workload.content_hash,
        "devices": workload.devices,
        "mesh": workload.mesh.sizes,
        "totals": {
            "ops": totals.ops,
            "flops": totals.flops,
            "matrix_flops": totals.matrix_flops,
            "vector_flops": totals.vector_flops,
            "transcendentals": totals.transcendentals,
            "recomputed_flops": totals.recomputed_flops,
            "unfused_bytes": totals.unfused_bytes,
            "collective_bytes": totals.collective_bytes,
        },
        "ops": [asdict(total) for total in op_totals(workload)],
        "loops": [
            {
                "label": op.name,
                "trip_count": op.trip_count,
                "runs": count,
                "location": op.location,
                **_on_data(op, workload),
            }
            for op, count in _loops(workload)
        ],
        "collectives": [asdict(total) for total in collective_totals(workload)],
        "arguments": _arguments(workload),
        "warnings": list(workload.warnings),
    }


def _arguments(workload: Workload) -> list[dict[str, Any]]:
    tensors = [workload.tensors[value] for value in workload.body.inputs]
    return [
        {
            "name": argument.name,
            "role": argument.role.value,
            "donated": argument.donated,
            "aliased_output": argument.aliased_output,
            "shape": list(tensor.shape),
            "dtype": tensor.dtype,
            "bytes": tensor.bytes,
        }
        for argument, tensor in zip(workload.arguments, tensors, strict=True)
    ]


def kernels_json(run: Run) -> dict[str, Any]:
    """Every kernel in launch order, schema `meshcast.kernels/1`; FLOPs, bytes and seconds are of one launch.

    `row` is the kernel's row in the table for people, which holds equal ones once: what `--explain` takes.
    """
    rows = {_row_key(kernel): number for number, (kernel, _) in enumerate(kernel_groups(run), start=1)}
    return {
        "schema": KERNELS_SCHEMA,
        "name": run.workload.name,
        "sha256": run.workload.sha256,
        "on": {"device": run.device.name, "cluster": run.cluster.name if run.devices > 1 else None},
        "fidelity": run.fidelity,
        "lowering": run.lowered.lowering,
        "launches": run.lowered.kernel_count,
        "kernels": [{"row": rows[_row_key(k)], **_kernel_json(run, k, n)} for k, n in run.lowered.schedule.walk()],
        "warnings": [*run.workload.warnings, *run.notes, *run.kernels.warnings],
    }


def _kernel_json(run: Run, kernel: Kernel, count: int) -> dict[str, Any]:
    time = kernel_time(run, kernel)
    geometry = kernel.geometry
    return {
        "name": kernel.name,
        "kind": kernel.kind.value,
        "dtype": kernel.dtype,
        "count": count,
        "flops": kernel.matrix_flops + kernel.vector_flops,
        "bytes": _moved(kernel),
        "seconds": time.seconds,
        "limited_by": time.limited_by,
        "ops": list(kernel.ops),
        "location": kernel.location,
        "recomputed": kernel.recomputed,
        "geometry": _geometry_object(geometry) if geometry is not None else None,
    }


def _geometry_object(geometry: Geometry) -> dict[str, Any]:
    found = {"type": type(geometry).__name__.lower(), **asdict(geometry)}
    if isinstance(geometry, Collective):
        sources, targets = (devices.tolist() for devices in pairs_of(geometry.pairs))
        found["pairs"] = [list(pair) for pair in zip(sources, targets, strict=True)]
    return found
