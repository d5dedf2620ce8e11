"""`ReportData`: everything that a page shows, as one JSON object; which sections each kind of report has, and who makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from meshcast.base import VERSION, tell
from meshcast.report.breakdown import breakdown
from meshcast.report.communication import communication_section
from meshcast.report.comparison import comparison_section
from meshcast.report.embedded import Trace, embedded_traces
from meshcast.report.exploration import exploration_section
from meshcast.report.fidelities import fidelity_section
from meshcast.report.glossary import GLOSSARY
from meshcast.report.memory import memory_section
from meshcast.report.pipeline import pipeline_section
from meshcast.report.power import power_section
from meshcast.report.provenance import provenance_section
from meshcast.report.recorded_time import recorded_section
from meshcast.report.roofline import roofline
from meshcast.report.subject import Subject
from meshcast.report.summary import summary_section
from meshcast.report.timeline import timeline_section

SCHEMA = "meshcast.report/1"
Kind = Literal["prediction", "exploration", "comparison"]


class ReportData(TypedDict):
    """A page as data; `sections` by name, in the order of the page."""

    schema: str
    kind: Kind
    title: str
    subtitle: str
    version: str
    sections: dict[str, Any]
    glossary: dict[str, str]
    traces: list[Trace]
    prediction: dict[str, Any] | None


# Sections of a prediction in the order of the page: each is a pure function of the subject, None where it has nothing to say.
SECTIONS: Mapping[str, Callable[[Subject], Any]] = {
    "summary": summary_section,
    "recorded": recorded_section,
    "breakdown": breakdown,
    "timeline": timeline_section,
    "pipeline": pipeline_section,
    "roofline": roofline,
    "memory": memory_section,
    "communication": communication_section,
    "power": power_section,
    "fidelities": fidelity_section,
    "provenance": provenance_section,
}
TITLES = {
    "summary": "Summary",
    "recorded": "Where the recorded time went",
    "breakdown": "Where the time goes",
    "timeline": "Timeline",
    "pipeline": "Pipeline schedule",
    "roofline": "Roofline",
    "memory": "Memory",
    "communication": "Communication",
    "power": "Power and energy",
    "fidelities": "Fidelities",
    "provenance": "Inputs and provenance",
    "exploration": "Search",
    "comparison": "Comparison",
}


def prediction_data(subject: Subject, *, traces: bool = True, only: Collection[str] | None = None) -> ReportData:
    """The page of a prediction.

    Args:
        subject: What it is of.
        traces: Whether it carries a trace for Perfetto.
        only: Names of the sections that are made; all of them by default.
    """
    prediction = subject.prediction
    where = f"{prediction.devices:,} × {prediction.device}" + (f" ({prediction.cluster})" if prediction.cluster else "")
    wanted = [name for name in SECTIONS if only is None or name in only]
    made: dict[str, Any] = {}
    for number, name in enumerate(wanted):
        tell(f"drawing {TITLES[name].lower()}", done=number, total=len(wanted) + traces)
        made[name] = SECTIONS[name](subject)
    if traces:
        tell("packing a trace", done=len(wanted), total=len(wanted) + 1)
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in prediction.name)[:60] or "step"
    return {
        "schema": SCHEMA,
        "kind": "prediction",
        "title": prediction.name,
        "subtitle": f"{where}, {prediction.fidelity}",
        "version": VERSION,
        "sections": {name: section for name, section in made.items() if section is not None},
        "glossary": GLOSSARY,
        "traces": embedded_traces(subject, stem) if traces else [],
        "prediction": prediction.to_json(),
    }


def folder_data(folder: Path, kind: Kind) -> ReportData:
    """The page of a run folder.

    Raises:
        InputError: A file of it is damaged, or says nothing yet.
    """
    section = exploration_section(folder) if kind == "exploration" else comparison_section(folder)
    return {
        "schema": SCHEMA,
        "kind": kind,
        "title": folder.resolve().name,
        "subtitle": f"run folder of meshcast {'explore' if kind == 'exploration' else 'compare'}",
        "version": VERSION,
        "sections": {kind: section},
        "glossary": GLOSSARY,
        "traces": [],
        "prediction": None,
    }
