"""A prediction as a picture: the parts of its step, and its kernels under the device's roofs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from meshcast.base import InfeasibleError, format_time
from meshcast.report.plots.drawing import PART_COLOURS, draw_step, new_figure
from meshcast.results import Prediction

_LARGEST = 420.0  # points^2 of the mark of a kernel that is all of the step
_LOWEST = 1e-5  # of the highest roof: below it are kernels that only launch
_BOUNDS = {"compute": PART_COLOURS["compute"], "memory": PART_COLOURS["memory"]}


def prediction_figure(prediction: Prediction, roofline: Mapping[str, Any] | None) -> Any:
    """The figure of a prediction.

    Args:
        prediction: What is drawn.
        roofline: Roofs and points as a report has them (`report/roofline.py`); None where there are none.

    Raises:
        InfeasibleError: There is no step to draw.
    """
    timed = prediction.timed
    if timed is None:
        raise InfeasibleError(
            f"{prediction.name} does not fit: there is no step to draw", where="--plot", fix="leave --plot out"
        )
    scenes = [scene for scene in (roofline or {}).get("scenes", ()) if scene["points"]]
    figure, axes = new_figure(2 if scenes else 1)
    where = f"{prediction.devices:,} x {prediction.device}"
    draw_step(axes[0], asdict(timed.breakdown), title=f"a step of {format_time(timed.step_time_s)}")
    figure.suptitle(f"{prediction.name} on {where}, {prediction.fidelity}", fontsize=10)
    if scenes and roofline is not None:
        _draw_roofline(axes[1], roofline["roofs"], [point for scene in scenes for point in scene["points"]])
    return figure


def _draw_roofline(axis: Any, roofs: list[Mapping[str, Any]], points: list[Mapping[str, Any]]) -> None:
    """Log-log: FLOP/s over FLOPs per byte, a roof for each type and each level of memory, marks by share of time."""
    marks = [point for point in points if point["intensity"] > 0 and point["achieved"] > 0]
    places = [point["intensity"] for point in marks] or [1.0]
    peaks = [roof for roof in roofs if roof["kind"] == "compute"]
    slopes = [roof for roof in roofs if roof["kind"] == "memory"]
    ridges = [peak["value"] / slope["value"] for peak in peaks for slope in slopes]
    low, high = min([*places, *(ridge / 3 for ridge in ridges)]) / 2, max([*places, *ridges]) * 3
    top = max((peak["value"] for peak in peaks), default=1.0)
    fastest = max((slope["value"] for slope in slopes), default=top / low)
    for number, peak in enumerate(peaks):
        axis.hlines(peak["value"], peak["value"] / fastest, high, color="#666", lw=1)  # left of it no memory keeps up
        # Roofs of types lie close together: their names stand at either end of them, one by one.
        at = high if number % 2 == 0 else (high * peak["value"] / fastest) ** 0.5
        label = axis.annotate(peak["name"], (at, peak["value"]), ha="right", va="bottom", fontsize=7, color="#444")
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6})
    for slope, dashes in zip(slopes, itertools.cycle(("--", ":", "-.")), strict=False):
        end = min(high, top / slope["value"])
        line = [low * slope["value"], end * slope["value"]]
        told = f"{slope['name']} {slope['value'] / 1e12:.3g} TB/s"
        axis.plot([low, end], line, color="#666", lw=1, ls=dashes, label=told)
    for bound, colour in (*_BOUNDS.items(), ("other", PART_COLOURS["overhead"])):
        chosen = [point for point in marks if (point["bound"] if point["bound"] in _BOUNDS else "other") == bound]
        if chosen:
            sizes = [max(6.0, _LARGEST * point["share"]) for point in chosen]
            axis.scatter(
                [point["intensity"] for point in chosen], [point["achieved"] for point in chosen], s=sizes, color=colour,
                alpha=0.65, edgecolor="none", label=f"limited by {bound}" if bound != "other" else "by something else",
            )  # fmt: skip
    axis.set_ylim(bottom=max(min((point["achieved"] for point in marks), default=1.0) / 3, top * _LOWEST), top=top * 4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("FLOPs per byte of memory")
    axis.set_ylabel("FLOP/s")
    axis.set_title("kernels, by their share of the time")
    legend = axis.legend(
        fontsize=8,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=3,
        handletextpad=0.4,
    )
    for mark in legend.legend_handles:  # as large as one another, whatever the first kernel's share
        if hasattr(mark, "set_sizes"):
            mark.set_sizes([24.0])
