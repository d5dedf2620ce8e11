"""One table of what every answer gets done: step time, MFU, memory, units a second, energy and money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshcast.base import format_bytes, format_time
from meshcast.evidence.comparison.cell import Cell
from meshcast.evidence.comparison.comparison import Comparison
from meshcast.results import Section, columns, format_count, percent

NO_TIME = {"infeasible": "does not fit", "unsupported": "unsupported", "failed": "failed"}


def gains_sections(comparison: Comparison) -> list[Section]:
    """A row for each answer, in the order of the questions.

    Programs, whose batches are not known, and what is served have none, unless something was tried of them.
    """
    shown = [cell for cell in comparison.cells if comparison.varied or _done(cell)]
    if not shown:
        return []
    units = list(dict.fromkeys(done["unit"] for cell in shown if (done := _done(cell))))
    unit = units[0] if len(units) == 1 else "units"
    # Where batches are tried, steps do different amounts of work: times are those of a unit.
    best = min(filter(None, map(_time, shown)), default=None)
    named = list(dict.fromkeys(comparison.named_by.values()))
    asked = {"~target": named, "on": comparison.on, "fidelity": comparison.fidelities}
    several = [name for name, values in asked.items() if len(values) > 1]
    tried = list(dict.fromkeys(name for values in comparison.tried.values() for name in values))
    heads = [
        ">step",
        ">to best",
        ">MFU",
        ">memory",
        ">used",
        f">{unit}/s",
        f">J/{unit.removesuffix('s')}",
        f">$/million {unit}",
    ]
    rows = [
        (
            *(_asked(comparison, cell, name) for name in several),
            *(comparison.tried[cell.ask.target].get(name, "") for name in tried),
            *_figures(comparison, cell, best),
        )
        for cell in shown
    ]
    return [
        Section(
            title="Throughput and cost",
            columns=columns(*several, *tried, *heads),
            rows=rows,
            note=_prices(comparison),
        )
    ]


def _asked(comparison: Comparison, cell: Cell, name: str) -> str:
    """One part of a cell's question; of what is tried of a target, the target."""
    return comparison.named_by.get(cell.ask.target, cell.ask.target) if name == "~target" else getattr(cell.ask, name)


def _figures(comparison: Comparison, cell: Cell, best: float | None) -> tuple[str, ...]:
    """The figures of one row; where there is no time, why."""
    gains, done = comparison.gains(cell), _done(cell)
    memory = (cell.prediction or {}).get("memory_bytes")
    return (
        format_time(cell.step_time_s) if cell.step_time_s is not None else NO_TIME[cell.status],
        f"{time / best:.2f}x" if (time := _time(cell)) and best else "",
        percent(gains.mfu) if gains.mfu else "",
        format_bytes(memory["peak"]) if memory else "",
        percent(gains.memory_share) if gains.memory_share is not None else "",
        format_count(done["per_s"]) if done else "",
        f"{gains.joules_per_unit:.3g}" if gains.joules_per_unit is not None else "",
        f"{gains.usd_per_million:.3g}" if gains.usd_per_million is not None else "",
    )


def _done(cell: Cell) -> Mapping[str, Any]:
    """What a training step or one pass gets done; empty where that is not known, or told as serving."""
    prediction = cell.prediction or {}
    return {} if prediction.get("serving") else prediction.get("throughput") or {}


def _time(cell: Cell) -> float | None:
    """Seconds of a unit; of a step where units are not known."""
    done = _done(cell)
    return 1 / done["per_s"] if done and done["per_s"] else cell.step_time_s


def _prices(comparison: Comparison) -> str:
    """Who says what a device costs, and which devices nobody has a price of."""
    said = [f"{on}: ${price.usd_per_hour:g} a device and hour, {price.said}" for on, price in comparison.prices.items()]
    if lacking := [on for on in comparison.on if on not in comparison.prices]:
        said.append(f"no list price of {', '.join(lacking)}: --price gives one")
    return "; ".join(said)
