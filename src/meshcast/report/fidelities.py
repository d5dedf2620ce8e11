"""The same question in several fidelities, side by side."""

from __future__ import annotations

from typing import TypedDict

from meshcast.base import MeshcastError
from meshcast.report.subject import Subject
from meshcast.report.summary import NO_MFU
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.results import Prediction, within_peak

_PARTS = ("compute", "memory", "exposed_communication", "overhead", "idle")


class Bar(TypedDict):
    """The step of one fidelity with its interval and its parts."""

    name: str
    step_s: float
    interval: list[float]
    parts: dict[str, float]


class FidelitySection(TypedDict):
    """The section."""

    bars: list[Bar]
    parts: list[str]  # that any of the bars has
    answers: Table


def fidelity_section(subject: Subject) -> FidelitySection | None:
    """The section; None where one fidelity was asked."""
    if not subject.others:
        return None
    first = subject.prediction
    rows: list[list[TableCell]] = [_row("this report", first, first)]
    bars = _bars(f"this report ({first.fidelity})", first)
    for name, answer in subject.others:
        if isinstance(answer, MeshcastError):
            rows.append([name, None, None, None, None, None, None, None, None, _why(answer)])
            continue
        rows.append(_row(name, answer, first))
        bars += _bars(name, answer)
    columns = (
        column("asked"), column("answered by"), column("step", "s", "step_time"), column("low", "s", "interval"),
        column("high", "s", "interval"), column("ratio", "ratio", "ratio"), column("MFU", "share", "mfu"),
        column("exposed", "s", "exposed"), column("energy", "J", "energy"), column("note"),
    )  # fmt: skip
    parts = [part for part in _PARTS if any(bar["parts"][part] for bar in bars)]
    return {"bars": bars, "parts": parts, "answers": table("fidelities", "Answers", columns, rows)}


def _why(error: MeshcastError) -> str:
    """Why there is no answer, in one line: what, and what to change."""
    return error.message + (f"; to have it: {error.fix}" if error.fix else "")


def _row(name: str, answer: Prediction, first: Prediction) -> list[TableCell]:
    low, high = answer.interval_s or (None, None)
    step, base = answer.step_time_s, first.step_time_s
    exposed = answer.breakdown.exposed_communication if answer.breakdown is not None else None
    ratio = step / base if step is not None and base else None
    said = "" if answer.feasible else "does not fit"
    mfu = answer.mfu
    if mfu is not None and not within_peak(mfu):
        mfu, said = None, NO_MFU
    return [name, answer.fidelity, step, low, high, ratio, mfu, exposed, answer.energy_j, said]


def _bars(name: str, answer: Prediction) -> list[Bar]:
    if answer.timed is None:
        return []
    found = answer.timed
    parts = {part: float(getattr(found.breakdown, part)) for part in _PARTS}
    return [{"name": name, "step_s": found.step_time_s, "interval": list(found.interval_s), "parts": parts}]
