"""An `Understanding` as JSON and as tables."""

from __future__ import annotations

from typing import Any

from meshcast.base import format_bytes, format_time
from meshcast.results import Section, columns, percent
from meshcast.traces.recorded.statistics import dependencies_of, sizes_of, statistics_json
from meshcast.traces.recorded.understanding import Understanding
from meshcast.traces.recorded.what_if import ChangedReplay

MOST = 8  # rows of a table


def understanding_json(found: Understanding) -> dict[str, Any]:
    """As an object of JSON; seconds."""
    return {
        "span_s": found.run.duration,
        **({} if found.what_if is None else {"what_if": found.what_if.to_json()}),
        "host_bound_share": found.host_bound,
        "non_gemm_share": found.without_products,
        "kernel_classes_s": found.classes,
        "critical_path_s": found.critical_by,
        "critical_path_ranks": sorted({rank for rank, _, _ in found.critical}),
        **statistics_json(found.job),
        "ranks": [
            {
                "rank": each.rank, "alike": each.ranks, "span_s": each.span, "compute_time_s": each.computing,
                "non_compute_time_s": each.not_computing, "idle_time_s": each.idle, "idle_for_s": each.idle_for,
                "exposed_communication_s": each.exposed, "waited_for_others_s": each.waited, "others_waited_s": each.late,
            }
            for each in found.ranks
        ],
    }  # fmt: skip


def understanding_sections(found: Understanding) -> list[Section]:
    """As tables: ranks, what the critical path is made of, classes of kernels."""
    whole = found.run.duration or 1.0
    ranks = [
        (
            f"{each.rank}" + (f" (and {each.ranks - 1} like it)" if each.ranks > 1 else ""), format_time(each.computing),
            format_time(each.not_computing), format_time(each.idle),
            ", ".join(f"{name} {format_time(seconds)}" for name, seconds in list(each.idle_for.items())[:2]),
            format_time(each.waited), format_time(each.late),
        )
        for each in found.ranks
    ]  # fmt: skip
    path = [(name, format_time(seconds), percent(seconds / whole)) for name, seconds in found.critical_by.items()]
    total = sum(found.classes.values()) or 1.0
    kinds = [(name, format_time(seconds), percent(seconds / total)) for name, seconds in found.classes.items()]
    steps = ", ".join(sorted({str(rank) for rank, _, _ in found.critical}))
    return [
        *_changed(found.what_if),
        Section(
            title=f"Where {format_time(found.run.duration)} go: {percent(found.host_bound)} idle for the host",
            columns=columns("rank", ">computing", ">communication alone", ">idle", "~idle for", ">waited", ">others waited"),
            rows=ranks[: 2 * MOST],
        ),
        Section(
            title=f"The critical path, over ranks {steps}", columns=columns("what", ">time", ">of the step"), rows=path[:MOST]
        ),
        Section(
            title=f"Kernels by class: {percent(found.without_products)} of computing is not products",
            columns=columns("class", ">time", ">share"), rows=kinds[:MOST],
        ),
        *_statistics(found),
    ]  # fmt: skip


def _statistics(found: Understanding) -> list[Section]:
    """Sizes by class, and how nodes depend on each other."""
    links = dependencies_of(found.job)
    sizes = [
        (name, f"{each.count:,}", format_bytes(each.least), format_bytes(each.median), format_bytes(each.most),
         format_bytes(each.total))
        for name, each in sizes_of(found.job).items()
    ]  # fmt: skip
    return [
        Section(
            title="Sizes of nodes", columns=columns("class", ">nodes", ">least", ">median", ">most", ">in all"),
            rows=sizes[:MOST],
        ),
        Section(
            title="Dependencies",
            columns=columns(
                ">nodes", ">waits", ">wait for nothing", ">most before one", ">most behind one", ">longest row", ">abreast"
            ),
            rows=[
                (
                    f"{links.nodes:,}", f"{links.edges:,}", f"{links.free:,}", f"{links.most_before:,}",
                    f"{links.most_behind:,}", f"{links.chain:,}", f"{links.abreast:.2f}",
                )
            ],
        ),
    ]  # fmt: skip


def _changed(found: ChangedReplay | None) -> list[Section]:
    """What something faster changes, in one row."""
    if found is None:
        return []
    asked = ", ".join(f"{name} {times:g} times as fast" for name, times in found.asked.items())
    row = [format_time(each) for each in (found.before, found.after, found.low, found.high)]
    return [
        Section(
            title=f"With {asked}",
            columns=columns(">replayed before", ">after", ">at least", ">at most"),
            rows=[tuple(row)],
        )
    ]
