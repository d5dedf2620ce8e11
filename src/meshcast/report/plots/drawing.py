"""What all pictures share: matplotlib, which is asked for when one is drawn, their colours, and the file."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError, UsageError, check_place, format_time, how_to_install, write_whole
from meshcast.results import percent

EXTRA = "plots"
ENDINGS = (".svg", ".png")
# The parts of a step, in the order in which they are told; the colours of the report and the page.
PART_COLOURS = {
    "compute": "#3b6fd8",
    "memory": "#16908a",
    "exposed_communication": "#d9822b",
    "overhead": "#8a63c9",
    "idle": "#9aa3b2",
}
# Letters stay text in an SVG, and the same picture is the same file.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "meshcast", "font.size": 9, "axes.grid": True, "grid.alpha": 0.25}
_DPI = 160


def check_plot(path: Path) -> None:
    """Refuses a picture that could not be written, before anything is worked out for it.

    Raises:
        UsageError: The file's ending is none of ours, or its folder is not there.
        UnsupportedError: matplotlib is not installed.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path} is neither .svg nor .png", where="--plot", fix="such as --plot step.svg")
    check_place(path, where="--plot")
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed", where="--plot", fix=how_to_install(EXTRA)
        )


def new_figure(panels: int, *, width: float = 5.6, height: float = 3.8) -> tuple[Any, list[Any]]:
    """A figure with so many panels side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width * panels, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)
    return figure, list(axes[0])


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure, whole or not at all."""
    import matplotlib

    out = io.BytesIO()
    ending = path.suffix.lower()[1:]
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(out, format=ending, dpi=_DPI, metadata={"Date": None} if ending == "svg" else None)
    write_whole(path, out.getvalue())


def tell_seconds(axis: Any) -> None:
    """Has an axis of seconds say them with their prefixes; where it counts in decades, at 1, 2 and 5 of each."""
    tell_values(axis, "s")


def tell_values(axis: Any, unit: str) -> None:
    """Has an axis say its values with their prefixes; where it counts in decades, at 1, 2 and 5 of each.

    Where less than a decade is drawn these would be one or two: then at round values as far apart as on a plain axis.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        if high < 4 * low:
            axis.set_major_locator(MaxNLocator(5))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(EngFormatter(unit) if unit else _plain_numbers())


def _plain_numbers() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.10g}")


def draw_step(axis: Any, parts: Mapping[str, float], *, title: str) -> None:
    """The parts of one step, a bar each, with their seconds and shares."""
    total = sum(parts.values()) or 1.0
    names = [part.replace("_", " ") for part in PART_COLOURS]
    seconds = [parts.get(part, 0.0) for part in PART_COLOURS]
    bars = axis.barh(names, seconds, color=list(PART_COLOURS.values()), height=0.6)
    told = [f"{format_time(each)}, {percent(each / total)}" for each in seconds]
    axis.bar_label(bars, labels=told, padding=4, fontsize=8, color="#444")
    axis.invert_yaxis()
    axis.set_axisbelow(True)
    axis.set_xlim(right=max(seconds) * 1.35)  # room for what stands behind the longest
    axis.grid(visible=False, axis="y")
    tell_seconds(axis.xaxis)
    axis.set_xlabel("seconds of a step")
    axis.set_title(title)


def draw_parts(axis: Any, bars: Mapping[str, Mapping[str, float]], *, title: str) -> None:
    """Steps as horizontal bars of their parts, in seconds."""
    names = list(bars)
    starts = [0.0] * len(names)
    for part, colour in PART_COLOURS.items():
        widths = [bars[name].get(part, 0.0) for name in names]
        if any(widths):
            axis.barh(names, widths, left=starts, color=colour, label=part.replace("_", " "), height=0.6)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axis.set_axisbelow(True)
    axis.set_ylim(max(len(names), 3) - 0.5, -0.5)  # the first on top; one alone is no wall
    axis.grid(visible=False, axis="y")
    tell_seconds(axis.xaxis)
    axis.set_xlabel("seconds of a step")
    axis.set_title(title)
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
