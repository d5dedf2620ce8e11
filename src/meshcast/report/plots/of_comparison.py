"""A comparison as a picture: step times with their intervals, and what the steps of the finest answers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshcast.report.plots.drawing import PART_COLOURS, draw_parts, new_figure, tell_seconds

MOST_ROWS = 24
_COLOURS = (*PART_COLOURS.values(), "#c8204a")
_APART = 0.16  # of a row, between fidelities


def comparison_figure(cells: Sequence[Mapping[str, Any]]) -> Any:
    """The figure of a comparison's cells, as `compare --json` prints them; those without a time are left out.

    Args:
        cells: At least one of them has a time.
    """
    timed = [cell for cell in cells if cell["step_time_s"]]
    several = len({cell["target"] for cell in timed}) > 1
    rows = list(dict.fromkeys(_row(cell, several=several) for cell in timed))[:MOST_ROWS]
    figure, (times, parts) = new_figure(2, height=max(3.8, 0.45 * len(rows) + 1.6))
    fidelities = list(dict.fromkeys(cell["fidelity"] for cell in timed))
    for place, fidelity in enumerate(fidelities):
        shift = (place - (len(fidelities) - 1) / 2) * _APART
        mine = {_row(cell, several=several): cell for cell in timed if cell["fidelity"] == fidelity}
        held = [(rows.index(row) + shift, cell) for row, cell in mine.items() if row in rows]
        if held:
            _draw_times(times, held, fidelity, _COLOURS[place % len(_COLOURS)])
    times.set_xscale("log")
    tell_seconds(times.xaxis)
    times.set_yticks(range(len(rows)), rows)
    times.set_ylim(len(rows) - 0.5, -0.5)
    times.set_xlabel("seconds of a step, with their intervals")
    times.set_title("step times")
    times.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    finest = [cell for cell in timed if cell["finest"] in (None, cell["fidelity"])]
    bars = {_row(cell, several=several): cell["prediction"]["breakdown_s"] for cell in finest}
    draw_parts(
        parts, {row: bars[row] for row in rows if row in bars}, title="parts of the step, by the finest fidelity"
    )
    return figure


def _row(cell: Mapping[str, Any], *, several: bool) -> str:
    return f"{cell['target']} on {cell['on']}" if several else str(cell["on"])


def _draw_times(axis: Any, held: Sequence[tuple[float, Mapping[str, Any]]], fidelity: str, colour: str) -> None:
    """Step times of one fidelity, a whisker each."""
    steps = [cell["step_time_s"] for _, cell in held]
    spans = [cell["step_time_interval_s"] or (step, step) for (_, cell), step in zip(held, steps, strict=True)]
    below = [max(step - low, 0.0) for step, (low, _) in zip(steps, spans, strict=True)]
    above = [max(high - step, 0.0) for step, (_, high) in zip(steps, spans, strict=True)]
    axis.errorbar(steps, [at for at, _ in held], xerr=[below, above], fmt="o", color=colour, label=fidelity, capsize=2)
