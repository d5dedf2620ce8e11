"""A comparison as one SVG picture: a panel of step times a target, and a matrix of how the fidelities agree.

In a panel every device is a band and every fidelity that answered anything a dot on a line of its own in the band, over a
logarithmic axis: the same distance is the same ratio everywhere. Bands are in the order of the fidelity that knows most
devices. Where dots of another colour do not follow it, that order did not survive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from meshcast.base import format_time
from meshcast.evidence.comparison.cell import Cell
from meshcast.evidence.comparison.comparison import Comparison, ladder_place
from meshcast.evidence.comparison.gains_table import NO_TIME

# Okabe and Ito's colours, told apart by colour-blind readers too ("Color Universal Design", 2008); black comes last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
INK, PALE, BAND, GRID = "#222222", "#777777", "#f4f5f7", "#dddddd"
WIDTH, MARGIN, GUTTER = 980, 20, 30
LABELS = 112  # pixels left of an axis, for the names of devices
LINE, BAND_PADDING = 9, 7
MOST_TICKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from `low` to `high` seconds over pixels `left` to `right`."""

    low: float
    high: float
    left: float
    right: float

    def place(self, seconds: float) -> float:
        """The coordinate of a time on the logarithmic axis."""
        share = math.log(seconds / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    @property
    def ticks(self) -> list[float]:
        """Round times inside, as many as can be read."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
            # 10**-3 and friends are not exact; the nearest float to the decimal is.
            found = [t for p in powers for s in steps if self.low <= (t := float(f"{s}e{p}")) <= self.high]
            if len(found) <= MOST_TICKS:
                break
        return found


def comparison_svg(comparison: Comparison) -> str:
    """The picture, as a file that needs nothing else."""
    shown = [f for f in comparison.fidelities if any(c.step_time_s for c in comparison.cells if c.ask.fidelity == f)]
    colours = {f: COLOURS[index % len(COLOURS)] for index, f in enumerate(shown)}
    parts = [_legend(comparison, colours)]
    across = 2 if len(comparison.targets) > 1 else 1
    width = (WIDTH - 2 * MARGIN - (across - 1) * GUTTER) / across
    band = LINE * max(2, len(shown)) + BAND_PADDING
    height = 76 + len(comparison.on) * band
    top = 66.0
    for index, target in enumerate(comparison.targets):
        left = MARGIN + (index % across) * (width + GUTTER)
        place = top + (index // across) * height
        parts += _panel(comparison, target, colours, left=left, top=place, width=width, band=band)
    top += math.ceil(len(comparison.targets) / across) * height
    matrix, bottom = _matrix(comparison, top=top + 8)
    parts += matrix
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom:.0f}" width="{WIDTH}" '
        f'height="{bottom:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{bottom:.0f}" fill="white"/>', *parts, "</svg>\n"])


def _legend(comparison: Comparison, colours: dict[str, str]) -> str:
    parts = [_text(MARGIN, 26, "Step time by device and fidelity", size=16, bold=True)]
    left = float(MARGIN)
    for fidelity, colour in colours.items():
        parts += [_dot(left + 5, 46, colour), _text(left + 15, 50, fidelity)]
        left += 38 + 6.6 * len(fidelity)
    if any(cell.status == "answered" and not cell.own for cell in comparison.cells):
        parts += [_dot(left + 5, 46, PALE, hollow=True), _text(left + 15, 50, "mostly another fidelity", colour=PALE)]
    silent = [fidelity for fidelity in comparison.fidelities if fidelity not in colours]
    if silent:
        said = f"without an answer: {', '.join(silent)}"
        parts.append(_text(WIDTH - MARGIN, 50, said, colour=PALE, anchor="end"))
    return "\n".join(parts)


def _panel(
    comparison: Comparison, target: str, colours: dict[str, str], *, left: float, top: float, width: float, band: float
) -> Iterable[str]:
    """A target's devices, the fastest on top, those that cannot run at the bottom."""
    yield _text(left, top + 14, target, size=13, bold=True)
    cells = [cell for cell in comparison.cells if cell.ask.target == target]
    times = [cell.step_time_s for cell in cells if cell.step_time_s]
    low, high = (min(times), max(times)) if times else (1.0, 10.0)
    # At least a factor of two across, so that a single time has an axis too.
    spread = max(1.12, math.sqrt(2 * low / high))
    axis = Axis(low=low / spread, high=high * spread, left=left + LABELS, right=left + width)
    top += 24
    bottom = top + len(comparison.on) * band
    for index in range(0, len(comparison.on), 2):
        yield f'<rect x="{left:.1f}" y="{top + index * band:.1f}" width="{width:.1f}" height="{band}" fill="{BAND}"/>'
    for tick in axis.ticks if times else ():
        x = axis.place(tick)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{GRID}"/>'
        yield _text(x, bottom + 15, format_time(tick), size=11, colour=PALE, anchor="middle")
    for index, on in enumerate(_by_speed(comparison, target)):
        row = [comparison.cell(target, on, fidelity) for fidelity in colours]
        yield from _device(on, row, axis, colours, left=left, top=top + index * band, band=band)


def _device(
    on: str, row: Sequence[Cell | None], axis: Axis, colours: dict[str, str], *, left: float, top: float, band: float
) -> Iterable[str]:
    yield _text(left + LABELS - 10, top + band / 2 + 4, on, anchor="end")
    cells = [cell for cell in row if cell is not None]
    points = [
        (axis.place(cell.step_time_s), top + BAND_PADDING / 2 + LINE * (index + 0.5), cell)
        for index, cell in enumerate(row)
        if cell is not None and cell.step_time_s
    ]
    if not points:
        words = sorted({NO_TIME[cell.status] for cell in cells if cell.status != "answered"}) or ["no answer"]
        yield _text(axis.left + 6, top + band / 2 + 4, ", ".join(words), size=11, colour=PALE)
        return
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    yield f'<polyline points="{path}" fill="none" stroke="{PALE}" stroke-width="1" opacity="0.5"/>'
    for x, y, cell in points:
        said = f"{cell.ask}: {format_time(cell.step_time_s or 0.0)}"
        yield _dot(x, y, colours[cell.ask.fidelity], hollow=not cell.own, title=said)
    infeasible = [cell.ask.fidelity for cell in cells if cell.status == "infeasible"]
    if infeasible:
        said = f"{NO_TIME['infeasible']}: {', '.join(infeasible)}"
        yield _text(axis.right - 4, top + band / 2 + 4, said, size=11, colour=PALE, anchor="end")


def _by_speed(comparison: Comparison, target: str) -> list[str]:
    """Devices by the fidelity that knows most of them, of several the finest; those it does not know come last."""
    orders = [comparison.order(target, fidelity) for fidelity in sorted(comparison.fidelities, key=ladder_place)]
    longest = max(reversed(orders), key=len, default=())
    known = [on for on, _ in longest]
    return known + [on for on in comparison.on if on not in known]


def _matrix(comparison: Comparison, *, top: float) -> tuple[list[str], float]:
    """How every pair of fidelities agrees: Spearman over everything, Kendall within targets, pairs in order."""
    pairs = [pair for pair in comparison.agreements if pair.cells > 1]
    if not pairs:
        return [], top
    parts = [_text(MARGIN, top + 14, "Does the order survive a change of fidelity?", size=13, bold=True)]
    heads = (
        "Spearman, all cells",
        "Kendall, all cells",
        "Kendall within targets",
        "pairs of devices in order",
        "cells",
    )
    left, step, height = MARGIN + 200, 140, 24
    for column, head in enumerate(heads):
        parts.append(_text(left + column * step + step / 2, top + 36, head, size=11, colour=PALE, anchor="middle"))
    for index, pair in enumerate(pairs):
        y = top + 44 + index * height
        parts.append(_text(MARGIN, y + 16, " / ".join(pair.fidelities)))
        kept = 1 - len(pair.swaps) / pair.device_pairs if pair.device_pairs else None
        shown = [(v, "-" if v is None else f"{v:.3f}") for v in (pair.spearman, pair.kendall, pair.within)]
        shown.append((kept, f"{pair.device_pairs - len(pair.swaps)} of {pair.device_pairs}"))
        for column, (value, text) in enumerate(shown):
            x = left + column * step
            parts.append(
                f'<rect x="{x}" y="{y:.1f}" width="{step - 3}" height="{height - 3}" rx="3" fill="{_shade(value)}"/>'
            )
            parts.append(_text(x + step / 2, y + 15, text, anchor="middle"))
        parts.append(_text(left + len(shown) * step + step / 2, y + 15, str(pair.cells), anchor="middle"))
    return parts, top + 44 + len(pairs) * height + 16


def _shade(value: float | None) -> str:
    """White for no agreement, blue for the same order everywhere; grey where it is undefined."""
    if value is None:
        return BAND
    share = max(0.0, value) ** 3  # what matters lies between 0.8 and 1
    red, green, blue = (round(255 + share * (end - 255)) for end in (130, 190, 226))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _dot(x: float, y: float, colour: str, *, hollow: bool = False, title: str = "") -> str:
    fill = "white" if hollow else colour
    said = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.2">{said}</circle>'


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}'
    return f"<text {place}>{escape(text)}</text>"
