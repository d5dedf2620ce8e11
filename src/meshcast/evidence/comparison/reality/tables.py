"""Prediction and reality for people: the two steps, the waterfall between them, and the kernels that make it."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.base import format_time
from meshcast.evidence.comparison.reality.reality import Reality
from meshcast.evidence.comparison.reality.rows import KernelRow
from meshcast.results import Section, columns, percent, print_sections, sections_text

ONE_SIDED_ROWS = 6
NAME_LENGTH = 44


def print_reality(reality: Reality) -> None:
    """Prints the comparison on standard output."""
    print_sections(reality_sections(reality))


def reality_text(reality: Reality) -> str:
    """The comparison as plain text."""
    return sections_text(reality_sections(reality), width=120)


def reality_sections(reality: Reality) -> list[Section]:
    """The sections of a comparison with a measured run, the most important first."""
    return [
        _headline(reality),
        _waterfall(reality),
        _worst(reality),
        *_one_sided(reality, "missing", "Predicted, not measured"),
        *_one_sided(reality, "extra", "Measured, not predicted"),
        *(
            [Section(title="Notes", columns=columns(""), rows=[(note,) for note in reality.notes])]
            if reality.notes
            else []
        ),
    ]


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "-") + format_time(abs(seconds))


def _headline(reality: Reality) -> Section:
    search, coverage = reality.shown.search, reality.coverage
    of = [search.steps[number].seconds for number in search.counted]
    steps = (
        f"median of {len(of)} steps ({format_time(min(of))} to {format_time(max(of))}), {len(search.steps)} in the trace "
        f"by {search.method}"
        if len(of) > 1
        else f"1 of {len(search.steps)} steps in the trace, by {search.method}"
    )
    ratio = reality.predicted_s / reality.measured_s
    return Section(
        title=f"{reality.prediction.name} on {reality.prediction.device}: predicted against measured",
        rows=[
            ("predicted step", f"{format_time(reality.predicted_s)} ({reality.prediction.fidelity}, "
                               f"{reality.prediction.lowering} kernels)"),
            ("measured step", f"{format_time(reality.measured_s)}, {steps}"),
            ("difference", f"{_signed(reality.difference_s)}: predicted is {ratio:.3f} of measured"),
            ("kernels alone", f"{format_time(reality.predicted_busy_s)} predicted, {format_time(reality.measured_busy_s)} "
                              f"measured: {reality.predicted_busy_s / reality.measured_busy_s:.3f}"),
            ("aligned", f"{percent(coverage.measured)} of measured kernel time ({percent(coverage.by_name)} by name, "
                        f"{percent(coverage.by_order)} by order, {percent(coverage.by_duration)} by duration), "
                        f"{percent(coverage.predicted)} of predicted"),
        ],
        emphasis=True,
    )  # fmt: skip


def _waterfall(reality: Reality) -> Section:
    rows = [
        (
            part.kind,
            format_time(part.predicted_s),
            format_time(part.measured_s),
            _signed(part.difference_s),
            f"{part.predicted_launches:,}",
            f"{part.measured_launches:,}",
        )
        for part in reality.waterfall
    ]
    total = (
        "step", format_time(reality.predicted_s), format_time(reality.measured_s), _signed(reality.difference_s),
        f"{sum(part.predicted_launches for part in reality.waterfall):,}",
        f"{sum(part.measured_launches for part in reality.waterfall):,}",
    )  # fmt: skip
    return Section(
        title="Where they part",
        columns=columns("class", ">predicted", ">measured", ">difference", ">launches", ">measured launches"),
        rows=[*rows, total],
        note="what overlaps is shared out, communication counts where nothing else runs: the differences add up",
    )


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def _place(source: str) -> str:
    """The end of a path: the folder, the file and the line."""
    return "/".join(source.split("/")[-2:])


def _worst(reality: Reality) -> Section:
    rows = [
        (
            _short(row.name),
            _short(row.measured_name) if row.measured_name != row.name else "",
            f"{row.measured_launches:,}",
            format_time(row.predicted_s),
            format_time(row.measured_s),
            f"{row.ratio:.2f}" if row.ratio else "-",
            row.how,
            _place(row.source) or row.location,
        )
        for row in reality.worst
    ]
    return Section(
        title=f"The {len(rows)} kernels that part most" if len(rows) > 1 else "Kernels",
        columns=columns(
            "kernel", "~measured as", ">launches", ">predicted", ">measured", ">ratio", "by", "?source or op"
        ),
        rows=rows,
        note="ratio: predicted over measured, all launches of a step",
    )


def _one_sided(reality: Reality, how: str, title: str) -> list[Section]:
    found: Sequence[KernelRow] = reality.of(how)
    if not found:
        return []
    seconds = sum(row.predicted_s + row.measured_s for row in found)
    launches = sum(row.predicted_launches + row.measured_launches for row in found)
    rows = [
        (
            _short(row.name or row.measured_name),
            row.kind,
            f"{row.predicted_launches + row.measured_launches:,}",
            format_time(row.predicted_s + row.measured_s),
            row.location,
        )
        for row in found[:ONE_SIDED_ROWS]
    ]
    more = f"; {len(found) - len(rows)} more kernels" if len(found) > len(rows) else ""
    return [
        Section(
            title=f"{title}: {launches:,} launches, {format_time(seconds)}",
            columns=columns("kernel", "class", ">launches", ">time", "?op"),
            rows=rows,
            note=more.lstrip("; "),
        )
    ]
