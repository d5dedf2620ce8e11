"""A comparison for people: a table of devices x fidelities a target, then agreement, swaps, orders and what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from meshcast.base import format_time
from meshcast.evidence.comparison.cell import Cell
from meshcast.evidence.comparison.comparison import Comparison
from meshcast.evidence.comparison.gains_table import NO_TIME, gains_sections
from meshcast.results import (
    Section,
    capped_lines,
    columns,
    percent,
    print_sections,
    sections_html,
    sections_text,
)

SWAP_ROWS = 12
STAND_IN = "*"
BESIDE = 3


def print_comparison(comparison: Comparison) -> None:
    """Prints a comparison on standard output."""
    print_sections(comparison_sections(comparison))


def comparison_text(comparison: Comparison) -> str:
    """A comparison as plain text."""
    return sections_text(comparison_sections(comparison), width=120)


def comparison_html(comparison: Comparison) -> str:
    """A comparison as HTML, for notebooks."""
    return sections_html(comparison_sections(comparison))


def comparison_sections(comparison: Comparison) -> list[Section]:
    """The sections of a comparison, the most important first."""
    return [
        *(() if comparison.varied else _by_target(comparison)),
        *gains_sections(comparison),
        *agreement_sections(comparison),
        *swap_sections(comparison),
        *(() if comparison.varied else order_sections(comparison)),
        *fidelity_sections(comparison),
        *missing_sections(comparison),
    ]


def _by_target(comparison: Comparison) -> Iterator[Section]:
    """Tables of each target alone."""
    for made in (time_sections, serving_sections):
        for target in comparison.targets:
            yield from made(comparison, target)


def time_sections(comparison: Comparison, target: str) -> list[Section]:
    """A target's step times by device and fidelity, and their ratios to each fidelity's fastest device.

    Up to three fidelities have their ratios beside the times; more would not fit a terminal, and have two tables.
    """
    table = {on: [comparison.cell(target, on, fidelity) for fidelity in comparison.fidelities] for on in comparison.on}
    heads = [f">{fidelity}" for fidelity in comparison.fidelities]
    answered = [c for c in comparison.cells if c.ask.target == target and c.status == "answered"]
    notes = sorted({f"{c.ask.fidelity} is mostly {c.answered_by}" for c in answered if not c.own})
    stood_in = [f"{STAND_IN} stood in for: " + ", ".join(notes)] if notes else []
    note = "; ".join([*stood_in, *_auto_note(answered)])
    title = f"{target}: step time"
    if len(heads) > BESIDE:
        times = [(on, *map(_time, cells)) for on, cells in table.items()]
        ratios = [(on, *(_to_best(comparison, cell) for cell in cells)) for on, cells in table.items()]
        return [
            Section(title=title, columns=columns("on", *heads), rows=times, note=note),
            Section(title=f"{target}: times the fastest device", columns=columns("on", *heads), rows=ratios),
        ]
    both = [part for head in heads for part in (head, ">to best")]
    rows = [
        (on, *(part for cell in cells for part in (_time(cell), _to_best(comparison, cell))))
        for on, cells in table.items()
    ]
    return [Section(title=title, columns=columns("on", *both), rows=rows, note=note)]


def _auto_note(answered: Iterable[Cell]) -> list[str]:
    """What `auto` was on several devices: the same on all, or which one had what."""
    by = {cell.ask.on: str(cell.answered_by) for cell in answered if cell.ask.fidelity == "auto"}
    if len(by) < 2:
        return []
    if len(set(by.values())) == 1:
        return [f"auto is {next(iter(by.values()))}, the best that all of these devices have"]
    return ["times of a mix of fidelities: " + ", ".join(f"{on} {fidelity}" for on, fidelity in by.items())]


def serving_sections(comparison: Comparison, target: str) -> list[Section]:
    """What users of a served model notice, by device and fidelity; nothing of targets that do not serve."""
    rows = []
    for on in comparison.on:
        for fidelity in comparison.fidelities:
            cell = comparison.cell(target, on, fidelity)
            served = cell.prediction.get("serving") if cell is not None and cell.prediction is not None else None
            if cell is not None and cell.status == "answered" and served is not None:
                times = [served[name] for name in ("ttft_s", "tpot_s", "request_s")]
                shown = ["" if seconds is None else format_time(seconds) for seconds in times]
                rate = served["tokens_per_s"]
                rows.append((on, fidelity, *shown, "" if rate is None else f"{rate:,.0f}"))
    heads = columns("on", "fidelity", ">first token", ">per output token", ">whole requests", ">tokens/s")
    note = "the step time above is that of one output token"
    return [Section(title=f"{target}: serving", columns=heads, rows=rows, note=note)] if rows else []


def _time(cell: Cell | None) -> str:
    if cell is None:
        return "not run"
    if cell.step_time_s is None:
        return NO_TIME[cell.status]
    return format_time(cell.step_time_s) + ("" if cell.own else STAND_IN)


def _to_best(comparison: Comparison, cell: Cell | None) -> str:
    return "" if cell is None else ratio(comparison.ratio_to_best(cell))


def fidelity_sections(comparison: Comparison) -> list[Section]:
    """Every fidelity's time over that of the finest one, where there are at least two to compare."""
    rows = []
    for target in comparison.targets:
        for on in comparison.on:
            finest = comparison.finest(target, on)
            cells = [comparison.cell(target, on, fidelity) for fidelity in comparison.fidelities]
            ratios = [None if cell is None else comparison.ratio_to_finest(cell) for cell in cells]
            if finest is not None and sum(found is not None for found in ratios) > 1:
                rows.append((target, on, finest.ask.fidelity, *map(ratio, ratios)))
    if not rows:
        return []
    heads = columns("~target", "on", "finest", *(f">{fidelity}" for fidelity in comparison.fidelities))
    return [Section(title="Each fidelity over the finest that answers", columns=heads, rows=rows)]


def order_sections(comparison: Comparison) -> list[Section]:
    """Devices by step time; fidelities that give the same order share a row."""
    rows = []
    for target in comparison.targets:
        by_order: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for fidelity in comparison.fidelities:
            order = comparison.order(target, fidelity)
            if len(order) > 1:
                by_order[order_words(order)].append(fidelity)
        rows += [(target, ", ".join(fidelities), " ".join(order)) for order, fidelities in by_order.items()]
    note = "< is faster, = is as fast"
    return (
        [Section(title="Order of devices", columns=columns("~target", "in", "fastest first"), rows=rows, note=note)]
        if rows
        else []
    )


def order_words(order: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Devices with `<` or `=` between them."""
    words: list[str] = []
    last = None
    for on, time in order:
        if last is not None:
            words.append("=" if time == last else "<")
        words.append(on)
        last = time
    return tuple(words)


def agreement_sections(comparison: Comparison) -> list[Section]:
    """Rank correlations of every pair of fidelities that have cells in common."""
    rows = [
        (
            f"{pair.fidelities[0]} / {pair.fidelities[1]}",
            str(pair.cells),
            ratio(pair.ratio),
            ratio(pair.spread),
            correlation(pair.spearman),
            correlation(pair.kendall),
            correlation(pair.within),
            f"{pair.device_pairs - len(pair.swaps)} of {pair.device_pairs}",
        )
        for pair in comparison.agreements
        if pair.cells
    ]
    if not rows:
        return []
    heads = columns(
        "fidelities", ">cells", ">ratio", ">spread", ">Spearman", ">Kendall", ">within targets", ">pairs in order"
    )
    note = (
        "ratio: geometric mean of the first's time over the second's; spread: factor that single ratios lie off it; "
        "within targets: mean Kendall over the devices of one target; pairs of devices that keep their order"
    )
    return [Section(title="Does the order survive a change of fidelity?", columns=heads, rows=rows, note=note)]


def swap_sections(comparison: Comparison) -> list[Section]:
    """Pairs of devices that change places, the plainest first."""
    rows = [
        (
            swap.target,
            f"{swap.first} < {swap.second}",
            f"{swap.fidelities[0]}, by {percent(swap.leads[0] - 1)}",
            f"{swap.fidelities[1]}, by {percent(swap.leads[1] - 1)}",
        )
        for swap in comparison.swaps
    ]
    if not rows:
        return []
    heads = columns("~target", "faster < slower", "in", "but the other way in")
    return [capped_lines(Section(title="Devices that change places", columns=heads, rows=rows), SWAP_ROWS)]


def missing_sections(comparison: Comparison) -> list[Section]:
    """Cells without a time, by their reason: nothing is left out."""
    found: defaultdict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in comparison.cells:
        if cell.status != "answered":
            alike = cell.reason.replace(cell.ask.on, "the device")
            found[cell.ask.fidelity, cell.status, alike].append(cell)
    rows = [
        (fidelity, _places(cells, comparison), status, cells[0].reason if len(cells) == 1 else alike)
        for (fidelity, status, alike), cells in found.items()
    ]
    sections = []
    if rows:
        sections.append(
            Section(title="Without an answer", columns=columns("fidelity", "what", "status", "why"), rows=rows)
        )
    if comparison.not_run:
        sections.append(Section(note=f"{comparison.not_run} of the questions were not reached"))
    return sections


def _places(cells: list[Cell], comparison: Comparison) -> str:
    """Targets and devices of cells, as few words as say it."""
    by_devices: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for target in comparison.targets:
        devices = tuple(cell.ask.on for cell in cells if cell.ask.target == target)
        if devices:
            by_devices[devices].append(target)
    return "; ".join(
        ("all targets" if len(targets) == len(comparison.targets) > 1 else ", ".join(targets))
        + " on "
        + ", ".join(devices)
        for devices, targets in by_devices.items()
    )


def ratio(value: float | None) -> str:
    """A ratio for people: "1.30x"; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.2f}x" if value < 9.995 else f"{value:.3g}x"


def correlation(value: float | None) -> str:
    """A correlation for people; a dash where it is undefined."""
    return "-" if value is None else f"{value:.3f}"
