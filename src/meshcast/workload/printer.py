"""Workloads for people: a summary as text or HTML."""

from __future__ import annotations

from meshcast.base import format_bytes, format_flops
from meshcast.workload.workload import Workload


def summary_rows(workload: Workload) -> list[tuple[str, str]]:
    """Label and value of each line of the summary."""
    totals = workload.totals
    by_dtype = ", ".join(f"{format_flops(v)} {k}" for k, v in sorted(totals.matrix_flops.items(), key=lambda i: -i[1]))
    rows = [
        ("program", workload.name),
        ("devices", f"{workload.devices} ({workload.mesh})"),
        ("ops", f"{totals.ops:,}"),
        ("matrix FLOPs", by_dtype or "none"),
        (
            "vector FLOPs",
            f"{format_flops(sum(totals.vector_flops.values()))} + {totals.transcendentals:,.4g} transcendentals",
        ),
        ("bytes, unfused", format_bytes(totals.unfused_bytes)),
    ]
    if totals.recomputed_flops:
        rows.append(("recomputed", f"{format_flops(totals.recomputed_flops)} of the matrix FLOPs"))
    for kind, sent in sorted(totals.collective_bytes.items()):
        rows.append((kind, f"{format_bytes(sent)} sent per device"))
    rows += [("warning", text) for text in workload.warnings]
    return rows
