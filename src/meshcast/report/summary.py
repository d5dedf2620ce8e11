"""The summary: one number first, then its parts, then what would help most; of what does not fit, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from meshcast.base import format_bytes
from meshcast.report.numbers import shown
from meshcast.report.subject import Subject
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.results import Prediction, format_power, percent, within_peak

NO_MFU = "no MFU: its products take less time than the device's peak allows"


class Figure(TypedDict):
    """One number: its label, value, unit and meaning, and a line below it."""

    label: str
    value: TableCell
    unit: str
    term: str
    below: str


class SummarySection(TypedDict):
    """The section."""

    feasible: bool
    headline: Figure
    interval: list[float]
    verdict: str
    figures: list[Figure]
    missing: Table | None
    helps: Table | None
    what_ifs: Table | None
    helps_note: str


def figure(label: str, value: TableCell, unit: str, term: str, below: str = "") -> Figure:
    """A number of the summary."""
    return {"label": label, "value": value, "unit": unit, "term": term, "below": below}


def summary_section(subject: Subject) -> SummarySection:
    """The section."""
    prediction = subject.prediction
    interval = prediction.interval_s
    return {
        "feasible": prediction.feasible,
        "headline": _headline(prediction),
        "interval": list(interval) if interval is not None else [],
        "verdict": _verdict(prediction),
        "figures": list(_figures(prediction)),
        "missing": _missing(prediction),
        "helps": _helps(prediction),
        "what_ifs": _what_ifs(prediction),
        "helps_note": _helps_note(prediction),
    }


def _headline(prediction: Prediction) -> Figure:
    problem = prediction.infeasible
    if problem is not None:
        resource = problem.resource.removesuffix("_bytes").replace("_", " ")
        unit = "B" if problem.resource.endswith("_bytes") or problem.resource == "memory" else ""
        return figure(f"missing {resource}", problem.gap, unit, "gap")
    if prediction.serving is not None and prediction.serving.request_s is not None:
        return figure("time of a request", prediction.serving.request_s, "s", "request")
    return figure("step time", prediction.step_time_s, "s", "step_time")


def _verdict(prediction: Prediction) -> str:
    """What takes most of the step, in one sentence."""
    if prediction.infeasible is not None:
        return "It does not fit as it is asked for: nothing is timed."
    found = prediction.breakdown
    if found is None or not found.total:
        return ""
    words = {
        "compute": "arithmetic", "memory": "moving data", "exposed_communication": "communication that nothing hides",
        "overhead": "launches and latencies", "idle": "waiting",
    }  # fmt: skip
    name = max(words, key=lambda part: float(getattr(found, part)))
    return f"Most of it, {100 * getattr(found, name) / found.total:.0f} %, goes to {words[name]}."


def _figures(prediction: Prediction) -> Iterator[Figure]:
    done, served, step = prediction.throughput, prediction.serving, prediction.step_time_s
    if served is not None:
        yield figure("time to first token", served.ttft_s, "s", "ttft")
        yield figure("time per output token", served.tpot_s, "s", "tpot")
    if done is not None and step is not None:
        each = f"{shown(done.per_device_s, f'{done.unit}/s')} a device" if done.devices > 1 else ""
        yield figure("throughput", done.per_s, f"{done.unit}/s", "throughput", each)
    if prediction.mfu is not None and within_peak(prediction.mfu):  # a warning says why it is not shown
        hfu = f"HFU {percent(prediction.hfu)}" if prediction.hfu is not None else ""
        yield figure("MFU", prediction.mfu, "share", "mfu", hfu)
    use, capacity = prediction.memory, prediction.capacity_bytes
    if use.known:
        yield figure(
            "peak memory", use.peak, "B", "peak_memory", f"{percent(use.peak / capacity)} of {format_bytes(capacity)}"
        )
    if prediction.breakdown is not None and step and prediction.devices > 1:
        exposed = prediction.breakdown.exposed_communication
        yield figure("exposed communication", exposed, "s", "exposed", f"{percent(exposed / step)} of the step")
    if prediction.pipeline is not None and prediction.pipeline.bubble is not None:
        yield figure("bubble", prediction.pipeline.bubble, "share", "bubble", prediction.pipeline.schedule)
    if prediction.energy_j is not None and step:
        yield figure(
            "energy", prediction.energy_j, "J", "energy", f"{format_power(prediction.energy_j / step)} on average"
        )
    yield figure("devices", prediction.devices, "count", "devices", prediction.cluster or prediction.device)


def _missing(prediction: Prediction) -> Table | None:
    problem = prediction.infeasible
    if problem is None:
        return None
    unit = "B" if problem.resource.endswith("_bytes") or problem.resource == "memory" else ""
    rows: list[list[TableCell]] = [["needed", problem.demand], ["there is", problem.bound], ["missing", problem.gap]]
    resource = problem.resource.removesuffix("_bytes").replace("_", " ")
    return table("missing", f"What does not fit: {resource}", (column(""), column("amount", unit, "demand")), rows)


def _helps(prediction: Prediction) -> Table | None:
    """Changes that were predicted: those that save most, or those that make it fit."""
    if (problem := prediction.infeasible) is not None:
        if not problem.fixes:
            rows: list[list[TableCell]] = [[lever] for lever in problem.levers]
            return table("helps", "What would make it fit", (column("change"),), rows) if rows else None
        columns = (column("change"), column("needed then", "B", "demand"), column("fits"), column("by"))
        fixes: list[list[TableCell]] = [[each.change, each.demand, each.fits, each.flag] for each in problem.fixes]
        if not any(each.fits for each in problem.fixes):  # what is not tried is all that is left
            fixes += [[lever, None, None, ""] for lever in problem.levers]
        return table("helps", "What would make it fit", columns, fixes)
    if not prediction.levers:
        return None
    served = all(lever.request_time_s is not None for lever in prediction.levers)
    time = column("request then", "s", "request") if served else column("step then", "s", "step_time")
    return table(
        "helps", "What would help most", (column("change"), time, column("saves", "share", "saved"), column("by")),
        ([each.change, each.request_time_s or each.step_time_s, each.saved_share, each.flag] for each in prediction.levers),
    )  # fmt: skip


def _helps_note(prediction: Prediction) -> str:
    if prediction.infeasible is not None and not prediction.infeasible.fixes:
        return "untried: keys of the plan that would make the largest parts smaller"
    return "each was really predicted, with the flag in place of the same flag of the command"


def _what_ifs(prediction: Prediction) -> Table | None:
    if not prediction.what_ifs:
        return None
    columns = (
        column("change"), column("step then", "s", "step_time"), column("times as fast", "ratio", "speedup"),
        column("energy", "J", "energy"), column("MFU", "share", "mfu"),
    )  # fmt: skip
    rows = ([each.change, each.step_time_s, each.speedup, each.energy_j, each.mfu] for each in prediction.what_ifs)
    return table("what-if", "What if", columns, rows)
