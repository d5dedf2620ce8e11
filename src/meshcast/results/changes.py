"""What changes give: those of the hardware that were asked for (`WhatIf`), and those that were tried because they may help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.base import format_energy, format_time
from meshcast.results.lowered_by import CHANGED_BY
from meshcast.results.printer import percent
from meshcast.results.sections import Section, columns

if TYPE_CHECKING:
    from meshcast.results.prediction import Prediction

LEVER_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Changes of the hardware that were asked for, and what they give.

    Attributes:
        change: The changes as they were asked for.
        on: The hardware that comes of them, as `--on` takes it.
        feasible: Whether it fits there.
        step_time_s: The step with them; None where it does not fit.
        speedup: How many times as fast the step is; None where it does not fit here or there.
        throughput_per_s: Tokens, images or samples a second; None of programs.
        energy_j: Joules of a step and device.
        mfu: Model FLOPs utilisation, of the changed peak.
    """

    change: str
    on: str
    feasible: bool
    step_time_s: float | None
    speedup: float | None
    throughput_per_s: float | None
    energy_j: float | None
    mfu: float | None


def what_if_sections(found: Sequence[WhatIf]) -> list[Section]:
    """A table of the changes; none where nothing was asked for."""
    if not found:
        return []
    rows = [
        (
            each.change.replace(",", ", "),
            format_time(each.step_time_s) if each.step_time_s is not None else "does not fit",
            f"{each.speedup:.3g}x" if each.speedup is not None else "",
            format_energy(each.energy_j) if each.energy_j is not None else "",
            percent(each.mfu) if each.mfu is not None else "",
        )
        for each in found
    ]
    heads = columns("what if", ">step time", ">speedup", ">energy", ">MFU")
    return [Section(title="What if", columns=heads, rows=rows, note="each was predicted; MFU against the changed peak")]


def lever_sections(prediction: Prediction) -> list[Section]:
    """A table of what would help most; none where nothing does, or nothing was tried."""
    if not prediction.levers or not prediction.step_time_s:
        return []
    served = all(lever.request_time_s is not None for lever in prediction.levers)
    heads = columns("change", ">request time" if served else ">step time", ">saves", "flag")
    rows = [
        (lever.change, format_time(lever.request_time_s or lever.step_time_s), percent(lever.saved_share), lever.flag)
        for lever in prediction.levers[:LEVER_ROWS]
    ]
    work = "of the time for the same work" if prediction.throughput is not None else "of the step"
    note = f"each change was predicted: give its flag in place of the current one{CHANGED_BY[prediction.lowering]}; "
    note += f"saved share {work}"
    return [Section(title="What would help most", columns=heads, rows=rows, note=note)]
