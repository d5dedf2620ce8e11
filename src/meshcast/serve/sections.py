"""Sections of a prediction for the page: those of a report, by the same code, templates, styles and scripts.

What is known with the prediction itself comes first, so that a change is answered at once; what has to be drawn (timeline, memory
over time, power) comes with a second question, and what would help with a third, because changes are predicted for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshcast.report import SECTIONS, TITLES, Subject, prediction_data, section_html

if TYPE_CHECKING:
    from meshcast.serve.messages import Part

# The summary, and the sections that its template reads from.
SUMMARY = ("summary", "recorded", "breakdown", "provenance")


def sections_answer(subject: Subject, part: Part) -> dict[str, Any]:
    """Sections as HTML, with the data that the report's scripts draw from and the prediction that they are of."""
    only = SUMMARY if part == "summary" else tuple(name for name in SECTIONS if name not in SUMMARY)
    data = prediction_data(subject, traces=False, only=only)
    return {
        "schema": "meshcast.page-sections/1",
        "prediction": data["prediction"],
        "title": data["title"],
        "data": data["sections"],
        "html": {name: section_html(name, data) for name in data["sections"]},
        "titles": {name: TITLES[name] for name in SECTIONS},
        "glossary": data["glossary"],
    }
